import base64
import json
import math
import zlib

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from torch_goat.app.explain import Effect, Interaction, features
from torch_goat.app.report import viewer
from torch_goat.data.tables import Column, Schema
from torch_goat.experiments import NamedGraph
from torch_goat.nn import GOATConv, Ordering


class Unpacked:
    """The data of the viewer, decoded with NumPy."""

    def __init__(self, packed: dict) -> None:
        self.about = packed
        content = zlib.decompress(base64.b64decode(packed["packed"]))
        self.arrays = {
            name: np.frombuffer(content, kind, count, start) for name, (kind, start, count) in packed["arrays"].items()
        }

    def planes(self, name: str) -> np.ndarray:
        parts = [
            self.arrays[f"{name}.{byte}"].astype(int) << 8 * byte
            for byte in range(4)
            if f"{name}.{byte}" in self.arrays
        ]
        return sum(parts)

    def text(self, name: str) -> list:
        return json.loads(self.arrays[name].tobytes())

    def neighbors(self, layer: int, node: int) -> np.ndarray:
        end = np.cumsum(self.arrays[f"list{layer}.count"])[node]
        return np.cumsum(self.planes(f"list{layer}.step")[end - self.arrays[f"list{layer}.count"][node] : end])

    def order(self, layer: int, head: int, node: int) -> tuple[list[int], np.ndarray]:
        counts = self.arrays[f"order{layer}.count"]
        end = np.cumsum(counts)[node]
        places = self.planes(f"order{layer}.{head}")[end - counts[node] : end]
        level = np.cumsum(self.arrays[f"weight{layer}.{head}"].astype(int)) % 256
        largest = self.arrays[f"largest{layer}.{head}"][(counts[:node] > 0).sum()]
        weights = level[end - counts[node] : end] / 255 * math.exp(-int(largest) / self.about["scale"])
        return self.neighbors(layer, node)[places].tolist(), weights


def case(nodes: int = 320, **options) -> tuple[NamedGraph, torch.Tensor, Ordering]:
    edge_index = torch.cat(
        [torch.randint(nodes, (2, 600)), torch.stack([torch.arange(nodes), torch.zeros(nodes).long()])], 1
    )
    data = Data(x=torch.randn(nodes, 4), edge_index=edge_index, y=torch.randint(3, (nodes,)))
    for number, split in enumerate(("train", "val", "test")):
        data[f"{split}_mask"] = torch.arange(nodes) % 4 == number
    out, ordering = GOATConv(4, 4, 2, backend="torch", **options)(data.x, edge_index, return_ordering=True)
    return NamedGraph(data, tuple(map(str, range(nodes))), ("a", "b", "c")), out.detach(), ordering


@pytest.mark.parametrize("options", [{}, {"max_neighbors": 3, "neighbor_selection": "top"}, {"max_neighbors": 2}])
def test_orders_are_exact_and_coefficients_close(options: dict) -> None:
    named, out, ordering = case(**options)
    read = Unpacked(viewer.viewer_data(named, out, [ordering], {}))
    for node in (0, 1, 17, 319):
        for head in range(2):
            sources, weights = read.order(0, head, node)
            assert sources == ordering.neighbors(node, head).tolist()
            expected = ordering.weights(node, head).numpy()
            assert np.abs(weights - expected).max() < expected.max() * (1 / 509 + 1e-3)


def test_nodes_are_described() -> None:
    named, out, ordering = case()
    effects = {5: [Effect(3, 0.5, 0.1), Effect(2, -0.25, 0.2)], 2: [Effect(9, 1.0, 0.3)]}
    read = Unpacked(viewer.viewer_data(named, out, [ordering], effects))
    assert "names" not in read.arrays  # they are the numbers
    assert read.text("classes") == ["a", "b", "c"]
    assert read.arrays["split"][:5].tolist() == [1, 2, 3, 0, 1]
    assert read.arrays["predicted"].tolist() == out.argmax(-1).tolist()
    assert read.arrays["truth"].tolist() == named.data.y.tolist()
    assert read.arrays["chosen"].tolist() == [2, 5]
    assert read.arrays["effect.ptr"].tolist() == [0, 1, 3]
    assert read.arrays["effect.source"].tolist() == [9, 3, 2]
    assert read.arrays["effect.value"].tolist() == [1.0, 0.5, -0.25]


def test_numbers_that_vary_little_next_to_their_mean_are_told_apart() -> None:
    named, out, ordering = case()
    standard = out[:, :1].double()
    named.data.y = standard[:, 0]
    for mean in (0.0, 1e6, 1e12):
        number = named._replace(classes=(), target_mean=mean, target_scale=3.0)
        read = Unpacked(viewer.viewer_data(number, out, [ordering], {}))
        for values in (read.arrays["truth"], read.arrays["predicted"]):
            shown = [float(f"{value:.{read.about['digits']}g}") for value in values.astype(float)]
            np.testing.assert_allclose(shown, mean + 3 * standard[:, 0], atol=0.005 * 3, rtol=0)


def test_values_are_those_of_the_tables() -> None:
    """The encoding of each kind of column is undone; missing values and unknown categories are NaN."""
    named, out, ordering = case(nodes=4)
    columns = (
        Column("land", "number", mean=10.0, scale=2.0, missing=True),
        Column("craft", "category", categories=("farmer", "smith")),
        Column("known", "flag", mean=0.3),
        Column("none", "category"),
    )
    encoded = [[1.0, 0, 0, 1, 1], [-2.0, 0, 1, 0, 0], [0.0, 1, 0, 0, 1], [0.5, 0, 0, 1, 0]]
    named.data.x = torch.tensor(encoded)
    schema = Schema("y", "classification", "id", columns, "s", "t", classes=("a", "b", "c"))
    pairs = {2: [Interaction(0, 3, -0.5)]}
    chosen = features(named.data, schema)
    read = Unpacked(viewer.viewer_data(named, out, [ordering], {1: [], 2: []}, pairs, chosen))
    assert [one["name"] for one in read.text("columns")] == ["land", "craft", "known", "none"]
    assert read.text("columns")[1]["categories"] == ["farmer", "smith"]
    np.testing.assert_allclose(read.arrays["value0"], [12, 6, np.nan, 11])
    np.testing.assert_allclose(read.arrays["value1"], [1, 0, np.nan, 1])
    np.testing.assert_allclose(read.arrays["value2"], [1, 0, 1, 0])
    assert np.isnan(read.arrays["value3"]).all()
    assert read.arrays["pair.ptr"].tolist() == [0, 0, 1]
    assert [read.arrays[f"pair.{key}"].tolist() for key in ("first", "second", "value")] == [[0], [3], [-0.5]]


def test_without_goat_layers_neighbors_are_listed() -> None:
    named, out, _ = case()
    read = Unpacked(viewer.viewer_data(named, out, [], {}))
    sources = named.data.edge_index[0, named.data.edge_index[1] == 17].sort().values
    assert read.neighbors(0, 17).tolist() == sources.tolist()
    assert read.about["heads"] == []


def test_unusual_names_are_preserved() -> None:
    named, out, ordering = case()
    strange = named._replace(ids=tuple(f"</script><b>{node}\u2028\ud800" for node in named.ids))
    packed = viewer.viewer_data(strange, out, [ordering], {})
    assert set(packed["packed"]) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
    assert Unpacked(packed).text("names")[3] == "</script><b>3\u2028?"


def test_beyond_the_limit_only_nodes_with_contributions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    named, out, ordering = case()
    whole = viewer.viewer_data(named, out, [ordering], {})
    limit = int(0.7 * len(whole["packed"]))
    monkeypatch.setattr(viewer, "LIMIT", limit)
    some = viewer.viewer_data(named, out, [ordering], {17: [], 319: []})
    assert len(some["packed"]) <= limit
    assert 2 < some["included"] < 320
    read = Unpacked(some)
    assert (read.arrays["order0.count"] > 0).sum() == some["included"]
    for node in (17, 319):
        assert read.order(0, 1, node)[0] == ordering.neighbors(node, 1).tolist()
    monkeypatch.setattr(viewer, "LIMIT", 1)  # less than the names of the nodes alone
    least = viewer.viewer_data(named, out, [ordering], {17: [], 319: []})
    assert least["included"] == 2
    assert Unpacked(least).order(0, 1, 17)[0] == ordering.neighbors(17, 1).tolist()
    assert viewer.viewer_data(named, out, [ordering], {})["included"] == 0
