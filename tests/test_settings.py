import dataclasses
import math
import tomllib
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torch_goat.settings import SettingsError, check_some, dumps, nearest, override, parse, read


@dataclasses.dataclass(frozen=True)
class Inner:
    heads: int = 1
    kind: Literal["lstm", "gru"] = "lstm"
    rates: tuple[float, ...] = (0.1,)

    def __post_init__(self) -> None:
        if self.heads < 1:
            raise ValueError(f"heads must be at least 1, got {self.heads}.")
        if self.kind == "gru" and self.heads == 1:
            raise ValueError("kind='gru' needs two heads.")


@dataclasses.dataclass(frozen=True)
class Outer:
    name: str
    model: Inner = Inner()
    fast: bool = False
    limit: float = 1.0
    cells: dict[str, Inner] = dataclasses.field(default_factory=dict)
    note: str | None = None
    heads_up: int = 0


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
inners = st.builds(
    Inner, heads=st.integers(2, 2**40), kind=st.sampled_from(["lstm", "gru"]), rates=st.lists(st.floats()).map(tuple)
)


@given(
    st.builds(
        Outer, name=texts, model=inners, fast=st.booleans(), limit=st.floats(),
        cells=st.dictionaries(texts, inners, max_size=3), note=st.none() | texts,
    )
)  # fmt: skip
@example(Outer("a", cells={"\x7f": Inner()}))  # which TOML wants escaped
def test_what_is_written_is_what_is_read(settings: Outer) -> None:
    again = parse(Outer, tomllib.loads(dumps(settings)), "file")
    assert repr(again) == repr(settings)  # NaN equals itself only in writing


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a"\nfsat = true', "run.toml: unknown key 'fsat'; did you mean 'fast'?"),
        ('name = "a"\n[model]\nhead = 2', "run.toml: unknown key 'model.head'; did you mean 'heads'?"),
        ('name = "a"\n[cells.x]\nhead = 2', "run.toml: unknown key 'cells.x.head'; did you mean 'heads'?"),
        ('name = "a"\n[model]\nheads = "2"', "run.toml: model.heads must be a whole number, got '2'."),
        ('name = "a"\n[model]\nheads = true', "run.toml: model.heads must be a whole number, got True."),
        ('name = "a"\n[model]\nheads = 2.0', "run.toml: model.heads must be a whole number, got 2.0."),
        ('name = "a"\nfast = 1', "run.toml: fast must be true or false, got 1."),
        ('name = "a"\n[model]\nkind = "lsmt"', "run.toml: model.kind = 'lsmt' is unknown; did you mean 'lstm'?"),
        ('name = "a"\n[model]\nheads = 0', "run.toml: [model] heads must be at least 1, got 0."),
        ('name = "a"\nmodel = 3', "run.toml: model must be a table of settings, got 3."),
        ('name = "a"\n[model]\nrates = ["x"]', "run.toml: model.rates must be a number, got 'x'."),
        ("fast = true", "run.toml: the key 'name' is missing."),
        ("name = ", "run.toml: not a TOML file: Invalid value (at end of document)."),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        read(Outer, tmp_path / "run.toml")
    assert str(caught.value) == f"{tmp_path / message}"


def test_whole_numbers_are_numbers_and_one_value_is_a_list() -> None:
    settings = parse(Outer, {"name": "a", "limit": 2, "model": {"rates": 0.5}}, "file")
    assert isinstance(settings.limit, float)
    assert settings.model.rates == (0.5,)


def test_keys_are_overridden_by_their_last_part_or_their_path() -> None:
    settings = override(Outer("a"), ["heads=4", "model.kind=gru", "limit=inf", "name=b=c", "rates=[0.5, 1]"])
    assert settings == Outer("b=c", Inner(4, "gru", (0.5, 1.0)), limit=math.inf)
    assert override(Outer("a"), ["kind=gru", "heads=2"]) == Outer("a", Inner(2, "gru"))  # checked together


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("haeds=4", "unknown key 'haeds'; did you mean 'heads'?"),
        ("heads", "'heads' sets nothing; write it as key=value."),
        ("heads=0", "heads=0: [model] heads must be at least 1, got 0."),
        ("heads=many", "heads=many: model.heads must be a whole number, got 'many'."),
    ],
)
def test_bad_overrides_are_named(assignment: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        override(Outer("a"), [assignment])
    assert str(caught.value) == message


def test_some_keys_are_checked_one_by_one() -> None:
    check_some(Outer, {"fast": True, "cells": {"a": {"heads": 2}}}, "file")  # without the name, which is required
    check_some(Inner, {"kind": "gru"}, "file")  # which one head cannot have, but the heads may come from elsewhere
    with pytest.raises(SettingsError, match="file: unknown key 'head'; did you mean 'heads'"):
        check_some(Inner, {"head": 2}, "file")
    with pytest.raises(SettingsError, match="file: heads must be a whole number, got True"):
        check_some(Inner, {"heads": True}, "file")


def test_what_a_name_is_near() -> None:
    assert nearest("gta", ["gat", "gcn"]) == "; did you mean 'gat'?"
    assert nearest("x", ["gat", "gcn"]) == "; known are gat, gcn."
    assert nearest("x", []) == "; there is none."
