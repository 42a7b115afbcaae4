"""Recipes: result tables that can be run, with models as rows and datasets as columns."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
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
            raise ValueError(f'paper must be a number such as "84.9" or "92.11 ± 1.88", got {text!r}.')
        mean, std = match.groups()
        return cls(f"{mean} ± {std}" if std else mean, float(mean), float(std) if std else None)

    @property
    def decimals(self) -> int:
        return max(len(number.partition(".")[2]) for number in self.text.split(" ± "))


@dataclass(frozen=True)
class Rung:
    """A round of a search by successive halving: which trials enter it, and how they are judged."""

    trials: int = 0  #: number of the best trials of the round before that enter; 0 for all, in the first round
    repetitions: int = 1  #: number of graphs, splits or seeds of a trial, from the search's first on
    epochs: int = 0  #: maximum number of epochs; 0 for that of the settings

    def __post_init__(self) -> None:
        for name, least in (("trials", 0), ("repetitions", 1), ("epochs", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} of a rung must be at least {least}, got {getattr(self, name)}.")


@dataclass(frozen=True)
class TableColumn:
    """A dataset of a table."""

    label: str  #: heading of the column
    dataset: str  #: a name of :data:`torch_goat.data.datasets.DATASETS`
    split: str = ""  #: split protocol of the dataset; empty for its default
    like: str = ""  #: another column whose settings this one shares, as the paper shares Cora's with CiteSeer
    repetitions: int = 0  #: number of runs of each cell; 0 for the recipe's number
    finals: int = 0  #: repetitions of the second rung of a search, which has as many epochs as the first; 0 for none
    finalists: int = 0  #: number of trials of each cell that enter it; 0 for the search's number
    space: Table = field(default_factory=dict)  #: values to search here and in columns like it; override those of rows
    training: Table = field(default_factory=dict)  #: keys of ``[training]`` for all rows, here and in columns like it
    tried_first: tuple[Table, ...] = ()  #: settings that a search tries for every row, after those of the recipe
    rungs: tuple[Rung, ...] = ()  #: the rounds of a search; by default one, and a second with ``finals``

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS:
            raise ValueError(f"dataset = {self.dataset!r} is unknown{nearest(self.dataset, DATASETS)}")
        DATASETS[self.dataset].check(self.split)
        for name in ("repetitions", "finals", "finalists"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0 (the default), got {getattr(self, name)}.")
        if self.rungs and (self.finals or self.finalists):
            raise ValueError("rungs cannot be combined with finals and finalists, which are a rung; leave these out.")
        for number, rung in enumerate(self.rungs):
            if bool(number) != bool(rung.trials):
                raise ValueError(
                    f"rungs[{number}].trials must be {'at least 1' if number else '0 (all trials)'}, got {rung.trials}."
                )

    @property
    def protocol(self) -> str:
        """The split protocol: ``split``, or the default of the dataset."""
        return self.split or DATASETS[self.dataset].default_split


@dataclass(frozen=True)
class TableCell:
    """One model on one dataset."""

    paper: str = ""  #: the paper's number as printed, ``"84.9"`` or ``"92.11 ± 1.88"``; empty if it has none
    model: Table = field(default_factory=dict)  #: keys of the ``[model]`` table that this cell sets
    training: Table = field(default_factory=dict)  #: keys of the ``[training]`` table that this cell sets
    trials: int = 0  #: number of trials of the search that found the settings; 0 without a search

    def __post_init__(self) -> None:
        if self.paper:
            Published.parse(self.paper)


@dataclass(frozen=True)
class TableRow:
    """A model of a table."""

    label: str  #: name of the row in the table
    model: Table = field(default_factory=dict)  #: keys of ``[model]`` that define this row; a search keeps them
    training: Table = field(default_factory=dict)  #: keys of ``[training]`` that define this row; a search keeps them
    like: str = ""  #: another row with the settings, also of cells, that this one shares unless it overrides them
    ours: bool = False  #: whether it is tested against the best baseline; the other rows are the baselines
    space: Table = field(default_factory=dict)  #: values to search for this row; override those of the recipe's search
    cells: dict[str, TableCell] = field(default_factory=dict)  #: settings of single cells, by column


@dataclass(frozen=True)
class RandomSearch:
    """The random search for the settings of cells: the ``[search]`` table of a recipe."""

    trials: int = 0  #: number of trials for every cell; 0 uses the recipe's settings
    column: str = ""  #: the column that is searched, once for all columns; empty to search each
    first: int = 0  #: the first repetition of a trial: its seed and its graph or split
    repetitions: int = 1  #: number of graphs, splits or seeds of a trial, from the first on; the mean over them counts
    finalists: int = 5  #: number of each cell's best trials that are repeated in a column with ``finals``
    space: Table = field(default_factory=dict)  #: values of keys of ``[model]`` and ``[training]``

    def __post_init__(self) -> None:
        for name, least in (("trials", 0), ("first", 0), ("repetitions", 1), ("finalists", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"search.{name} must be at least {least}, got {getattr(self, name)}.")


@dataclass(frozen=True)
class OnDemand:
    """Expensive cells: those of these rows and columns are run only when their row is requested by name."""

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """A result table that can be run: its rows are models, its columns datasets.

    The settings of a cell are merged in this order, later ones override earlier ones: the recipe's ``[model]`` and
    ``[training]``; ``training`` of the column that its column is like, and of the column; the row that its row is like
    (the row, its cell in the column that the column is like, its cell in the column); then the same three of its own
    row. A recipe with a number of search trials was written by a search: cells that have not had as many trials are not
    run.
    """

    title: str
    columns: dict[str, TableColumn]  #: the datasets by name
    rows: dict[str, TableRow]  #: the models by name
    repetitions: int = 10  #: number of runs of a cell; repetition 0 has seed 0 and the first graph or split, and so on
    model: Table = field(default_factory=dict)  #: keys of the ``[model]`` table for all rows whose layers read them
    training: Table = field(default_factory=dict)  #: keys of the ``[training]`` table for all rows
    search: RandomSearch = field(default_factory=RandomSearch)  #: the search for better settings
    on_demand: tuple[OnDemand, ...] = ()  #: cells that are run only on request
    reference: str = "paper"  #: source of the published numbers, as the table calls it

    def __post_init__(self) -> None:
        if self.repetitions < 1:
            raise ValueError(f"repetitions must be at least 1, got {self.repetitions}.")
        tables: Mapping[str, Mapping[str, TableRow | TableColumn]] = {"columns": self.columns, "rows": self.rows}
        for what, entries in tables.items():
            _check_names(what, entries)
            for name, entry in entries.items():
                _check_space(f"{what}.{name}.space", entry.space)
            for name in (name for one in self.on_demand for name in getattr(one, what)):
                if name not in entries:
                    raise ValueError(f"on_demand.{what} has {name!r}, which is unknown{nearest(name, entries)}")
        if self.search.column and self.search.column not in self.columns:
            raise ValueError(
                f"search.column = {self.search.column!r} is unknown{nearest(self.search.column, self.columns)}"
            )
        for name, row in self.rows.items():
            for column in row.cells:
                if column not in self.columns:
                    raise ValueError(f"unknown key 'rows.{name}.cells.{column}'{nearest(column, self.columns)}")
        for place, kind, table in self._tables():
            settings.check_some(kind, table, f"[{place}]")
        _check_space("search.space", self.search.space)
        for name, column_options in self.columns.items():
            for point in column_options.tried_first:
                _check_space(f"columns.{name}.tried_first", {key: [value] for key, value in point.items()})
        for row_name in self.rows:
            for column_name in self.columns:
                self.options(row_name, column_name)

    def options(self, row: str, column: str, point: Table | None = None) -> tuple[ModelOptions, TrainingOptions]:
        """The complete settings of a cell; those of a trial (``point``) override all but those that define the row."""
        own: Table = {}
        training = self.training | self._of_column(column, "training")
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
        reads = settings.parse(ModelOptions, _outline(model), where).reads()
        model = {key: value for key, value in model.items() if key in own or key in reads}
        return settings.parse(ModelOptions, model, where), settings.parse(TrainingOptions, training, where)

    def published(self, row: str, column: str) -> Published | None:
        """The published number of a cell, if there is one."""
        text = self.rows[row].cells.get(column, TableCell()).paper
        return Published.parse(text) if text else None

    def runs(self, column: str) -> int:
        """Number of runs of the cells of a column."""
        return self.columns[column].repetitions or self.repetitions

    def is_on_demand(self, row: str, column: str) -> bool:
        """Whether a cell is run only when its row is requested."""
        return any(row in one.rows and column in one.columns for one in self.on_demand)

    def rungs(self, column: str) -> tuple[Rung, ...]:
        """The rounds of the search in a column."""
        options, first = self.columns[column], Rung(repetitions=self.search.repetitions)
        last = Rung(options.finalists or self.search.finalists, max(1, options.finals))
        return options.rungs or ((first, last) if last.repetitions > first.repetitions else (first,))

    def settled(self, row: str, column: str) -> bool:
        """Whether a cell can be run: its settings have been searched, or there is no search."""
        return self.rows[row].cells.get(column, TableCell()).trials >= self.search.trials

    def space(self, row: str, column: str) -> Table:
        return self.search.space | self.rows[row].space | self.column_space(column)

    def column_space(self, column: str) -> Table:
        """The search space of a column, including that of the column it is like."""
        return self._of_column(column, "space")

    def to_toml(self) -> str:
        """The recipe as TOML, without keys that have their default values."""
        return settings.dumps(without_defaults(self))

    def _of_column(self, column: str, key: str) -> Table:
        """A table of a column, over that of the column it is like."""
        places = filter(None, (self.columns[column].like, column))
        return {name: value for place in places for name, value in getattr(self.columns[place], key).items()}

    def _fixed(self, row: str) -> set[str]:
        """The settings that define a row; a search does not change them."""
        names = filter(None, (self.rows[row].like, row))
        return {key for name in names for key in {**self.rows[name].model, **self.rows[name].training}}

    def _parts(self, row: str, column: str) -> Iterator[TableRow | TableCell]:
        """The tables with settings of a cell; later ones override earlier ones."""
        for name in filter(None, (self.rows[row].like, row)):
            yield self.rows[name]
            for place in filter(None, (self.columns[column].like, column)):
                yield self.rows[name].cells.get(place, TableCell())

    def _tables(self) -> Iterator[tuple[str, type, Table]]:
        """Every table of settings, with its place and its dataclass."""
        places: dict[str, Recipe | TableRow | TableCell] = {"": self}
        for name, row in self.rows.items():
            places[f"rows.{name}."] = row
            places |= {f"rows.{name}.cells.{column}.": cell for column, cell in row.cells.items()}
        for place, part in places.items():
            yield f"{place}model", ModelOptions, part.model
            yield f"{place}training", TrainingOptions, part.training
        for name, column in self.columns.items():
            yield f"columns.{name}.training", TrainingOptions, column.training


RECIPES: dict[str, Path] = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}
"""The files of the recipes that come with the package, by name."""


def find_recipe(name: str) -> Path:
    """The file of a recipe, given the name of a table or a path."""
    if name in RECIPES:
        return RECIPES[name]
    path = Path(name)
    if path.suffix != ".toml":
        raise SettingsError(
            f"there is no table {name!r}{nearest(name, RECIPES)} Files of your own recipes end in .toml."
        )
    if not path.is_file():
        raise SettingsError(f"there is no recipe {name}; name a file that exists, or one of {', '.join(RECIPES)}.")
    return path


def read_recipe(name: str | Path) -> Recipe:
    """Reads and checks a recipe, given the name of a table or a path."""
    return settings.read(Recipe, find_recipe(str(name)))


def _check_names(what: str, entries: Mapping[str, TableRow | TableColumn]) -> None:
    if not entries:
        raise ValueError(f"[{what}] is empty; name at least one.")
    for name, entry in entries.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{what}.{name} becomes the name of a folder; use only letters, digits, - and _.")
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
    for key, values in space.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"{place}.{key} must be a list of values, got {values!r}.")
        kind = ModelOptions if key in _MODEL_KEYS else TrainingOptions
        for value in values:
            settings.check_some(kind, {key: value}, f"[{place}]")


def without_defaults(value: Any) -> Any:
    """A dataclass as nested tables, without fields that have their default values."""
    if is_dataclass(value):
        items = {one.name: getattr(value, one.name) for one in fields(value)}
        plain = {
            one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in fields(value)
        }
        return {key: without_defaults(item) for key, item in items.items() if item != plain[key]}
    if isinstance(value, tuple):
        return tuple(map(without_defaults, value))
    return {key: without_defaults(item) for key, item in value.items()} if isinstance(value, dict) else value


def _outline(model: Table) -> Table:
    """The keys that decide which layers a network has, and so which keys it reads."""
    outline = {key: model[key] for key in ("name", "num_layers", "last") if key in model}
    return outline | ({"last_channels": 2} if model.get("last_channels") else {})  # any even width
