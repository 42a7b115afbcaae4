"""All datasets by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from torch_goat.data.datasets import readers, splits
from torch_goat.data.datasets.dataset import Dataset, Generated, Real
from torch_goat.data.datasets.neighborhood import NEIGHBORHOOD_TASKS, NeighborhoodTask
from torch_goat.data.datasets.raw import RawFile
from torch_goat.data.datasets.readers import Reader
from torch_goat.data.datasets.splits import Sizes, Split
from torch_goat.data.datasets.synthetic import OrderTask, betweenness, disease_sim, effective_size, order_task, top2
from torch_goat.settings import SettingsError, nearest

if TYPE_CHECKING:
    from torch_geometric.data import Data

HGCN = "https://github.com/HazyResearch/hgcn/raw/master/data"
OGB = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
PYGCN = "https://github.com/tkipf/pygcn/raw/master/data/cora"
TUNED_GNN = "https://github.com/LUOyk1999/tunedGNN/raw/main/medium_graph/data"
# As in PyG's dataset classes, which are not imported here; a test compares them.
HETEROPHILOUS = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
LASTFM = "https://graphmining.ai/datasets/ptg/lastfm_asia.npz"
NPZ = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/"
PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"
WEBKB = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master"
NPZ_FILES = {  # the graph, and its split by TUNED_GNN
    "Computers": ("amazon_electronics_computers", "amazon-computer_split"),
    "Photo": ("amazon_electronics_photo", "amazon-photo_split"),
    "CS": ("ms_academic_cs", "coauthor-cs_split"),
    "Physics": ("ms_academic_phy", "coauthor-physics_split"),
}
Counts = tuple[int, int, int, int]  # of nodes, edges, features and classes

# The sizes of each split, which differ because duplicates were removed from splits of the larger graphs.
SQUIRREL = (
    (1053, 718, 452), (1080, 700, 443), (1047, 726, 450), (1060, 713, 450), (1055, 719, 449),
    (1077, 691, 455), (1085, 692, 446), (1051, 739, 433), (1049, 691, 483), (1074, 733, 416),
)  # fmt: skip
CHAMELEON = (
    (409, 287, 194), (427, 302, 161), (422, 290, 178), (412, 294, 184), (440, 268, 182),
    (434, 292, 164), (418, 284, 188), (421, 310, 159), (431, 287, 172), (426, 278, 186),
)  # fmt: skip

# The raw files of Planetoid are pickles, so that only the published files may be opened.
PLANETOID_SHA256 = {
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
}


def load(
    name: str, *, split: str = "", index: int = 0, data_dir: str | Path | None = None, normalized: bool = True
) -> Data:
    """Loads a graph with features, targets and the masks of a split.

    Raw files are searched in the data folder, which is never written to, then among earlier downloads, and downloaded
    otherwise. Parsed graphs are cached (``TORCH_GOAT_CACHE``).

    Args:
        name: A key of ``DATASETS``.
        split: The split protocol; empty for the dataset's default.
        index: The index of a generated graph, or of a split of a real one.
        data_dir: The data folder; defaults to ``TORCH_GOAT_DATA``.
        normalized: Whether to normalize features if the protocol does so.

    Returns:
        A graph with ``x``, ``edge_index``, ``y``, ``train_mask``, ``val_mask`` and ``test_mask``. ``y`` ``[N]`` is the
        class, with the attribute ``num_classes``, or a real number.
    """
    if name not in DATASETS:
        raise SettingsError(f"there is no dataset {name!r}{nearest(str(name), DATASETS)}")
    return DATASETS[name].load(split, index, data_dir, normalized=normalized)


def _generated(
    name: str, make: Callable[[int], Data], counts: tuple[int, float, int, int], labelled: int, split: str, note: str
) -> Dataset:
    nodes, edges, features, classes = counts
    protocols = {split: Split((labelled * 6 // 10, labelled * 2 // 10, labelled * 2 // 10), count=10)}
    more: dict[str, Any] = {"protocols": protocols, "note": f"Generated. {note}", "make": make}
    return Generated(name, nodes, round(edges), features, classes, edge_columns=round(2 * edges), **more)


def _random_graphs(
    name: str, make: Callable[..., Data], nodes: int, probability: float, features: int, classes: int = 0
) -> Dataset:
    counts = nodes, nodes * (nodes - 1) / 2 * probability, features, classes
    made = partial(make, num_nodes=nodes, edge_probability=probability)
    return _generated(name, made, counts, nodes, "paper", "The number of edges is its expected value.")


def _order(task: OrderTask, nodes: int) -> Dataset:
    protocols = {"generated": Split((nodes * 6 // 10, nodes * 2 // 10, nodes * 2 // 10), count=20)}
    note = "Generated. Edges are directed, and their number is its expected value."
    made = partial(order_task, task=task, num_nodes=nodes)
    counts = nodes, 9 * nodes, 8, {"alternations": 12, "median": 2, "run": 13}[task]
    return Generated(f"order-{task}-{nodes}", *counts, protocols=protocols, note=note, make=made)


def _neighborhood(name: str, task: NeighborhoodTask) -> Dataset:
    counts = task.num_nodes, task.num_edges, task.num_features, task.num_classes
    return _generated(name, task.make, counts, task.centers, "generated", "Only some of the nodes are labelled.")


def _shuffled_split(train: float, val: float, sizes: Sizes, normalized: bool = False) -> Split:
    return Split(sizes, count=10, draw=splits.shuffled(train, val), row_normalized=normalized)


def _planetoid(name: str, counts: Counts, protocols: tuple[str, ...], normalized: bool = True, **more: Any) -> Dataset:
    prefix, sizes = f"ind.{name.lower()}.", (20 * counts[-1], 500, 1000)
    public = Split(sizes, draw=splits.given, row_normalized=normalized)
    known = {
        "public": public,
        "paper": public,
        "tuned": Split(sizes, 1, splits.per_class),  # the first of the next ten
        "per-class": Split(sizes, 10, splits.per_class),
    }
    raw = (
        RawFile(f"Planetoid/{name}/raw/{file}", f"{PLANETOID}/{file}", "a part of the graph", sha256)
        for file, sha256 in PLANETOID_SHA256.items()
        if file.startswith(prefix)
    )
    chosen, read = {split: known[split] for split in protocols}, readers.pyg("Planetoid", name)
    return Real(name.lower(), *counts, protocols=chosen, raw=tuple(raw), read=read, **more)


def _npz(kind: str, name: str, counts: Counts, paper: Sizes, tuned: Sizes) -> Dataset:
    file, split_file = (f"{stem}.npz" for stem in NPZ_FILES[name])
    fixed = RawFile(f"splits_60_20_20/{split_file}", f"{TUNED_GNN}/{split_file}", "the 60/20/20 split")
    protocols = {
        "paper": _shuffled_split(0.7, 0.1, paper),
        "tuned": Split(tuned, draw=splits.from_file, files=(fixed,), row_normalized=True),
    }
    raw = RawFile(f"{kind}/{name}/raw/{file}", NPZ + file, "edges, features and labels")
    return Real(name.lower(), *counts, protocols=protocols, raw=(raw,), read=readers.pyg(kind, name))


def _webkb(name: str, nodes: int, edges: int, sizes: Sizes) -> Dataset:
    folder, pages, links = f"WebKB/{name}/raw", "out1_node_feature_label.txt", "out1_graph_edges.txt"
    files = [
        RawFile(f"{folder}/{pages}", f"{WEBKB}/new_data/{name}/{pages}", "features and labels", lines=nodes + 1),
        RawFile(f"{folder}/{links}", f"{WEBKB}/new_data/{name}/{links}", "edges", lines=edges + 1),
    ]
    for index in range(10):
        file = f"{name}_split_0.6_0.2_{index}.npz"
        files.append(RawFile(f"{folder}/{file}", f"{WEBKB}/splits/{file}", f"split {index}"))
    protocols = dict.fromkeys(("geom-gcn", "paper"), Split(sizes, count=10, draw=splits.given))
    read, note = readers.pyg("WebKB", name), "Links keep their direction."
    return Real(name, nodes, edges, 1703, 5, protocols=protocols, note=note, raw=tuple(files), read=read)


def _platonov(file: str, counts: Counts, sizes: tuple[Sizes, ...], judged_by: str = "") -> Dataset:
    nodes, edges, features, classes = counts
    raw = RawFile(f"Heterophilous/{file}/raw/{file}.npz", f"{HETEROPHILOUS}/{file}.npz", "the graph and its ten splits")
    protocols = {"platonov": Split(sizes[0], count=10, draw=splits.given, others=sizes[1:])}
    more: dict[str, Any] = {"protocols": protocols, "raw": (raw,), "read": readers.heterophilous(file)}
    more |= {"note": "The sizes of the splits differ; they are those of the first." if sizes[1:] else ""}
    name = file.replace("_", "-")
    return Real(name, nodes, edges, features, classes, edge_columns=2 * edges, judged_by=judged_by, **more)


def _disease(name: str, nodes: int, features: int, split: Split, note: str = "") -> Dataset:
    path, url, edges = f"Disease/{name}/{name}", f"{HGCN}/{name}/{name}", nodes - 1
    raw = (
        RawFile(f"{path}.feats.npz", f"{url}.feats.npz", "features"),
        RawFile(f"{path}.labels.npy", f"{url}.labels.npy", "labels"),
        RawFile(f"{path}.edges.csv", f"{url}.edges.csv", "edges", lines=edges),
    )
    more: dict[str, Any] = {"protocols": {"paper": split}, "note": note, "raw": raw, "read": readers.disease(name)}
    return Real(name.replace("_", "-"), nodes, edges, features, 2, edge_columns=2 * edges, **more)


def _arxiv(name: str, features: int, read: Reader, files: dict[str, str], note: str) -> Dataset:
    protocols = dict.fromkeys(("public", "paper"), Split((90941, 29799, 48603), draw=splits.given))
    files = files | {
        "raw/node-label.csv.gz": "labels",
        "raw/edge.csv.gz": "edges",
        "split/time/train.csv.gz": "training nodes",
        "split/time/valid.csv.gz": "validation nodes",
        "split/time/test.csv.gz": "test nodes",
    }
    raw = (RawFile(f"ogbn_arxiv/{path}", OGB, holds, member=f"arxiv/{path}") for path, holds in files.items())
    more: dict[str, Any] = {"protocols": protocols, "note": note, "raw": tuple(raw), "read": read}
    return Real(name, 169343, 1166243, features, 40, edge_columns=2315598, **more)


_ALL: list[Dataset] = [
    _random_graphs("top2", top2, 1000, 0.01, features=1, classes=2),
    _random_graphs("betweenness-100", betweenness, 100, 0.09, features=100),
    _random_graphs("betweenness-1000", betweenness, 1000, 0.01, features=1000),
    _random_graphs("effective-size-100", effective_size, 100, 0.09, features=100),
    _random_graphs("effective-size-1000", effective_size, 1000, 0.01, features=1000),
    Generated(
        "disease-sim",
        *(1044, 1043, 10, 2),
        edge_columns=2086,
        protocols={"paper": Split((312, 105, 627), count=10)},
        note="Generated, of the same size as disease-nc: never report it as Disease.",
        make=disease_sim,
    ),
    _planetoid(
        "Cora",
        (2708, 10556, 1433, 7),
        ("public", "tuned", "per-class"),
        elsewhere={"paper": "cora-content"},
        note="The paper's split of Cora is that of cora-content.",
    ),
    _planetoid("CiteSeer", (3327, 9104, 3703, 6), ("public", "paper", "tuned", "per-class")),
    _planetoid("PubMed", (19717, 88648, 500, 3), ("public",), normalized=False),
    _npz("Amazon", "Computers", (13752, 491722, 767, 10), paper=(9625, 1376, 2751), tuned=(8251, 2750, 2751)),
    _npz("Amazon", "Photo", (7650, 238162, 745, 8), paper=(5354, 765, 1531), tuned=(4590, 1530, 1530)),
    _npz("Coauthor", "CS", (18333, 163788, 6805, 15), paper=(12832, 1834, 3667), tuned=(10999, 3666, 3668)),
    _npz("Coauthor", "Physics", (34493, 495924, 8415, 5), paper=(24144, 3450, 6899), tuned=(20695, 6898, 6900)),
    Real(
        "lastfm-asia",
        *(7624, 27806, 128, 18),
        edge_columns=55612,
        protocols={"paper": _shuffled_split(0.6, 0.2, (4574, 1525, 1525))},
        raw=(RawFile("LastFMAsia/raw/lastfm_asia.npz", LASTFM, "features, edges and labels"),),
        read=readers.pyg("LastFMAsia", symmetric=True),
    ),
    _webkb("cornell", 183, 298, (87, 59, 37)),
    _webkb("texas", 183, 325, (87, 59, 37)),
    _webkb("wisconsin", 251, 515, (120, 80, 51)),
    _platonov("minesweeper", (10000, 39402, 7, 2), ((5000, 2500, 2500),), "roc_auc"),
    _platonov("tolokers", (11758, 519000, 10, 2), ((5879, 2939, 2940),), "roc_auc"),
    _platonov("squirrel_filtered", (2223, 46998, 2089, 5), SQUIRREL),
    _platonov("chameleon_filtered", (890, 8854, 2325, 5), CHAMELEON),
    _arxiv(
        "ogbn-arxiv",
        128,
        readers.ogbn_arxiv,
        {"raw/node-feat.csv.gz": "features"},
        note="Citations are counted once and loaded as an edge in both directions, as is usual for training.",
    ),
    _arxiv(
        "arxiv-structure",
        4,
        readers.arxiv_structure,
        {},
        note="The graph of ogbn-arxiv with structural features only: never report it as ogbn-arxiv.",
    ),
    _disease("disease_nc", 1044, 1000, _shuffled_split(0.3, 0.1, (312, 105, 627), normalized=True)),
    _disease(
        "disease_lp",
        2665,
        11,
        _shuffled_split(0.3, 0.1, (799, 267, 1599)),
        note="Another, larger tree: never report it as Disease. Its features have both signs and are not normalized.",
    ),
    Real(
        "cora-content",
        *(2708, 5429, 1433, 7),
        edge_columns=10556,
        protocols={
            "paper": Split(
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
    *(_order(task, nodes) for task in get_args(OrderTask) for nodes in (8000, 20000)),
    *(_neighborhood(name, task) for name, task in NEIGHBORHOOD_TASKS.items()),
]

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}
"""All datasets by name."""
