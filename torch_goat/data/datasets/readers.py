"""Parsers of raw files; each reads from a private folder with the layout of a data folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torch_goat.data.datasets.cache import Graph
from torch_goat.lazy import lazy_module

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch_geometric.data import Data
else:
    torch = lazy_module("torch")
pyg_utils = lazy_module("torch_geometric.utils")

Reader = Callable[[Path], Graph]


def pyg(kind: str, *name: str, symmetric: bool = False) -> Reader:
    """Uses the raw parser of a PyG dataset class, whose files are in a folder of that name, without its downloads and
    processed files; ``symmetric`` adds the reverse of every edge."""

    def read(root: Path) -> Graph:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the pickles refer to old module names of numpy and scipy
            graph = _parser(kind)(str(root / kind), *name).parsed.to_dict()
        if symmetric:
            graph["edge_index"] = pyg_utils.to_undirected(graph["edge_index"], num_nodes=len(graph["y"]))
        return graph

    return read


def _parser(kind: str) -> Any:
    from torch_geometric import datasets

    class Parsed(getattr(datasets, kind)):  # type: ignore[misc]
        parsed: Data

        def _download(self) -> None:
            pass

        def _process(self) -> None:
            self.process()

        def save(self, data_list: list[Data], path: str) -> None:
            (self.parsed,) = data_list

        def load(self, path: str, data_cls: Any = None) -> None:
            pass

    return Parsed


def heterophilous(name: str) -> Reader:
    """Reads a graph of Platonov et al. as PyG's ``HeterophilousGraphDataset`` does, which refuses filtered ones."""

    def read(root: Path) -> Graph:
        with np.load(root / f"Heterophilous/{name}/raw/{name}.npz", allow_pickle=False) as arrays:
            graph = {
                key: torch.from_numpy(arrays[f"node_{file}"]) for key, file in (("x", "features"), ("y", "labels"))
            }
            graph["edge_index"] = _both_ways(torch.from_numpy(arrays["edges"]), len(graph["y"]))
            masks = {f"{part}_mask": torch.from_numpy(arrays[f"{part}_masks"]) for part in ("train", "val", "test")}
        return graph | {key: mask.t().contiguous() for key, mask in masks.items()}  # [N, splits]

    return read


def ogbn_arxiv(root: Path) -> Graph:
    """ogbn-arxiv from the raw files of the Open Graph Benchmark, with an edge in both directions per citation."""
    graph, _ = _arxiv(root)
    return {"x": _table(root / "ogbn_arxiv/raw/node-feat.csv.gz", np.float32), **graph}


def arxiv_structure(root: Path) -> Graph:
    """ogbn-arxiv with structural features only.

    The features of a paper are log(1 + references), log(1 + citations), and the mean and maximum of its neighbours'
    log degrees, each standardized over all papers.
    """
    graph, citations = _arxiv(root)
    num_nodes = len(graph["y"])
    made, received = (torch.bincount(ends, minlength=num_nodes).double().log1p() for ends in citations.t())
    row, col = graph["edge_index"]
    theirs = pyg_utils.degree(col, num_nodes, torch.double).log()[
        row
    ]  # finite: the source of an edge has degree 1 or more
    around = [pyg_utils.scatter(theirs, col, dim_size=num_nodes, reduce=reduce) for reduce in ("mean", "max")]
    x = torch.stack([made, received, *around], dim=1)  # [N, 4]
    spread = x.std(0, correction=0)
    return {"x": ((x - x.mean(0)) / spread.where(spread > 0, 1)).float(), **graph}


def _arxiv(root: Path) -> tuple[Graph, Tensor]:
    """The graph without features, and its citations as pairs of citing and cited paper ``[M, 2]``."""
    folder = root / "ogbn_arxiv"
    y = _table(folder / "raw/node-label.csv.gz", np.int64).view(-1)
    citations = _table(folder / "raw/edge.csv.gz", np.int64)
    graph = {"y": y, "edge_index": _both_ways(citations, len(y))}
    for part, file in (("train", "train"), ("val", "valid"), ("test", "test")):
        nodes = _table(folder / f"split/time/{file}.csv.gz", np.int64).view(-1)
        graph[f"{part}_mask"] = pyg_utils.index_to_mask(nodes, len(y))
    return graph, citations


def disease(name: str) -> Reader:
    """Reads one of the simulated epidemics of HGCN (``disease_nc``, ``disease_lp``)."""

    def read(root: Path) -> Graph:
        from scipy.sparse import load_npz

        folder = root / "Disease" / name
        y = torch.from_numpy(np.load(folder / f"{name}.labels.npy", allow_pickle=False)).long()
        x = torch.from_numpy(load_npz(folder / f"{name}.feats.npz").toarray()).float()
        return {"x": x, "y": y, "edge_index": _both_ways(_table(folder / f"{name}.edges.csv", np.int64), len(y))}

    return read


def cora_content(root: Path) -> Graph:
    """Cora from the text files of LINQS: nodes in the order of ``cora.content``, classes in alphabetical order."""
    folder = root / "LINQS/cora"
    papers = [line.split("\t") for line in (folder / "cora.content").read_text().splitlines()]
    number = {paper: row for row, (paper, *_) in enumerate(papers)}
    topics = sorted({topic for *_, topic in papers})
    citations = [line.split() for line in (folder / "cora.cites").read_text().splitlines()]
    edges = torch.tensor([[number[cited], number[citing]] for cited, citing in citations])
    return {
        "x": torch.from_numpy(np.array([words for _, *words, _ in papers], dtype=np.float32)),
        "y": torch.tensor([topics.index(topic) for *_, topic in papers]),
        "edge_index": _both_ways(edges, len(papers)),
    }


def _table(path: Path, kind: type) -> Tensor:
    """Reads a file of comma-separated numbers ``[rows, columns]``, which may be compressed (``.gz``)."""
    return torch.from_numpy(np.loadtxt(path, delimiter=",", dtype=kind, ndmin=2))


def _both_ways(edges: Tensor, num_nodes: int) -> Tensor:
    """Converts edges ``[E, 2]`` to a symmetric ``edge_index`` without duplicates."""
    return pyg_utils.to_undirected(edges.t().contiguous(), num_nodes=num_nodes)
