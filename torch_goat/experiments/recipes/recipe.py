import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch_goat import settings
from torch_goat.data.datasets import DATASETS
from torch_goat.experiments import TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.settings import SettingsError, nearest

Table = dict[str, Any]
_MODEL_KEYS = {option.name for option in fields(ModelOptions)}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(?: ?(?:±|\+-) ?(\d+(?:\.\d+)?))?")


class Published(NamedTuple):
    """A number as the paper prints it."""

    text: str
    mean: float
    std: float | None

    @classmethod
    def parse(cls, text: str) -> "Published":
        """From ``"84.9"`` or ``"92.11 ± 1.88"``."""
        match = _NUMBER.fullmatch(text)
        if match is None:
            raise ValueError(f'paper = {text!r} is no number; write it as "84.9" or "92.11 ± 1.88".')
        mean, std = match.groups()
        return cls(f"{mean} ± {std}" if std else mean, float(mean), float(std) if std else None)

    @property
    def decimals(self) -> int:
        """How many decimals it is printed with."""
        return max(len(number.partition(".")[2]) for number in self.text.split(" ± "))


@dataclass(frozen=True)
class Column:
    """A dataset of a table.

    Args:
        label: Its heading.
        dataset: A name of :data:`torch_goat.data.datasets.DATASETS`.
        split: The dataset's split protocol; empty is its default.
        like: The column whose settings it shares, as the paper shares Cora's with CiteSeer.
        repetitions: How many runs a cell has; 0 is the recipe's number.
        finals: On how many graphs, splits or seeds the best trials of a search are repeated before one is chosen; 0 is
            no more than every trial has.
        finalists: How many of a cell's trials, the best, these are; 0 is the search's number.
        space: Values to search in this column, and in those that are like it, over those of the recipe and the rows.
    """

    label: str
    dataset: str
    split: str = ""
    like: str = ""
    repetitions: int = 0
    finals: int = 0
    finalists: int = 0
    space: Table = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS:
            raise ValueError(f"dataset = {self.dataset!r} is unknown{nearest(self.dataset, DATASETS)}")
        _explained(DATASETS[self.dataset].check, self.split)
        if self.repetitions < 0:
            raise ValueError(f"repetitions = {self.repetitions} is impossible; it must be 0 (the recipe's) or more.")
        if self.finals < 0:
            raise ValueError(f"finals = {self.finals} is impossible; it must be 0 (no more than a trial has) or more.")
        if self.finalists < 0:
            raise ValueError(f"finalists = {self.finalists} is impossible; it must be 0 (the search's) or more.")


@dataclass(frozen=True)
class Cell:
    """One model on one dataset.

    Args:
        paper: The paper's number as it prints it, ``"84.9"`` or ``"92.11 ± 1.88"``; empty where it has none.
        model: Keys of the ``[model]`` table that this cell sets.
        training: Keys of the ``[training]`` table that this cell sets.
        trials: How many trials of a search the settings are the best of; 0 if there was none.
    """

    paper: str = ""
    model: Table = field(default_factory=dict)
    training: Table = field(default_factory=dict)
    trials: int = 0

    def __post_init__(self) -> None:
        if self.paper:
            Published.parse(self.paper)


@dataclass(frozen=True)
class Row:
    """A model of a table.

    Args:
        label: How the table calls it.
        model: What makes this row: keys of the ``[model]`` table, for all its cells.
        training: The same of the ``[training]`` table.
        like: The row whose settings it shares, its cells' included; what this one sets comes on top.
        ours: Whether it is tested against the best of the rows that are not.
        space: Values to search for this row, over those of the recipe's search.
        cells: What belongs to one column alone, by the column's name; columns that are not named have a cell too.
    """

    label: str
    model: Table = field(default_factory=dict)
    training: Table = field(default_factory=dict)
    like: str = ""
    ours: bool = False
    space: Table = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)


@dataclass(frozen=True)
class Search:
    """How the settings of cells are searched: at random, as long for one as for another.

    Args:
        trials: How many settings are tried for every cell; 0 takes the recipe's settings as they are.
        repetitions: How many graphs, splits or seeds a trial trains on, from the first on; the mean over them counts.
        finalists: How many of a cell's trials, the best, are repeated in a column with ``finals``.
        space: The values of keys of the ``[model]`` and ``[training]`` tables, for every row whose layers read them.
    """

    trials: int = 0
    repetitions: int = 1
    finalists: int = 5
    space: Table = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("trials", 0), ("repetitions", 1), ("finalists", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"search.{name} must be {least} or more, got {getattr(self, name)}.")


@dataclass(frozen=True)
class OnDemand:
    """Cells that take long for what they tell: they are run when their row is asked for by name.

    Args:
        rows: Their rows.
        columns: Their columns.
    """

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """A table of results that can be run: its rows are models, its columns datasets.

    The settings of a cell are, each over the one before: the recipe's ``[model]`` and ``[training]``; those of the row
    that its row is like (the row's, its cell's of the column that its column is like, its cell's of the column); then
    the same three of its own row.

    Args:
        title: What the table shows.
        columns: The datasets by name.
        rows: The models by name.
        repetitions: How many runs a cell has: repetition 0 is of seed 0 on the first graph or split, and so on.
        model: Keys of the ``[model]`` table for every row whose layers read them.
        training: Keys of the ``[training]`` table for every row.
        search: How better settings are searched. A recipe with trials is one that a search has filled in: a cell that
            has not had as many is not run.
        on_demand: Cells that are run when they are asked for.
        reference: Whose the published numbers are, as the table calls it.
    """

    title: str
    columns: dict[str, Column]
    rows: dict[str, Row]
    repetitions: int = 10
    model: Table = field(default_factory=dict)
    training: Table = field(default_factory=dict)
    search: Search = field(default_factory=Search)
    on_demand: OnDemand = field(default_factory=OnDemand)
    reference: str = "paper"

    def __post_init__(self) -> None:
        if self.repetitions < 1:
            raise ValueError(f"repetitions = {self.repetitions} is impossible; it must be at least 1.")
        for what, entries in (("columns", self.columns), ("rows", self.rows)):
            _check_names(what, entries)
        for name, row in self.rows.items():
            for column in row.cells:
                if column not in self.columns:
                    raise ValueError(f"unknown key 'rows.{name}.cells.{column}'{nearest(column, self.columns)}")
        for key, known in (("rows", self.rows), ("columns", self.columns)):
            for name in getattr(self.on_demand, key):
                if name not in known:
                    raise ValueError(f"on_demand.{key} has {name!r}, which is unknown{nearest(name, known)}")
        for place, kind, table in self._tables():
            _explained(settings.check_some, kind, table, f"[{place}]")
        _check_space("search", self.search.space)
        for what, entries in (("columns", self.columns), ("rows", self.rows)):
            for name, entry in entries.items():
                _check_space(f"{what}.{name}", entry.space)
        for row_name in self.rows:
            for column_name in self.columns:
                self.options(row_name, column_name)

    def options(self, row: str, column: str, point: Table | None = None) -> tuple[ModelOptions, TrainingOptions]:
        """The complete settings of a cell.

        Args:
            row: The row.
            column: The column.
            point: Settings of a trial, over all others but those that make the row.
        """
        own: Table = {}
        training = dict(self.training)
        for part in self._parts(row, column):
            own |= part.model
            training |= part.training
        where = f"[rows.{row}] on {column}"
        model = self.model | own
        if point is not None:
            free = {key: value for key, value in point.items() if key not in self._fixed(row)}
            model |= {key: value for key, value in free.items() if key in _MODEL_KEYS}
            training |= {key: value for key, value in free.items() if key not in _MODEL_KEYS}
            own = dict(self.rows[row].model)
        reads = _explained(settings.parse, ModelOptions, _outline(model), where).reads()
        model = {key: value for key, value in model.items() if key in own or key in reads}
        return (
            _explained(settings.parse, ModelOptions, model, where),
            _explained(settings.parse, TrainingOptions, training, where),
        )

    def published(self, row: str, column: str) -> Published | None:
        """The paper's number of a cell, where it has one."""
        text = self.rows[row].cells.get(column, Cell()).paper
        return Published.parse(text) if text else None

    def runs(self, column: str) -> int:
        """How many runs the cells of a column have."""
        return self.columns[column].repetitions or self.repetitions

    def is_on_demand(self, row: str, column: str) -> bool:
        """Whether a cell is run only when its row is asked for."""
        return row in self.on_demand.rows and column in self.on_demand.columns

    def finalists(self, column: str) -> int:
        """How many trials of each of a column's cells are repeated, if it has finals."""
        return self.columns[column].finalists or self.search.finalists

    def settled(self, row: str, column: str) -> bool:
        """Whether a cell can be run: its settings have been searched, or none are."""
        return self.rows[row].cells.get(column, Cell()).trials >= self.search.trials

    def space(self, row: str, column: str) -> Table:
        """The values that the search of a cell draws from, by key."""
        return self.search.space | self.rows[row].space | self.column_space(column)

    def column_space(self, column: str) -> Table:
        """What a column sets of that, with what it has from the one that it is like."""
        like = self.columns[column].like
        return (self.columns[like].space if like else {}) | self.columns[column].space

    def to_toml(self) -> str:
        """The text of a file with this recipe, without keys that have their defaults."""
        return settings.dumps(without_defaults(self))

    def _fixed(self, row: str) -> set[str]:
        """What makes a row: the settings that it has whatever is searched."""
        names = filter(None, (self.rows[row].like, row))
        return {key for name in names for key in {**self.rows[name].model, **self.rows[name].training}}

    def _parts(self, row: str, column: str) -> Iterator[Row | Cell]:
        """What sets something for a cell, the stronger the later."""
        for name in filter(None, (self.rows[row].like, row)):
            yield self.rows[name]
            for place in filter(None, (self.columns[column].like, column)):
                yield self.rows[name].cells.get(place, Cell())

    def _tables(self) -> Iterator[tuple[str, type, Table]]:
        """Every table of settings, with its place and what it sets keys of."""
        places: dict[str, Recipe | Row | Cell] = {"": self}
        for name, row in self.rows.items():
            places[f"rows.{name}."] = row
            places |= {f"rows.{name}.cells.{column}.": cell for column, cell in row.cells.items()}
        for place, part in places.items():
            yield f"{place}model", ModelOptions, part.model
            yield f"{place}training", TrainingOptions, part.training


RECIPES: dict[str, Path] = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}
"""The files of the paper's tables by name."""


def find_recipe(name: str) -> Path:
    """The file of a recipe, by the name of a table of the paper or by its own path."""
    if name in RECIPES:
        return RECIPES[name]
    path = Path(name)
    if path.suffix != ".toml":
        raise SettingsError(f"there is no table {name!r}{nearest(name, RECIPES)} A recipe of your own ends in .toml.")
    if not path.is_file():
        raise SettingsError(f"there is no recipe {name}; name a file that exists, or one of {', '.join(RECIPES)}.")
    return path


def read_recipe(name: str | Path) -> Recipe:
    """A recipe, by the name of a table of the paper or by its own path; everything in it is checked."""
    return settings.read(Recipe, find_recipe(str(name)))


def _check_names(what: str, entries: Mapping[str, Row | Column]) -> None:
    if not entries:
        raise ValueError(f"[{what}] is empty; name at least one.")
    for name, entry in entries.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{what}.{name} names a folder of runs; use letters, digits, - and _ alone.")
        if not entry.like:
            continue
        if entry.like not in entries or entry.like == name:
            raise ValueError(
                f"{what}.{name}.like = {entry.like!r} is unknown{nearest(entry.like, {*entries} - {name})}"
            )
        if entries[entry.like].like:
            raise ValueError(
                f"{what}.{name}.like = {entry.like!r} is itself like {entries[entry.like].like!r}; name that one."
            )


def _check_space(place: str, space: Table) -> None:
    """Refuses keys that do not exist, and values that are not of their kind."""
    for key, values in space.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"{place}.space.{key} = {values!r} is no list of values to try.")
        kind = ModelOptions if key in _MODEL_KEYS else TrainingOptions
        for value in values:
            _explained(settings.check_some, kind, {key: value}, f"[{place}.space]")


def without_defaults(value: Any) -> Any:
    """A dataclass as nested tables of what differs from its defaults."""
    if is_dataclass(value):
        items = {field.name: (getattr(value, field.name), field) for field in fields(value)}
        return {key: without_defaults(item) for key, (item, field) in items.items() if item != _default(field)}
    return {key: without_defaults(item) for key, item in value.items()} if isinstance(value, dict) else value


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _outline(model: Table) -> Table:
    """What decides which layers a network has, and so which keys are read."""
    outline = {key: model[key] for key in ("name", "num_layers", "last") if key in model}
    return outline | ({"last_channels": 2} if model.get("last_channels") else {})  # any even width will do


def _explained(function: Any, *arguments: Any) -> Any:
    """Calls a function of the settings such that the recipe's file is put before its errors."""
    try:
        return function(*arguments)
    except SettingsError as error:
        raise ValueError(str(error)) from None
