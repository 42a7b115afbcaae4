from collections.abc import Collection
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

import pandas as pd

from torch_goat.data.tables.source import MISSING, Source, TableError, as_texts

_ENDS = {"node": ("id",), "edge": ("source", "target")}  # required attributes, which become columns


class GraphMLSource(Source):
    """The nodes or the edges of a GraphML file: their cells by column, and the line on which each begins."""

    has_dates = False

    def __init__(
        self, path: Path, rows: list[dict[str, str]], lines: list[int], columns: list[str], texts: set[str]
    ) -> None:
        super().__init__(path, columns)
        self._rows, self._lines, self.texts = rows, lines, frozenset(texts)

    def read(self, text: Collection[str], names: Collection[str] = ()) -> pd.DataFrame:
        frame = pd.DataFrame(self._rows, columns=list(self.columns), dtype=object)
        return pd.DataFrame({name: as_texts(frame[name], [""] if name in names else MISSING) for name in frame})

    def line(self, row: int) -> int:
        return self._lines[row]


class GraphMLReader:
    """Parses a GraphML file with expat.

    A document type, which could declare entities that expand without limit or include other files, is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.parser = path, expat.ParserCreate(namespace_separator=" ")
        self.value: list[str] = []  # the text since the last tag
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._start, self._end
        self.parser.CharacterDataHandler = self.value.append
        self.parser.StartDoctypeDeclHandler = lambda *_: self._fail(
            "document types (<!DOCTYPE) are not supported; delete it"
        )
        self.keys: dict[str, tuple[str, str]] = {}  # id -> what the key is for, and its column
        self.types: dict[str, str] = {}  # id -> type
        self.defaults: dict[str, str] = {}
        self.rows: dict[str, list[dict[str, str]]] = {"node": [], "edge": []}
        self.lines: dict[str, list[int]] = {"node": [], "edge": []}
        self.directed, self.graphs = False, 0
        self.inside = ""  # the element being parsed: "key", "node" or "edge"
        self.key: str | None = None  # the key whose value is being parsed

    def read(self, raw: bytes) -> tuple[GraphMLSource, GraphMLSource]:
        """The nodes and the edges."""
        try:
            self.parser.Parse(raw, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise TableError(f"{self.path}, line {error.lineno}: not a GraphML file ({reason}).") from None
        except (ValueError, LookupError) as error:  # an unknown encoding
            raise TableError(f"{self.path}, line 1: not a GraphML file ({error}).") from None
        if not self.graphs:
            raise TableError(f"{self.path}, line 1: not a GraphML file: it contains no graph.")
        if not self.rows["node"]:
            raise TableError(f"{self.path}, line 1: the graph has no nodes.")
        return self._source("node"), self._source("edge")

    def _source(self, kind: str) -> GraphMLSource:
        keys = {key: column for key, (purpose, column) in self.keys.items() if purpose in (kind, "all")}
        defaults = {keys[key]: value for key, value in self.defaults.items() if key in keys}
        rows = [defaults | row for row in self.rows[kind]]
        texts = {column for key, column in keys.items() if self.types[key] == "string"}
        source = GraphMLSource(self.path, rows, self.lines[kind], [*_ENDS[kind], *keys.values()], texts)
        source.directed = self.directed
        return source

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(" ")[2]
        if name == "key":
            key = self._require(attributes, "id", name)
            self.keys[key] = attributes.get("for", "all"), attributes.get("attr.name", key)
            self.types[key] = attributes.get("attr.type", "")
            self.inside, self.key = "key", key
        elif name == "graph":
            self.graphs += 1
            if self.graphs > 1:
                self._fail("found a second or nested graph; keep one graph per file")
            self.directed = attributes.get("edgedefault") == "directed"
        elif name == "hyperedge":
            self._fail("hyperedges are not supported; replace them by edges between two nodes")
        elif name in self.rows:
            if name == "edge" and attributes.get("directed") == ("false" if self.directed else "true"):
                kinds = ("undirected", "directed") if self.directed else ("directed", "undirected")
                self._fail("the edge is {}, but the graph is {}; make all edges of one kind".format(*kinds))
            self.rows[name].append({column: self._require(attributes, column, name) for column in _ENDS[name]})
            self.lines[name].append(self.parser.CurrentLineNumber)
            self.inside = name
        elif name == "data" and self.inside in self.rows:
            self.key = self._require(attributes, "key", name)
            if self.key not in self.keys:
                self._fail(f"there is no key {self.key!r}; declare it before the graph")
        self.value.clear()

    def _end(self, tag: str) -> None:
        name, text = tag.rpartition(" ")[2], "".join(self.value).strip()
        if name == "default" and self.inside == "key" and self.key is not None:
            self.defaults[self.key] = text
        elif name == "data" and self.key is not None and self.inside in self.rows:
            self.rows[self.inside][-1][self.keys[self.key][1]] = text
        elif name in ("key", "node", "edge"):
            self.inside = ""
        self.key = self.key if name == "default" else None
        self.value.clear()

    def _require(self, attributes: dict[str, str], attribute: str, element: str) -> str:
        if attribute not in attributes:
            self._fail(f"<{element}> has no {attribute}")
        return attributes[attribute]

    def _fail(self, reason: str) -> NoReturn:
        raise TableError(f"{self.path}, line {self.parser.CurrentLineNumber}: {reason}.")
