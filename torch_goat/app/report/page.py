"""The page: a template, filled so that whatever comes from the data is text."""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup


class Table(NamedTuple):
    """A table of the page; the first cell of a row is its heading."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def render(values: Mapping[str, Any], viewer_data: Mapping[str, Any]) -> str:
    """The page as HTML.

    Args:
        values: What the template names; texts are escaped.
        viewer_data: What the viewer reads.
    """
    script = _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(_file("page.html")).render(
        **values,
        style=Markup(_file("page.css")),
        script=Markup(script),
        script_hash=f"sha256-{digest}",  # no other script runs in the page
        viewer_data=Markup(json.dumps(viewer_data).replace("<", "\\u003c")),  # no tag can begin in it
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # folders may have names that no encoding knows


def _file(name: str) -> str:
    return resources.files("torch_goat.app.report").joinpath(name).read_text(encoding="utf-8")
