"""Tables encoded as a graph, to train on or to predict on."""

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from torch_goat.data.tables.columns import encode, find_texts, fit_columns, floats, has_leading_zeros, times
from torch_goat.data.tables.labels import guess_task, read_target
from torch_goat.data.tables.leaks import near_duplicates
from torch_goat.data.tables.options import Tables
from torch_goat.data.tables.read import ParsedTables, open_tables, parse, parse_training
from torch_goat.data.tables.schema import Column, Schema
from torch_goat.data.tables.source import Problems, Source, first_row, shown
from torch_goat.data.tables.splits import TRAIN, Split, check_split, split_columns, split_nodes
from torch_goat.settings import SettingsError

_READ_AS: Final = {
    "date": "days since 1970-01-01; times without a zone are UTC",
    "time": "hours since midnight",
    "duration": "days",
}


class TableGraph(NamedTuple):
    """A graph from tables, ready to train on."""

    data: Data  # with masks; y is -1 or NaN where unknown, for regression standardised, with data.target_scale
    ids: tuple[str, ...]  # of the nodes
    schema: Schema  # fitted on the training nodes
    notes: tuple[str, ...]  # remarks about the files for the user
    digest: str  # SHA-256 of the files' contents, for Tables.digest
    split: str  # which split it is, such as "fold 2 of 5" or "time ..." with the cut-off dates
    num_splits: int  # folds or split columns; 1 if one column decides, 0 for any number of random splits

    @property
    def num_edges(self) -> int:
        """The number of edges; in an undirected graph an edge and its reverse count as one."""
        return _count_edges(self.data, self.schema.directed)

    def without_edge_features(self) -> "TableGraph":
        """The same graph as if read with ``edge_features=False``."""
        data = self.data.clone()
        data.edge_attr = None
        return self._replace(data=data, schema=replace(self.schema, edges=()))


class NewGraph(NamedTuple):
    """A graph from tables, to predict on."""

    data: Data  # without targets
    ids: tuple[str, ...]  # of the nodes to predict, which are the last nodes of data
    target: pd.Series | None  # their true targets, if the table has them
    notes: tuple[str, ...]
    digest: str  # SHA-256 of the files' contents


def load_tables(tables: Tables, index: int, kept: Schema | None) -> TableGraph:
    if index < 0:
        raise SettingsError(f"index must be at least 0, got {index}.")
    found = parse_training(tables if kept is None else _keep_categories(tables, kept))
    y, classes, split, schema = _fit(tables, found, index, kept)
    data = _encode(schema, [found], [])
    if classes:
        data.y, data.num_classes = torch.from_numpy(y), len(classes)
    else:
        standard = (y - schema.target_mean) / schema.target_scale
        data.y, data.target_scale = torch.from_numpy(standard.astype(np.float32)), schema.target_scale
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data[name] = torch.from_numpy(split.part == number)
    ids = tuple(found.nodes.frame[schema.id])
    notes = _notes(tables, found, schema, data)
    if kept is None:
        notes += near_duplicates(found.nodes, schema.nodes, tables.target, y, classes)
    return TableGraph(data, ids, schema, tuple(notes), found.digest, split.text, split.total)


def _fit(
    tables: Tables, found: ParsedTables, index: int, kept: Schema | None
) -> tuple[np.ndarray, tuple[str, ...], Split, Schema]:
    """The targets, their classes, the split and the schema; all problems of the tables are raised as one."""
    source, problems = found.nodes, Problems(found.problems)
    split = Split(np.full(len(source.frame), TRAIN), 0, "")  # to find problems of the features, if it has some itself
    with problems:
        source.check(tables.target, "the target")
        task = kept.task if kept else guess_task(tables, source)
        y, classes = read_target(tables, source, task)
        check_split(tables, source)
        split = split_nodes(tables, source, y, classes, index)
    train = split.part == TRAIN
    with problems:
        nodes, edges = (kept.nodes, kept.edges) if kept else _fit_features(tables, found, train)
    if problems.found and tables.order_by in found.edges.frame:
        with problems:
            _ranks(tables.order_by, [found.edges])
    problems.check()
    if kept is not None:
        return y, classes, split, kept
    mean, scale = (0.0, 1.0) if classes else (float(y[train].mean()), float(y[train].std()) or 1.0)
    schema = Schema(
        target=tables.target,
        task=task,
        id=found.names["id"],
        source=found.names["source"],
        destination=found.names["destination"],
        nodes=nodes,
        edges=edges,
        order_by=tables.order_by,
        directed=tables.directed or found.edges.directed,
        classes=classes,
        target_mean=mean,
        target_scale=scale,
    )
    return y, classes, split, schema


def _keep_categories(tables: Tables, schema: Schema) -> Tables:
    """The tables with the columns that a schema has as categories."""
    kept = (column.name for column in (*schema.nodes, *schema.edges) if column.kind == "category")
    return replace(tables, categories=tuple(dict.fromkeys((*tables.categories, *kept))))


def apply_schema(schema: Schema, nodes: str, edges: str, *, join: Tables | None) -> NewGraph:
    wanted = Tables(
        nodes=nodes,
        edges=edges,
        target=schema.target,
        id=schema.id,
        source=schema.source,
        destination=schema.destination,
        order_by=schema.order_by,
    )
    of_nodes, of_edges, digest = open_tables(nodes, edges)
    problems = Problems()
    for source, columns in ((of_nodes, schema.nodes), (of_edges, schema.edges)):
        for column in columns:
            with problems:
                source.check(column.name, f"a feature the model was trained on ({column.kind})")
        used = {schema.target, schema.order_by, *(column.name for column in columns)}
        source.unread = frozenset(source.columns) - used
    problems.check()
    old = [] if join is None else [parse_training(_keep_categories(join, schema))]
    known = [name for other in old for name in other.nodes.frame[other.names["id"]]]
    found = parse(_keep_categories(wanted, schema), of_nodes, of_edges, digest, Problems(), known)
    problems = Problems(found.problems)
    problems.check()
    notes = [*of_nodes.notes, *of_edges.notes]
    data = _encode(schema, [*old, found], notes)
    used = {schema.id, schema.target, *(column.name for column in schema.nodes)}
    extra = [name for name in of_nodes.columns if name not in used]
    if extra:
        notes.append(f"{of_nodes.path}: the model does not use the columns {', '.join(extra)}.")
    target = of_nodes.frame.get(schema.target)
    if target is not None:
        target = _known_targets(schema, of_nodes, target, notes)
    return NewGraph(data, tuple(of_nodes.frame[schema.id]), target, tuple(notes), digest)


def _known_targets(schema: Schema, source: Source, values: pd.Series, notes: list[str]) -> pd.Series:
    """The targets of new nodes, classes in the spelling of the schema; ``notes`` receives a remark on other values."""
    known = values.notna()
    if schema.classes:
        place = find_texts(values, schema.classes)
        values = values.astype(object).mask(place >= 0, pd.Series([schema.classes[number] for number in place]))
        other, what = (place < 0) & known, "is none of the classes, so every prediction for it counts as wrong"
    else:
        other, what = ~np.isfinite(floats(values)) & known, "is not a number, so it counts as missing"
        values = values.mask(other)
    if other.any():
        row = first_row(other)
        cell = shown(source.frame.iloc[row][schema.target])
        notes.append(f"{source.where(row, schema.target)}: {cell} {what} ({int(other.sum())} in total).")
    return values


def _fit_features(
    tables: Tables, found: ParsedTables, train: np.ndarray
) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """The features of nodes and edges; edge statistics are computed on edges with a training node."""
    taken = {found.names["id"], tables.target, tables.time_column, tables.group_column, *tables.drop}
    taken.update(split_columns(tables, found.nodes.columns))
    free = [name for name in found.nodes.columns if name not in taken]
    problems = Problems()
    nodes: tuple[Column, ...] = ()
    with problems:
        nodes = fit_columns(found.nodes, free, train, tables.categories)
    if not tables.edge_features:
        problems.check()
        return nodes, ()
    taken = {*found.names.values(), tables.order_by, *tables.drop}
    free = [name for name in found.edges.columns if name not in taken]
    if not free:
        besides = f" besides {tables.order_by!r}, which orders neighbours" if tables.order_by else ""
        problems.found.append(f"{found.edges.path}, line 1: the edges have no feature columns{besides}.")
    edges: tuple[Column, ...] = ()
    with problems:
        edges = fit_columns(found.edges, free, train[found.ends].any(axis=0), tables.categories)
    problems.check()
    return nodes, edges


def _encode(schema: Schema, parsed: list[ParsedTables], notes: list[str]) -> Data:
    """Features and edges of all tables as one graph; ``notes`` receives the remarks on the last of them."""
    remarks: list[list[str]] = [[] for _ in parsed[1:]] + [notes]
    x = np.concatenate([encode(one.nodes, schema.nodes, told) for one, told in zip(parsed, remarks, strict=True)])
    num_nodes = len(x)
    edge_index = torch.from_numpy(np.concatenate([one.ends for one in parsed], axis=1).astype(np.int64))
    edge_attr = None
    if schema.edges:
        attributes = (encode(one.edges, schema.edges, told) for one, told in zip(parsed, remarks, strict=True))
        edge_attr = torch.from_numpy(np.concatenate(list(attributes)))  # [num_edges, edge_dim]
    if not schema.directed:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    edge_key = None
    if schema.order_by:
        key = _ranks(schema.order_by, [one.edges for one in parsed])
        _, edge_key = coalesce(edge_index, key.repeat(2 - schema.directed), num_nodes=num_nodes, reduce="max")
    if edge_attr is None:
        edge_index = coalesce(edge_index, num_nodes=num_nodes)
    else:
        edge_index, edge_attr = _merge(edge_index, edge_attr, num_nodes)
    features = torch.from_numpy(x)
    if not schema.nodes:
        degree = torch.bincount(edge_index[1], minlength=num_nodes)
        features = torch.stack([torch.ones(num_nodes), degree.float().log1p()], dim=1)
    return Data(x=features, edge_index=edge_index, edge_attr=edge_attr, edge_key=edge_key)


def _ranks(column: str, tables: list[Source]) -> torch.Tensor:
    """The ranks of a column in the edges of all tables ``[num_edges]``, which keep the order of large integers."""
    found: list[np.ndarray] = []
    for table in tables:
        values = table.frame[column]
        if values.isna().any():
            raise table.error(values.isna(), values, "neighbours are ordered by this column; fill in a value.")
        found += [times(table, values)] if len(values) else []
        if len({part.dtype.kind == "M" for part in found}) > 1:
            reason = "{cell} cannot be compared with the training graph; use numbers in both tables, or dates in both."
            raise table.error(values.notna(), values, reason)
    return torch.from_numpy(np.unique(np.concatenate(found or [np.zeros(0)]), return_inverse=True)[1])


def _merge(edge_index: torch.Tensor, rows: torch.Tensor, num_nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The distinct edges and the mean features of each; those of edge i are row i, modulo the number of rows."""
    number = torch.arange(edge_index.size(1))
    distinct, first = coalesce(edge_index, number, num_nodes=num_nodes, reduce="min")
    merged = rows[first % max(1, len(rows))]  # few edges are duplicates, so that only these are averaged
    again = number[torch.ones_like(number, dtype=torch.bool).index_fill_(0, first, False)]
    if len(again):
        keys = (num_nodes * ends[0] + ends[1] for ends in (distinct, edge_index[:, again]))
        place = torch.searchsorted(*keys)
        merged.index_add_(0, place, rows[again % len(rows)])
        merged /= 1 + torch.bincount(place, minlength=len(merged)).unsqueeze(1)
    return distinct, merged


def _count_edges(data: Data, directed: bool) -> int:
    loops = int((data.edge_index[0] == data.edge_index[1]).sum())
    return data.num_edges if directed else (data.num_edges + loops) // 2


def _notes(tables: Tables, found: ParsedTables, schema: Schema, data: Data) -> list[str]:
    nodes, edges = found.nodes, found.edges
    notes = [*nodes.notes, *edges.notes]
    unlabelled = int(nodes.frame[tables.target].isna().sum())
    if unlabelled:
        words = nodes.missing_words(tables.target)
        said = "".join(f" The word {word!r} counts as missing ({count} times)." for word, count in words.items())
        one = unlabelled == 1
        have, serve = ("node has", "serves only as a neighbour") if one else ("nodes have", "serve only as neighbours")
        notes.append(f"{unlabelled} {have} no {tables.target!r} and {serve}.{said}")
    rows, distinct = found.ends.shape[1], _count_edges(data, schema.directed)
    if rows > distinct:
        apart = "" if schema.directed else "; --directed keeps both directions apart"
        what = "their features are averaged" if schema.edges else "they count once"
        what += f", and the largest {schema.order_by!r} is kept" if schema.order_by else ""
        what += apart if schema.edges or schema.order_by else ""
        notes.append(f"{rows - distinct} of {rows} edges are duplicates; {what}.")
    trained = set(data.y[data.train_mask].tolist()) if schema.classes else set()
    unseen = [repr(name) for number, name in enumerate(schema.classes) if number not in trained]
    if unseen:
        notes.append(f"no training node has the class {', '.join(unseen)}, so no model can learn to predict it.")
    unused = [name for name in edges.columns if name not in (*found.names.values(), schema.order_by)]
    if unused and not tables.edge_features:
        notes.append(f"the edge columns {', '.join(unused)} are not used; goat train --edge-features uses them.")
    empty = [name for name in nodes.columns if name not in tables.drop and nodes.frame[name].isna().all()]
    if empty:
        notes.append(f"the node columns {', '.join(empty)} are empty and not used.")
    for source, columns in ((nodes, schema.nodes), (edges, schema.edges)):
        lasting = {one.name for one in columns if one.name in source.durations and one.kind != "category"}
        for kind, text in _READ_AS.items():
            names = [one.name for one in columns if kind == ("duration" if one.name in lasting else one.kind)]
            if names:
                notes.append(f"{source.path}: the {kind}s in {', '.join(map(repr, names))} are read as {text}.")
        names = [one.name for one in columns if one.kind == "category" and one.name not in tables.categories]
        codes = [name for name in names if has_leading_zeros(source.frame[name])]
        if codes:
            text = "has numbers with leading zeros, so that it holds categories"
            notes += [f"{source.path}: the column {name!r} {text}." for name in codes]
    if not schema.nodes:
        notes.append("the nodes have no features; a constant and the log-degree are used instead.")
    return notes
