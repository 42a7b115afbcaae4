"""Every dataset by name."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch_geometric.data import Data
from torch_geometric.datasets import Amazon, Coauthor, LastFMAsia, Planetoid, WebKB

from torch_goat.data.datasets import readers, splits
from torch_goat.data.datasets.dataset import Dataset, Generated, Real
from torch_goat.data.datasets.disease_sim import disease_sim
from torch_goat.data.datasets.neighborhood import NEIGHBORHOOD_TASKS, NeighborhoodTask
from torch_goat.data.datasets.planetoid import planetoid_files
from torch_goat.data.datasets.raw import RawFile
from torch_goat.data.datasets.readers import Reader
from torch_goat.data.datasets.splits import DrawnSplit, Split
from torch_goat.data.datasets.structure import betweenness, effective_size
from torch_goat.data.datasets.top2 import top2
from torch_goat.settings import SettingsError, nearest

HGCN = "https://github.com/HazyResearch/hgcn/raw/master/data"
OGB = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
PYGCN = "https://github.com/tkipf/pygcn/raw/master/data/cora"
TUNED_GNN = "https://github.com/LUOyk1999/tunedGNN/raw/main/medium_graph/data"

Sizes = tuple[int, int, int]


def load(
    name: str, *, split: str = "", index: int = 0, data_dir: str | Path | None = None, normalized: bool = True
) -> Data:
    """A graph with features, targets and the masks of one split.

    Raw files are looked for in the data folder, which is never written to, then among earlier downloads, and are
    downloaded if they are in neither. What was read is kept in the cache (``TORCH_GOAT_CACHE``).

    Args:
        name: A key of ``DATASETS``.
        split: The split protocol; empty for the dataset's default.
        index: Which graph of a generated dataset, or which split of a real one.
        data_dir: The data folder; ``TORCH_GOAT_DATA`` if not given.
        normalized: Whether features are divided by their sum where the protocol does so.

    Returns:
        A graph with ``x``, ``edge_index``, ``y``, ``train_mask``, ``val_mask`` and ``test_mask``. ``y`` ``[N]`` is the
        class, with ``num_classes`` beside it, or a real number.
    """
    if name not in DATASETS:
        raise SettingsError(f"there is no dataset {name!r}{nearest(str(name), DATASETS)}")
    return DATASETS[name].load(split, index, data_dir, normalized=normalized)


def _random_graphs(
    name: str, make: Callable[..., Data], nodes: int, probability: float, features: int, classes: int = 0
) -> Dataset:
    edges = nodes * (nodes - 1) / 2 * probability
    return Generated(
        name=name,
        nodes=nodes,
        edges=round(edges),
        edge_columns=round(2 * edges),
        features=features,
        classes=classes,
        protocols={"paper": Split((nodes * 6 // 10, nodes * 2 // 10, nodes * 2 // 10), count=10)},
        note="Generated. The number of edges is the expected one.",
        make=partial(make, num_nodes=nodes, edge_probability=probability),
    )


def _neighborhood(name: str, task: NeighborhoodTask) -> Dataset:
    edges, centers = round(task.num_edges), task.centers
    return Generated(
        name=name,
        nodes=task.num_nodes,
        edges=edges,
        edge_columns=2 * edges,
        features=task.num_features,
        classes=task.num_classes,
        protocols={"generated": Split((centers * 6 // 10, centers * 2 // 10, centers * 2 // 10), count=10)},
        note="Generated. The labelled nodes are a part of all.",
        make=task.make,
    )


def _planetoid_split(classes: int, normalized: bool = True) -> DrawnSplit:
    return DrawnSplit((20 * classes, 500, 1000), draw=splits.given, row_normalized=normalized)


def _per_class_splits(classes: int) -> dict[str, DrawnSplit]:
    ten = DrawnSplit((20 * classes, 500, 1000), count=10, draw=splits.per_class)
    return {"tuned": replace(ten, count=1), "per-class": ten}  # "tuned" is the first of the ten


def _shuffled_split(train: float, val: float, sizes: Sizes, normalized: bool = False) -> DrawnSplit:
    return DrawnSplit(sizes, count=10, draw=splits.shuffled(train, val), row_normalized=normalized)


def _tuned_split(file: str, sizes: Sizes) -> DrawnSplit:
    raw = RawFile(f"splits_60_20_20/{file}", f"{TUNED_GNN}/{file}", "the 60/20/20 split")
    return DrawnSplit(sizes, draw=splits.from_file, files=(raw,), row_normalized=True)


def _npz_file(kind: type[Amazon] | type[Coauthor], name: str, file: str) -> tuple[RawFile, ...]:
    path = f"{kind.__name__}/{name}/raw/{file}"
    return (RawFile(path, kind.url + file, "edges, features and labels"),)


def _webkb(name: str, nodes: int, edges: int, sizes: Sizes) -> Dataset:
    folder, pages, links = f"WebKB/{name}/raw", "out1_node_feature_label.txt", "out1_graph_edges.txt"
    files = [
        RawFile(f"{folder}/{pages}", f"{WebKB.url}/new_data/{name}/{pages}", "features and labels", lines=nodes + 1),
        RawFile(f"{folder}/{links}", f"{WebKB.url}/new_data/{name}/{links}", "edges", lines=edges + 1),
    ]
    for index in range(10):
        file = f"{name}_split_0.6_0.2_{index}.npz"
        files.append(RawFile(f"{folder}/{file}", f"{WebKB.url}/splits/{file}", f"split {index}"))
    split = DrawnSplit(sizes, count=10, draw=splits.given)
    return Real(
        name=name,
        nodes=nodes,
        edges=edges,
        features=1703,
        classes=5,
        protocols={"geom-gcn": split, "paper": split},
        note="Links keep their direction.",
        raw=tuple(files),
        read=readers.pyg(WebKB, name),
    )


def _disease(name: str, nodes: int, features: int, split: DrawnSplit, note: str = "") -> Dataset:
    path, url = f"Disease/{name}/{name}", f"{HGCN}/{name}/{name}"
    return Real(
        name=name.replace("_", "-"),
        nodes=nodes,
        edges=nodes - 1,
        edge_columns=2 * (nodes - 1),
        features=features,
        classes=2,
        protocols={"paper": split},
        note=note,
        raw=(
            RawFile(f"{path}.feats.npz", f"{url}.feats.npz", "features"),
            RawFile(f"{path}.labels.npy", f"{url}.labels.npy", "labels"),
            RawFile(f"{path}.edges.csv", f"{url}.edges.csv", "edges", lines=nodes - 1),
        ),
        read=readers.disease(name),
    )


def _arxiv_file(path: str, holds: str) -> RawFile:
    return RawFile(f"ogbn_arxiv/{path}", OGB, holds, member=f"arxiv/{path}")


def _arxiv(name: str, features: int, read: Reader, *more: RawFile, note: str) -> Dataset:
    split = DrawnSplit((90941, 29799, 48603), draw=splits.given)
    return Real(
        name=name,
        nodes=169343,
        edges=1166243,
        edge_columns=2315598,
        features=features,
        classes=40,
        protocols={"public": split, "paper": split},
        note=note,
        raw=(
            *more,
            _arxiv_file("raw/node-label.csv.gz", "labels"),
            _arxiv_file("raw/edge.csv.gz", "edges"),
            _arxiv_file("split/time/train.csv.gz", "training nodes"),
            _arxiv_file("split/time/valid.csv.gz", "validation nodes"),
            _arxiv_file("split/time/test.csv.gz", "test nodes"),
        ),
        read=read,
    )


_ALL: list[Dataset] = [
    _random_graphs("top2", top2, 1000, 0.01, features=1, classes=2),
    _random_graphs("betweenness-100", betweenness, 100, 0.09, features=100),
    _random_graphs("betweenness-1000", betweenness, 1000, 0.01, features=1000),
    _random_graphs("effective-size-100", effective_size, 100, 0.09, features=100),
    _random_graphs("effective-size-1000", effective_size, 1000, 0.01, features=1000),
    Generated(
        name="disease-sim",
        nodes=1044,
        edges=1043,
        edge_columns=2086,
        features=10,
        classes=2,
        protocols={"paper": Split((312, 105, 627), count=10)},
        note="Generated, of the same size as disease-nc: never report it as Disease.",
        make=disease_sim,
    ),
    Real(
        name="cora",
        nodes=2708,
        edges=10556,
        features=1433,
        classes=7,
        protocols={"public": _planetoid_split(7), **_per_class_splits(7)},
        elsewhere={"paper": "cora-content"},
        note="The paper's split of Cora is that of cora-content.",
        raw=planetoid_files("Cora"),
        read=readers.pyg(Planetoid, "Cora"),
    ),
    Real(
        name="citeseer",
        nodes=3327,
        edges=9104,
        features=3703,
        classes=6,
        protocols={"public": _planetoid_split(6), "paper": _planetoid_split(6), **_per_class_splits(6)},
        raw=planetoid_files("CiteSeer"),
        read=readers.pyg(Planetoid, "CiteSeer"),
    ),
    Real(
        name="pubmed",
        nodes=19717,
        edges=88648,
        features=500,
        classes=3,
        protocols={"public": _planetoid_split(3, normalized=False)},
        raw=planetoid_files("PubMed"),
        read=readers.pyg(Planetoid, "PubMed"),
    ),
    Real(
        name="computers",
        nodes=13752,
        edges=491722,
        features=767,
        classes=10,
        protocols={
            "paper": _shuffled_split(0.7, 0.1, (9625, 1376, 2751)),
            "tuned": _tuned_split("amazon-computer_split.npz", (8251, 2750, 2751)),
        },
        raw=_npz_file(Amazon, "Computers", "amazon_electronics_computers.npz"),
        read=readers.pyg(Amazon, "Computers"),
    ),
    Real(
        name="photo",
        nodes=7650,
        edges=238162,
        features=745,
        classes=8,
        protocols={
            "paper": _shuffled_split(0.7, 0.1, (5354, 765, 1531)),
            "tuned": _tuned_split("amazon-photo_split.npz", (4590, 1530, 1530)),
        },
        raw=_npz_file(Amazon, "Photo", "amazon_electronics_photo.npz"),
        read=readers.pyg(Amazon, "Photo"),
    ),
    Real(
        name="cs",
        nodes=18333,
        edges=163788,
        features=6805,
        classes=15,
        protocols={
            "paper": _shuffled_split(0.7, 0.1, (12832, 1834, 3667)),
            "tuned": _tuned_split("coauthor-cs_split.npz", (10999, 3666, 3668)),
        },
        raw=_npz_file(Coauthor, "CS", "ms_academic_cs.npz"),
        read=readers.pyg(Coauthor, "CS"),
    ),
    Real(
        name="physics",
        nodes=34493,
        edges=495924,
        features=8415,
        classes=5,
        protocols={
            "paper": _shuffled_split(0.7, 0.1, (24144, 3450, 6899)),
            "tuned": _tuned_split("coauthor-physics_split.npz", (20695, 6898, 6900)),
        },
        raw=_npz_file(Coauthor, "Physics", "ms_academic_phy.npz"),
        read=readers.pyg(Coauthor, "Physics"),
    ),
    Real(
        name="lastfm-asia",
        nodes=7624,
        edges=27806,
        edge_columns=55612,
        features=128,
        classes=18,
        protocols={"paper": _shuffled_split(0.6, 0.2, (4574, 1525, 1525))},
        raw=(RawFile("LastFMAsia/raw/lastfm_asia.npz", LastFMAsia.url, "features, edges and labels"),),
        read=readers.pyg(LastFMAsia, symmetric=True),
    ),
    _webkb("cornell", 183, 298, (87, 59, 37)),
    _webkb("texas", 183, 325, (87, 59, 37)),
    _webkb("wisconsin", 251, 515, (120, 80, 51)),
    _arxiv(
        "ogbn-arxiv",
        128,
        readers.ogbn_arxiv,
        _arxiv_file("raw/node-feat.csv.gz", "features"),
        note="Citations are counted once and loaded as an edge in both directions, as is usual for training.",
    ),
    _arxiv(
        "arxiv-structure",
        4,
        readers.arxiv_structure,
        note="The graph of ogbn-arxiv with features of its structure alone: never report it as ogbn-arxiv.",
    ),
    _disease("disease_nc", 1044, 1000, _shuffled_split(0.3, 0.1, (312, 105, 627), normalized=True)),
    _disease(
        "disease_lp",
        2665,
        11,
        _shuffled_split(0.3, 0.1, (799, 267, 1599)),
        note="Another, larger tree: never report it as Disease. Its features have both signs and stay as they are.",
    ),
    Real(
        name="cora-content",
        nodes=2708,
        edges=5429,
        edge_columns=10556,
        features=1433,
        classes=7,
        protocols={
            "paper": DrawnSplit(
                (140, 300, 1000), draw=splits.rows(range(140), range(200, 500), range(500, 1500)), row_normalized=True
            )
        },
        note="Cora in the order of cora.content, on which the paper's split is defined.",
        raw=(
            RawFile("LINQS/cora/cora.content", f"{PYGCN}/cora.content", "features and labels", lines=2708),
            RawFile("LINQS/cora/cora.cites", f"{PYGCN}/cora.cites", "edges", lines=5429),
        ),
        read=readers.cora_content,
    ),
    *(_neighborhood(name, task) for name, task in NEIGHBORHOOD_TASKS.items()),
]

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}
"""Every dataset by name."""
