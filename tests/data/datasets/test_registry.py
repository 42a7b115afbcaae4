import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args
from unittest.mock import Mock

import pytest
import torch

from torch_goat.data.datasets import (
    DATASETS,
    DataError,
    betweenness,
    disease_sim,
    effective_size,
    load,
    order_task,
    top2,
)
from torch_goat.data.datasets.dataset import Generated, Real
from torch_goat.data.datasets.splits import per_class
from torch_goat.data.datasets.synthetic import OrderTask
from torch_goat.settings import SettingsError

# Nodes, edges as the data's authors count them, columns of edge_index, features and classes, as PyG and the authors
# document them, and the sizes of splits. The "paper" splits are in the paper's table of datasets, which has wrong
# numbers of classes for CS and Physics.
PLANETOID = ("public", "tuned", "per-class")
PUBLISHED = {
    "cora": (2708, 10556, 10556, 1433, 7, dict.fromkeys(PLANETOID, (140, 500, 1000))),
    "citeseer": (3327, 9104, 9104, 3703, 6, dict.fromkeys((*PLANETOID, "paper"), (120, 500, 1000))),
    "pubmed": (19717, 88648, 88648, 500, 3, {"public": (60, 500, 1000)}),
    "computers": (13752, 491722, 491722, 767, 10, {"paper": (9625, 1376, 2751), "tuned": (8251, 2750, 2751)}),
    "photo": (7650, 238162, 238162, 745, 8, {"paper": (5354, 765, 1531), "tuned": (4590, 1530, 1530)}),
    "cs": (18333, 163788, 163788, 6805, 15, {"paper": (12832, 1834, 3667), "tuned": (10999, 3666, 3668)}),
    "physics": (34493, 495924, 495924, 8415, 5, {"paper": (24144, 3450, 6899), "tuned": (20695, 6898, 6900)}),
    "lastfm-asia": (7624, 27806, 2 * 27806, 128, 18, {"paper": (4574, 1525, 1525)}),
    "cornell": (183, 298, 298, 1703, 5, dict.fromkeys(("geom-gcn", "paper"), (87, 59, 37))),
    "texas": (183, 325, 325, 1703, 5, dict.fromkeys(("geom-gcn", "paper"), (87, 59, 37))),
    "wisconsin": (251, 515, 515, 1703, 5, dict.fromkeys(("geom-gcn", "paper"), (120, 80, 51))),
    "minesweeper": (10000, 39402, 78804, 7, 2, {"platonov": (5000, 2500, 2500)}),
    "tolokers": (11758, 519000, 1038000, 10, 2, {"platonov": (5879, 2939, 2940)}),
    "squirrel-filtered": (2223, 46998, 93996, 2089, 5, {"platonov": (1053, 718, 452)}),
    "chameleon-filtered": (890, 8854, 17708, 2325, 5, {"platonov": (409, 287, 194)}),
    "ogbn-arxiv": (169343, 1166243, 2315598, 128, 40, dict.fromkeys(("public", "paper"), (90941, 29799, 48603))),
    "arxiv-structure": (169343, 1166243, 2315598, 4, 40, dict.fromkeys(("public", "paper"), (90941, 29799, 48603))),
    "disease-nc": (1044, 1043, 2 * 1043, 1000, 2, {"paper": (312, 105, 627)}),
    "disease-lp": (2665, 2664, 2 * 2664, 11, 2, {"paper": (799, 267, 1599)}),
    "disease-sim": (1044, 1043, 2 * 1043, 10, 2, {"paper": (312, 105, 627)}),
    "cora-content": (2708, 5429, 10556, 1433, 7, {"paper": (140, 300, 1000)}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_registry_has_the_published_counts(name: str) -> None:
    one = DATASETS[name]
    sizes = {split: protocol.sizes for split, protocol in one.protocols.items()}
    counts = (one.nodes, one.edges, one.edge_columns or one.edges, one.features, one.classes)
    assert (*counts, sizes) == PUBLISHED[name]


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_the_split_of_the_study_is_the_first_of_ten(name: str) -> None:
    tuned, ten = (DATASETS[name].protocols[split] for split in ("tuned", "per-class"))
    assert (tuned.draw, tuned.count, ten.draw, ten.count) == (per_class, 1, per_class, 10)


def test_the_area_under_the_curve_judges_the_two_unbalanced_graphs() -> None:
    assert {name for name, one in DATASETS.items() if one.metric == "roc_auc"} == {"minesweeper", "tolokers"}
    assert (DATASETS["squirrel-filtered"].metric, DATASETS["betweenness-100"].metric) == ("accuracy", "mse")


@pytest.mark.parametrize("name", DATASETS)
def test_an_entry_is_consistent(name: str) -> None:
    dataset = DATASETS[name]
    assert dataset.name == name
    for split in dataset.protocols.values():
        assert all(sum(split.sizes_of(index)) <= dataset.nodes for index in range(split.count))
        assert len(split.others) in (0, split.count - 1)
    assert dataset.default_split in dataset.splits
    assert dataset.task == ("regression" if name.startswith(("betweenness", "effective")) else "classification")
    for file in dataset.raw if isinstance(dataset, Real) else ():
        assert re.fullmatch(r"https://[\w.-]+/\S+", file.url)
        assert len(bytes.fromhex(file.sha256)) == (32 if file.path.startswith("Planetoid/") else 0)  # pickles
    assert dataset.available() == isinstance(dataset, Generated)


@pytest.mark.parametrize(
    ("name", "make", "arguments"),
    [
        ("top2", top2, ()),
        ("betweenness-100", betweenness, (100, 0.09)),
        ("betweenness-1000", betweenness, (1000, 0.01)),
        ("effective-size-100", effective_size, (100, 0.09)),
        ("effective-size-1000", effective_size, (1000, 0.01)),
        ("disease-sim", disease_sim, ()),
        *((f"order-{task}-{n}", order_task, (task, n)) for task in get_args(OrderTask) for n in (8000, 20000)),
    ],
)
def test_generated_graphs(name: str, make: Callable, arguments: tuple) -> None:
    dataset, ordered = DATASETS[name], name.startswith("order")
    assert dataset.splits == ({"generated": 20} if ordered else {"paper": 10})
    data, expected = load(name, index=9), make(9, *arguments)
    assert all(torch.equal(data[key], value) for key, value in expected.to_dict().items())
    assert data.x.shape == (dataset.nodes, dataset.features)
    sizes = tuple(int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test"))
    assert sizes == dataset.protocols[dataset.default_split].sizes
    assert data.is_undirected() is not ordered
    assert not data.has_self_loops()
    columns = dataset.edge_columns or dataset.edges
    variance = 4 * dataset.nodes if ordered else 1.8 * columns * (name != "disease-sim")
    assert abs(data.num_edges - columns) <= 5 * variance**0.5
    if dataset.classes:
        assert data.num_classes == dataset.classes > int(data.y.max())
        assert ordered or data.num_classes == int(data.y.max()) + 1
    else:
        assert (float(data.y.min()), float(data.y.max())) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "citeser"}, "there is no dataset 'citeser'; did you mean 'citeseer'?"),
        ({"name": "top2", "index": 10}, "index must be between 0 and 9 for the split 'paper' of top2, got 10."),
        ({"name": "top2", "index": -1}, "index must be between 0 and 9 for the split 'paper' of top2, got -1."),
        ({"name": "top2", "index": "0"}, "index must be between 0 and 9 for the split 'paper' of top2, got '0'."),
        ({"name": "top2", "index": True}, "index must be between 0 and 9 for the split 'paper' of top2, got True."),
        ({"name": "top2", "split": "papers"}, "top2 has no split 'papers'; did you mean 'paper'?"),
        ({"name": "pubmed", "index": 1}, "index must be 0 for the split 'public' of pubmed, got 1."),
        ({"name": "cora", "split": "paper"}, "cora has no split 'paper': it is defined on 'cora-content'."),
        ({"name": "cora", "split": "zzz"}, "cora has no split 'zzz'; known are per-class, public, tuned."),
    ],
)
def test_unknown_datasets_splits_and_indices(arguments: dict, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", [name for name, dataset in DATASETS.items() if isinstance(dataset, Real)])
def test_missing_files_without_a_network(
    name: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urllib.request.urlopen", Mock(side_effect=OSError("no network")))
    folder = tmp_path / "data"
    folder.mkdir()
    file = DATASETS[name].raw[0]
    for place, searched in ((folder, str(folder)), (None, "a data folder (none is set)")):
        with pytest.raises(DataError, match=r"no network") as caught:
            load(name, data_dir=place)
        message, saved = str(caught.value), (place or cache / "raw") / file.path
        assert message.startswith(f"{name} needs {file.path} ({file.holds}")
        assert f"), which is not in {searched} and could not be downloaded" in message
        assert message.endswith(f"get {file.member or 'it'} from {file.url} and save it as {saved}.")
    assert not list(folder.iterdir())
    assert not [path for path in cache.rglob("*") if path.is_file() and path.name != ".lock"]
