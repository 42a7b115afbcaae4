import re

import pytest
import torch

from torch_goat.data.datasets import DATASETS, DataError, betweenness, disease_sim, effective_size, load, top2
from torch_goat.data.datasets.dataset import Generated, Real
from torch_goat.settings import SettingsError

# The paper's table of datasets (nodes, features, classes, training, validation and test nodes), with the true numbers
# of classes of CS and Physics, which the table has wrong.
PAPER = {
    "cora-content": (2708, 1433, 7, (140, 300, 1000)),
    "citeseer": (3327, 3703, 6, (120, 500, 1000)),
    "disease-nc": (1044, 1000, 2, (312, 105, 627)),
    "lastfm-asia": (7624, 128, 18, (4574, 1525, 1525)),
    "computers": (13752, 767, 10, (9625, 1376, 2751)),
    "photo": (7650, 745, 8, (5354, 765, 1531)),
    "cs": (18333, 6805, 15, (12832, 1834, 3667)),
    "physics": (34493, 8415, 5, (24144, 3450, 6899)),
}


@pytest.mark.parametrize("name", PAPER)
def test_says_what_the_paper_says(name: str) -> None:
    dataset = DATASETS[name]
    assert (dataset.nodes, dataset.features, dataset.classes, dataset.protocols["paper"].sizes) == PAPER[name]


# As the data's authors count them: directed after PyG's parsers, citations, undirected edges of a tree or of friends.
EDGES = {
    "cora": 10556,
    "citeseer": 9104,
    "pubmed": 88648,
    "computers": 491722,
    "photo": 238162,
    "cs": 163788,
    "physics": 495924,
    "cora-content": 5429,
    "disease-nc": 1043,
    "disease-sim": 1043,
    "disease-lp": 2664,
    "lastfm-asia": 27806,
    "ogbn-arxiv": 1166243,
    "arxiv-structure": 1166243,
}


def test_edges() -> None:
    assert {name: DATASETS[name].edges for name in EDGES} == EDGES


@pytest.mark.parametrize("name", DATASETS)
def test_an_entry_is_consistent(name: str) -> None:
    dataset = DATASETS[name]
    assert dataset.name == name
    for split in dataset.protocols.values():
        assert sum(split.sizes) <= dataset.nodes
    assert dataset.default_split in dataset.splits
    assert dataset.task == ("regression" if name.startswith(("betweenness", "effective")) else "classification")
    for file in dataset.raw if isinstance(dataset, Real) else ():
        assert re.fullmatch(r"https://[\w.-]+/\S+", file.url)
    assert dataset.available() == isinstance(dataset, Generated)


MAKERS = {
    "top2": lambda index: top2(index),
    "betweenness-100": lambda index: betweenness(index, 100, 0.09),
    "betweenness-1000": lambda index: betweenness(index, 1000, 0.01),
    "effective-size-100": lambda index: effective_size(index, 100, 0.09),
    "effective-size-1000": lambda index: effective_size(index, 1000, 0.01),
    "disease-sim": lambda index: disease_sim(index),
}


@pytest.mark.parametrize("name", MAKERS)
def test_generated_graphs(name: str) -> None:
    dataset = DATASETS[name]
    assert dataset.splits == {"paper": 10}
    data, expected = load(name, index=9), MAKERS[name](9)
    assert torch.equal(data.x, expected.x)
    assert torch.equal(data.edge_index, expected.edge_index)
    assert torch.equal(data.y, expected.y)
    assert torch.equal(data.test_mask, expected.test_mask)
    assert data.x.shape == (dataset.nodes, dataset.features)
    assert (
        tuple(int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test")) == dataset.protocols["paper"].sizes
    )
    assert abs(data.num_edges - dataset.edge_columns) <= 10 * dataset.edge_columns**0.5 * (name != "disease-sim")
    if dataset.classes:
        assert data.num_classes == dataset.classes == int(data.y.max()) + 1
    else:
        assert (float(data.y.min()), float(data.y.max())) == (0, 1)


@pytest.mark.parametrize("index", range(10))
def test_top2_is_balanced(index: int) -> None:
    assert abs(float(load("top2", index=index).y.float().mean()) - 0.5) <= 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "citeser"}, "there is no dataset 'citeser'; did you mean 'citeseer'?"),
        ({"name": "top2", "index": 10}, "index must be between 0 and 9 for the split 'paper' of top2, got 10."),
        ({"name": "top2", "split": "papers"}, "top2 has no split 'papers'; did you mean 'paper'?"),
        ({"name": "pubmed", "index": 1}, "index must be 0 for the split 'public' of pubmed, got 1."),
        ({"name": "cora", "split": "paper"}, "cora has no split 'paper': it is defined on 'cora-content'."),
        ({"name": "cora", "split": "zzz"}, "cora has no split 'zzz'; known are per-class, public, tuned."),
    ],
)
def test_what_is_not_there(arguments: dict, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", [name for name, dataset in DATASETS.items() if isinstance(dataset, Real)])
def test_missing_files_without_a_network(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(url: str, timeout: float) -> None:
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    folder = tmp_path / "data"
    folder.mkdir()
    dataset = DATASETS[name]
    with pytest.raises(DataError, match=r"no network") as caught:
        load(name, data_dir=folder)
    for part in (f"{name} needs {dataset.files[0]}", str(folder / dataset.files[0]), dataset.raw[0].url):
        assert part in str(caught.value)
    assert not list(folder.iterdir())
