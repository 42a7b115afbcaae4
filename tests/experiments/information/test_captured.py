import math
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
import torch

from torch_goat.data.datasets import NeighborhoodXOR, load
from torch_goat.experiments import ModelOptions, TrainingOptions, fit
from torch_goat.experiments.information import captured_information, predicted_classes
from torch_goat.experiments.information.captured import MODELS, PARAMETERS, fitted
from torch_goat.experiments.information.charts import bar_chart
from torch_goat.experiments.models import Network, degree_histogram


def test_bits_of_predictions() -> None:
    label = torch.arange(400) % 4
    assert captured_information(label, label, corrected=False) == pytest.approx(2)
    assert captured_information(3 - label, label, corrected=False) == pytest.approx(2)  # wrong, but informative
    assert captured_information(label // 2, label, corrected=False) == pytest.approx(1)
    assert captured_information(torch.zeros(400), label) == pytest.approx(0)
    bits = [captured_information(torch.randint(4, (400,)), label) for _ in range(50)]
    assert sum(bits) / 50 == pytest.approx(0, abs=0.005)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="got 3 and 2"):
        captured_information([0, 1, 1], [0, 1])
    with pytest.raises(ValueError, match="the labels of 2 nodes are unknown"):
        captured_information([0, 1, 1], [0, -1, -1])
    with pytest.raises(ValueError, match="exceed 10 parameters"):
        fitted("gcn", 2, load("xor"), budget=10)


def test_a_trained_sum_captures_xor_and_a_network_without_neighbours_nothing() -> None:
    """A sum followed by an MLP solves XOR as well as an RNN does, as docs/information.md says about GIN."""
    data = NeighborhoodXOR(centers=200).make()
    data.num_classes = 2
    bits = {}
    for name in ("gin", "mlp"):
        options = ModelOptions(
            name=name, input_channels=16, last_channels=16, num_layers=1, activation="relu", dropout=0
        )
        network = Network(options, data.num_features, 2)
        fit(network, data, TrainingOptions(epochs=150, learning_rate=0.02, patience=0), seed=0, device="cpu")
        bits[name] = captured_information(predicted_classes(network, data)[data.test_mask], data.y[data.test_mask])
    assert bits["gin"] > 0.8
    assert bits["mlp"] < 0.2


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_uses_the_budget(model: str, layers: int) -> None:
    data = load("synergy-50")
    options = fitted(model, layers, data)
    degree = degree_histogram(data.edge_index, data.num_nodes)
    network = Network(options, data.num_features, data.num_classes, degree=degree)
    assert 0.6 * PARAMETERS < sum(math.prod(weight.shape) for weight in network.parameters()) <= PARAMETERS
    assert options.num_layers == layers
    assert len(set(options.kinds)) == 1


@pytest.mark.parametrize(("ending", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_chart_formats(tmp_path: Path, ending: str, start: bytes) -> None:
    path = tmp_path / f"chart{ending}"
    parts = {"synergy": (0.5, 0.4, 0.6), "total": (-0.01, -0.02, 0.0)}
    with mpl.rc_context({"svg.fonttype": "none"}):
        bar_chart(path, "the title", parts, {"goat-lstm": 0.3})
    content = path.read_bytes()
    assert content.startswith(start)
    if ending == ".svg":
        for text in ("the title", "synergy", "goat-lstm", "bits", "captured by"):
            assert text in content.decode()


def test_a_chart_that_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"must end in \.png, \.svg or \.pdf"):
        bar_chart(tmp_path / "chart.gif", "title", {}, {})
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"charts need matplotlib: pip install 'torch-goat\[report\]'\."):
        bar_chart(tmp_path / "chart.png", "title", {}, {})
