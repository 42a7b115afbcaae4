"""Names of a package that are imported on first use: until then, the command line starts fast and obeys Ctrl-C."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


class _Module:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


def lazy_module(name: str) -> Any:
    """A module such as ``torch``, which takes seconds to import, without importing it yet."""
    return _Module(name)


def lazy_names(package: str, modules: Mapping[str, tuple[str, ...]]) -> tuple[Callable[[str], Any], Callable[[], Any]]:
    """The ``__getattr__`` and ``__dir__`` of a package, from its modules, relative to it, and the names in each."""
    homes = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find, lambda: sorted(vars(sys.modules[package]).keys() | homes.keys())
