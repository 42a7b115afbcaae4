"""The tables of a graph as a graph to train on, or to predict on."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from torch_goat.data.tables.columns import encode, fit_columns
from torch_goat.data.tables.errors import TableError
from torch_goat.data.tables.open import open_tables
from torch_goat.data.tables.options import Tables
from torch_goat.data.tables.read import ReadTables, read, read_training
from torch_goat.data.tables.schema import Column, Schema
from torch_goat.data.tables.split import TRAIN, split_nodes
from torch_goat.data.tables.target import check_training, guess_task, read_target


class OwnGraph(NamedTuple):
    """A graph of one's own, ready to train on."""

    data: Data  # with masks; y standardised for regression, target_scale beside it
    ids: tuple[str, ...]  # of the nodes
    schema: Schema  # as fitted on the training part
    notes: tuple[str, ...]  # what is worth saying of the files
    digest: str  # the SHA-256 of the files' contents, for Tables.digest


def load_graph(tables: Tables, index: int = 0) -> OwnGraph:
    """Reads the tables of a graph, fits the schema on the training part and applies it to all nodes.

    Args:
        tables: The files and how they are read.
        index: Which of the random splits, from 0.
    """
    found = read_training(tables)
    source, frame = found.sources.nodes, found.nodes
    task = tables.task or guess_task(frame[tables.target])
    labelled = frame[tables.target].notna().to_numpy()
    y, classes = read_target(tables, source, frame, task)
    strata = y if classes else np.zeros(len(frame), dtype=np.int64)
    part = split_nodes(tables, source, frame, strata, labelled, index)
    train = part == TRAIN
    check_training(tables, source, frame, y, train)
    mean, scale = (0.0, 1.0) if classes else (float(y[train].mean()), float(y[train].std()) or 1.0)
    nodes, edges = _columns(tables, found, train)
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
    data = _data(schema, [found])
    data.y = torch.from_numpy(y if classes else np.where(labelled, (y - mean) / scale, 0).astype(np.float32))
    if classes:
        data.num_classes = len(classes)
    else:
        data.target_scale = scale
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data[name] = torch.from_numpy(part == number)
    trained = {classes[number] for number in y[train]} if classes else set()
    notes = _notes(tables, found, schema, data, labelled, trained)
    return OwnGraph(data, tuple(frame[schema.id]), schema, notes, found.sources.digest)


def _columns(tables: Tables, found: ReadTables, train: np.ndarray) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """The features of nodes and edges; the statistics of edges are of those that touch a training node."""
    sources, names = found.sources, found.names
    taken = {names["id"], tables.target, tables.split_column, tables.time_column, *tables.drop}
    free = [name for name in sources.nodes.columns if name not in taken]
    nodes = fit_columns(sources.nodes, found.nodes, free, train, tables.categories)
    if not tables.edge_features:
        return nodes, ()
    free = [name for name in sources.edges.columns if name not in (*names.values(), *tables.drop)]
    if not free:
        raise TableError(f"{sources.edges.path}, line 1: the edges have no columns of features.")
    touched = train[found.ends].any(axis=0)
    return nodes, fit_columns(sources.edges, found.edges, free, touched, tables.categories)


class NewGraph(NamedTuple):
    """Tables that a network is applied to."""

    data: Data  # without targets
    ids: tuple[str, ...]  # of the nodes to predict, which are the last ones of data
    target: pd.Series | None  # their true targets, where the table has them
    notes: tuple[str, ...]


def apply_schema(schema: Schema, nodes: str, edges: str = "", *, join: Tables | None = None) -> NewGraph:
    """Reads new tables as a schema says.

    Args:
        schema: What the network was trained on.
        nodes: The file of the nodes, or a GraphML file with everything.
        edges: The file of the edges; empty for GraphML.
        join: The tables of the training graph, if the new nodes are part of it.
    """
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
            source.check(column.name, f"a feature that the model was trained on ({column.kind})")
    old = [] if join is None else [read_training(join)]
    found = read(wanted, sources, [name for other in old for name in other.nodes[other.names["id"]]])
    notes = [*sources.nodes.notes, *sources.edges.notes]
    data = _data(schema, [*old, found], notes)
    known = {schema.id, schema.target, *(column.name for column in schema.nodes)}
    extra = [name for name in sources.nodes.columns if name not in known]
    if extra:
        notes.append(f"{sources.nodes.path}: the model does not read the columns {', '.join(extra)}.")
    target = found.nodes[schema.target] if schema.target in sources.nodes.columns else None
    return NewGraph(data, tuple(found.nodes[schema.id]), target, tuple(notes))


def _data(schema: Schema, tables: list[ReadTables], notes: list[str] | None = None) -> Data:
    """Features and edges of one or several tables together; the notes are on the last."""
    x, attributes = [], []
    for one in tables:
        own = notes if one is tables[-1] else None
        x.append(encode(one.sources.nodes, one.nodes, schema.nodes, own))
        attributes.append(encode(one.sources.edges, one.edges, schema.edges, own))
    edge_index = torch.from_numpy(np.concatenate([one.ends for one in tables], axis=1).astype(np.int64))
    edge_attr = torch.from_numpy(np.concatenate(attributes))  # [E, D]
    if not schema.directed:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        edge_attr = edge_attr.repeat(2, 1)
    nodes = sum(len(one.nodes) for one in tables)
    edge_index, edge_attr = _once(edge_index, edge_attr, nodes)
    features = torch.from_numpy(np.concatenate(x))
    if not schema.nodes:
        degree = torch.bincount(edge_index[1], minlength=nodes)
        features = torch.stack([torch.ones(nodes), degree.float().log1p()], dim=1)
    return Data(x=features, edge_index=edge_index, edge_attr=edge_attr if schema.edges else None)


def count_edges(data: Data, directed: bool) -> int:
    """How many edges a graph has; of one that is not directed, an edge and its reverse are one."""
    loops = int((data.edge_index[0] == data.edge_index[1]).sum())
    return data.num_edges if directed else (data.num_edges + loops) // 2


def _once(edge_index: Tensor, edge_attr: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Each edge once, with the mean of the features of those that were several."""
    if not edge_attr.size(1):
        edge_index = coalesce(edge_index, num_nodes=nodes)
        return edge_index, edge_attr.new_empty(edge_index.size(1), 0)
    return coalesce(edge_index, edge_attr, num_nodes=nodes, reduce="mean")


def _notes(
    tables: Tables, found: ReadTables, schema: Schema, data: Data, labelled: np.ndarray, trained: set[str]
) -> tuple[str, ...]:
    notes = [*found.sources.nodes.notes, *found.sources.edges.notes]
    if not labelled.all():
        words = found.sources.nodes.words_for_nothing(tables.target)
        said = "".join(f" The word {word!r} counts as no value ({count} times)." for word, count in words.items())
        notes.append(f"{int((~labelled).sum())} nodes have no {tables.target!r}; they are neighbours alone.{said}")
    rows, distinct = found.ends.shape[1], count_edges(data, schema.directed)
    if rows > distinct:
        apart = "" if schema.directed else "; --directed keeps directions apart"
        what = f"have the mean of their features{apart}" if schema.edges else "count once"
        notes.append(f"{rows - distinct} of {rows} edges join nodes that another edge joins; such edges {what}.")
    strange = [name for name in schema.classes if name not in trained]
    if strange:
        notes.append(f"no training node is of the class {', '.join(map(repr, strange))}, which no model can learn so.")
    unused = [name for name in found.sources.edges.columns if name not in found.names.values()]
    if unused and not tables.edge_features:
        notes.append(
            f"the columns {', '.join(unused)} of the edges are not used; goat train --edge-features reads them."
        )
    free = [name for name in found.sources.nodes.columns if name not in tables.drop]
    empty = [name for name in free if not found.nodes[name].notna().any()]
    if empty:
        notes.append(f"the columns {', '.join(empty)} of the nodes have no value at all and are not used.")
    if not schema.nodes:
        notes.append("the nodes have no features; a constant and the logarithm of the degree take their place.")
    return tuple(notes)
