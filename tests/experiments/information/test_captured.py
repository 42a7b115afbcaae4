import math

import pytest
import torch

from torch_goat.data.datasets import NeighborhoodXOR, load
from torch_goat.experiments import Experiment, TrainingOptions, fit, train
from torch_goat.experiments.information import captured_information, predicted_classes
from torch_goat.experiments.information.captured import load_network
from torch_goat.experiments.information.comparison import LAYERS, MODELS, PARAMETERS, candidates, fitted, parameters
from torch_goat.experiments.models import build, degree_histogram


def test_bits_of_predictions() -> None:
    label = torch.arange(400) % 4
    assert captured_information(label, label, corrected=False) == pytest.approx(2)
    assert captured_information(3 - label, label, corrected=False) == pytest.approx(2)  # wrong, but telling
    assert captured_information(label // 2, label, corrected=False) == pytest.approx(1)
    assert captured_information(torch.zeros(400), label) == pytest.approx(0)
    bits = [captured_information(torch.randint(4, (400,)), label) for _ in range(50)]
    assert sum(bits) / 50 == pytest.approx(0, abs=0.005)


def test_a_label_for_each_prediction() -> None:
    with pytest.raises(ValueError, match="got 3 and 2"):
        captured_information([0, 1, 1], [0, 1])
    with pytest.raises(ValueError, match="the label of 2 nodes is missing"):
        captured_information([0, 1, 1], [0, -1, -1])


def test_a_trained_sum_captures_xor_and_a_network_without_neighbours_nothing() -> None:
    """A sum with a network after it is no worse than an RNN at this: what the page on information says of GIN."""
    data = NeighborhoodXOR(centers=200).make()
    data.num_classes = 2
    bits = {}
    for name in ("gin", "mlp"):
        options = fitted("gin", 1, data)
        options = type(options)(
            name=name, input_channels=16, last_channels=16, num_layers=1, activation="relu", dropout=0
        )
        network = build(options, data.num_features, 2)
        fit(network, data, TrainingOptions(epochs=150, learning_rate=0.02, patience=0), seed=0, device="cpu")
        bits[name] = captured_information(predicted_classes(network, data)[data.test_mask], data.y[data.test_mask])
    assert bits["gin"] > 0.8
    assert bits["mlp"] < 0.2


def test_a_run_is_read_back(tmp_path) -> None:
    data = load("xor")
    options = fitted("gcn", 1, data)
    experiment = Experiment("xor", model=options, training=TrainingOptions(epochs=5, patience=0))
    result = train(experiment, tmp_path, device="cpu")
    predicted = predicted_classes(load_network(experiment, tmp_path, data), data)
    accuracy = float((predicted == data.y)[data.test_mask].float().mean())
    assert accuracy == pytest.approx(result.metrics["test"]["accuracy"])


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_fills_the_budget(model: str, layers: int) -> None:
    data = load("synergy-50")
    options = fitted(model, layers, data)
    count = parameters(options, data)
    assert count <= PARAMETERS
    assert count > 0.6 * PARAMETERS
    assert options.num_layers == layers
    assert len(set(options.kinds)) == 1
    degree = degree_histogram(data.edge_index, data.num_nodes)
    network = build(options, data.num_features, data.num_classes, degree=degree)
    assert sum(math.prod(weight.shape) for weight in network.parameters()) == count


def test_every_model_is_searched_alike() -> None:
    data = load("xor")
    points = {}
    for model in MODELS:
        found = candidates(model, "xor", data)
        points[model] = [(one.model.num_layers, one.training.learning_rate, one.training.epochs) for one in found]
    assert len({tuple(one) for one in points.values()}) == 1


def test_a_budget_that_nothing_fits() -> None:
    with pytest.raises(ValueError, match="do not fit into 10 parameters"):
        fitted("gcn", 2, load("xor"), budget=10)
