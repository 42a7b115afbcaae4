"""Tables encoded as a graph, to train on or to predict on."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from torch_goat.data.tables.columns import encode, fit_columns
from torch_goat.data.tables.labels import TRAIN, guess_task, read_target, split_nodes
from torch_goat.data.tables.options import Tables
from torch_goat.data.tables.read import ParsedTables, open_tables, parse, parse_training
from torch_goat.data.tables.schema import Column, Schema
from torch_goat.data.tables.source import TableError


class TableGraph(NamedTuple):
    """A graph from tables, ready to train on."""

    data: Data  # with masks; for regression y is standardised, with data.target_scale
    ids: tuple[str, ...]  # of the nodes
    schema: Schema  # fitted on the training nodes
    notes: tuple[str, ...]  # remarks about the files for the user
    digest: str  # SHA-256 of the files' contents, for Tables.digest

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


def load_tables(tables: Tables, index: int) -> TableGraph:
    found = parse_training(tables)
    source, frame = found.sources.nodes, found.nodes
    task = tables.task or guess_task(frame[tables.target])
    labelled = frame[tables.target].notna().to_numpy()
    y, classes = read_target(tables, source, frame, task)
    part = split_nodes(tables, source, frame, y, y if classes else np.zeros(len(frame), dtype=np.int64), index)
    train = part == TRAIN
    mean, scale = (0.0, 1.0) if classes else (float(y[train].mean()), float(y[train].std()) or 1.0)
    nodes, edges = _fit_features(tables, found, train)
    schema = Schema(
        target=tables.target,
        task=task,
        id=found.names["id"],
        source=found.names["source"],
        destination=found.names["destination"],
        nodes=nodes,
        edges=edges,
        directed=tables.directed or found.sources.directed,
        classes=classes,
        target_mean=mean,
        target_scale=scale,
    )
    data = _encode(schema, [found], [])
    data.y = torch.from_numpy(y if classes else np.where(labelled, (y - mean) / scale, 0).astype(np.float32))
    if classes:
        data.num_classes = len(classes)
    else:
        data.target_scale = scale
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data[name] = torch.from_numpy(part == number)
    return TableGraph(data, tuple(frame[schema.id]), schema, _notes(tables, found, schema, data), found.sources.digest)


def apply_schema(schema: Schema, nodes: str, edges: str, *, join: Tables | None) -> NewGraph:
    wanted = Tables(
        nodes=nodes,
        edges=edges,
        target=schema.target,
        id=schema.id,
        source=schema.source,
        destination=schema.destination,
        categories=tuple(column.name for column in (*schema.nodes, *schema.edges) if column.kind == "category"),
    )
    sources = open_tables(nodes, edges)
    for source, columns in ((sources.nodes, schema.nodes), (sources.edges, schema.edges)):
        for column in columns:
            source.check(column.name, f"a feature the model was trained on ({column.kind})")
    old = [] if join is None else [parse_training(join)]
    found = parse(wanted, sources, [name for other in old for name in other.nodes[other.names["id"]]])
    notes = [*sources.nodes.notes, *sources.edges.notes]
    data = _encode(schema, [*old, found], notes)
    used = {schema.id, schema.target, *(column.name for column in schema.nodes)}
    extra = [name for name in sources.nodes.columns if name not in used]
    if extra:
        notes.append(f"{sources.nodes.path}: the model does not use the columns {', '.join(extra)}.")
    target = found.nodes[schema.target] if schema.target in sources.nodes.columns else None
    return NewGraph(data, tuple(found.nodes[schema.id]), target, tuple(notes))


def _fit_features(
    tables: Tables, found: ParsedTables, train: np.ndarray
) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """The features of nodes and edges; edge statistics are computed on edges with a training node."""
    sources, names = found.sources, found.names
    taken = {names["id"], tables.target, tables.split_column, tables.time_column, *tables.drop}
    free = [name for name in sources.nodes.columns if name not in taken]
    nodes = fit_columns(sources.nodes, found.nodes, free, train, tables.categories)
    if not tables.edge_features:
        return nodes, ()
    free = [name for name in sources.edges.columns if name not in (*names.values(), *tables.drop)]
    if not free:
        raise TableError(f"{sources.edges.path}, line 1: the edges have no feature columns.")
    touched = train[found.ends].any(axis=0)
    return nodes, fit_columns(sources.edges, found.edges, free, touched, tables.categories)


def _encode(schema: Schema, parsed: list[ParsedTables], notes: list[str]) -> Data:
    """Features and edges of all tables as one graph; ``notes`` receives the remarks on the last of them."""
    x, attributes = [], []
    for one in parsed:
        remarks = notes if one is parsed[-1] else []
        x.append(encode(one.sources.nodes, one.nodes, schema.nodes, remarks))
        attributes.append(encode(one.sources.edges, one.edges, schema.edges, remarks))
    num_nodes = sum(len(one.nodes) for one in parsed)
    edge_index = torch.from_numpy(np.concatenate([one.ends for one in parsed], axis=1).astype(np.int64))
    edge_attr = torch.from_numpy(np.concatenate(attributes)) if schema.edges else None  # [num_edges, edge_dim]
    if not schema.directed:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        edge_attr = None if edge_attr is None else edge_attr.repeat(2, 1)
    if edge_attr is None:
        edge_index = coalesce(edge_index, num_nodes=num_nodes)
    else:
        edge_index, edge_attr = coalesce(edge_index, edge_attr, num_nodes=num_nodes, reduce="mean")
    features = torch.from_numpy(np.concatenate(x))
    if not schema.nodes:
        degree = torch.bincount(edge_index[1], minlength=num_nodes)
        features = torch.stack([torch.ones(num_nodes), degree.float().log1p()], dim=1)
    return Data(x=features, edge_index=edge_index, edge_attr=edge_attr)


def _count_edges(data: Data, directed: bool) -> int:
    loops = int((data.edge_index[0] == data.edge_index[1]).sum())
    return data.num_edges if directed else (data.num_edges + loops) // 2


def _notes(tables: Tables, found: ParsedTables, schema: Schema, data: Data) -> tuple[str, ...]:
    sources, notes = found.sources, [*found.sources.nodes.notes, *found.sources.edges.notes]
    unlabelled = int(found.nodes[tables.target].isna().sum())
    if unlabelled:
        words = sources.nodes.missing_words(tables.target)
        said = "".join(f" The word {word!r} counts as missing ({count} times)." for word, count in words.items())
        notes.append(f"{unlabelled} nodes have no {tables.target!r} and serve only as neighbours.{said}")
    rows, distinct = found.ends.shape[1], _count_edges(data, schema.directed)
    if rows > distinct:
        apart = "" if schema.directed else "; --directed keeps both directions apart"
        what = f"their features are averaged{apart}" if schema.edges else "they count once"
        notes.append(f"{rows - distinct} of {rows} edges are duplicates; {what}.")
    trained = set(data.y[data.train_mask].tolist()) if schema.classes else set()
    unseen = [repr(name) for number, name in enumerate(schema.classes) if number not in trained]
    if unseen:
        notes.append(f"no training node has the class {', '.join(unseen)}, so no model can learn to predict it.")
    unused = [name for name in sources.edges.columns if name not in found.names.values()]
    if unused and not tables.edge_features:
        notes.append(f"the edge columns {', '.join(unused)} are not used; goat train --edge-features uses them.")
    kept = [name for name in sources.nodes.columns if name not in tables.drop]
    empty = [name for name in kept if not found.nodes[name].notna().any()]
    if empty:
        notes.append(f"the node columns {', '.join(empty)} are empty and not used.")
    if not schema.nodes:
        notes.append("the nodes have no features; a constant and the log-degree are used instead.")
    return tuple(notes)
