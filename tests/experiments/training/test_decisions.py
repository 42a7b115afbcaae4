import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.special import softmax
from sklearn.metrics import log_loss, precision_score, recall_score

from tests.data.tables.files import write
from tests.experiments.training.graphs import tiny
from torch_goat.data.tables import load_tables
from torch_goat.experiments import Run, TrainingOptions, fit, predict, train
from torch_goat.experiments.models import ModelOptions, Network
from torch_goat.experiments.own_graph import override, table_experiment
from torch_goat.experiments.training.decisions import (
    ERRORS,
    ThresholdRule,
    choose_threshold,
    decide,
    fit_temperature,
    measure_calibration,
)
from torch_goat.settings import SettingsError


def scores(
    nodes: int, classes: int, factor: float, generator: torch.Generator, spread: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and classes of nodes; the factor is the temperature that would make them exact."""
    out = spread * torch.randn(nodes, classes, generator=generator, dtype=torch.double)
    return factor * out, torch.multinomial(out.softmax(dim=-1), 1, generator=generator).view(-1)


def disagreement(out: np.ndarray, y: np.ndarray, temperature: float) -> float:
    """By how many standard errors the scores of the classes differ from what the probabilities predict."""
    shares = softmax(out / temperature, axis=1)
    mean = (shares * out).sum(axis=1)
    variance = (shares * out**2).sum(axis=1) - mean**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return float((out[np.arange(len(y)), y] - mean).sum() / np.sqrt(variance.sum().clip(min=0)))


@pytest.mark.parametrize(("classes", "factor"), [(2, 5.0), (2, 0.2), (4, 3.0)])
def test_wrong_probabilities_are_mended_until_the_nodes_agree_with_them(classes: int, factor: float) -> None:
    out, y = scores(400, classes, factor, torch.Generator().manual_seed(classes))

    def loss(temperature: float) -> float:
        return float(log_loss(y, (out / temperature).softmax(dim=-1), labels=range(classes)))

    def left(log_temperature: float) -> float:
        return abs(disagreement(out.numpy(), y.numpy(), math.exp(log_temperature))) - ERRORS

    best = minimize_scalar(lambda u: loss(math.exp(u)), bounds=(-4, 4), method="bounded", options={"xatol": 1e-10}).x
    temperature = fit_temperature(out.float(), y)
    assert temperature == pytest.approx(math.exp(brentq(left, 0, best)), rel=1e-4)
    assert loss(temperature) < loss(math.exp(best)) + 0.01  # nearly as good as the best one for these nodes
    found = measure_calibration(out, y, temperature)
    assert found["log_loss_before"] == pytest.approx(loss(1))
    assert found["log_loss_after"] == pytest.approx(loss(temperature))
    assert found["error_after"] < found["error_before"]


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.7])
def test_many_nodes_give_the_temperature_that_makes_probabilities_exact(factor: float) -> None:
    out, y = scores(20_000, 3, factor, torch.Generator().manual_seed(0))
    assert fit_temperature(out, y) == pytest.approx(factor, rel=0.06)


@pytest.mark.parametrize("nodes", [10, 20, 50, 300])
def test_a_temperature_from_few_nodes_does_not_harm_others(nodes: int) -> None:
    generator = torch.Generator().manual_seed(nodes)

    def harm(factor: float) -> np.ndarray:
        """What the temperature from a few nodes adds to the log loss of other nodes, in 40 draws."""
        found = []
        for _ in range(40):
            out, y = scores(nodes + 1000, 2, factor, generator, spread=2.0)
            after = measure_calibration(out[nodes:], y[nodes:], fit_temperature(out[:nodes], y[:nodes]))
            found.append(after["log_loss_after"] - after["log_loss_before"])
        return np.array(found)

    exact = harm(1.0)  # nothing to gain
    assert np.mean(exact) < 0.001
    assert max(exact) < 0.05
    assert np.mean(exact != 0) < 0.15  # almost always unchanged
    under, over = harm(0.5), harm(2.0)
    assert np.mean(over) < -0.01
    assert max(np.mean(under > 0), np.mean(over > 0)) < 0.05
    assert nodes < 50 or np.mean(under) < -0.005


def test_few_nodes_leave_the_probabilities_unchanged_unless_these_are_clearly_wrong() -> None:
    out, y = torch.tensor([[2.0, 1.0], [0.0, 5.0]]), torch.tensor([0, 1])
    assert fit_temperature(out, y) == 1.0  # all are right: for them alone, no temperature would be low enough
    assert fit_temperature(out.repeat(50, 1), y.repeat(50)) < 0.5  # so many that were expected to be wrong are not
    assert fit_temperature(out, 1 - y) > 2  # a node is wrong that was nearly certain
    assert fit_temperature(torch.zeros(9, 2), torch.tensor([0, 1, 1] * 3)) == 1.0
    assert fit_temperature(torch.tensor([[math.inf, 0.0], [1.0, 0.0]]), y) == 1.0


@given(st.lists(st.tuples(st.floats(-40, 40), st.floats(-40, 40), st.booleans()), min_size=1, max_size=30))
def test_a_temperature_never_worsens_the_log_loss_of_its_nodes(cases: list[tuple[float, float, bool]]) -> None:
    out = torch.tensor([one[:2] for one in cases], dtype=torch.double)
    y = torch.tensor([int(one[2]) for one in cases])
    temperature = fit_temperature(out, y)
    assert 0.01 <= temperature <= 100 + 1e-9
    found = measure_calibration(out, y, temperature)
    assert found["log_loss_after"] <= found["log_loss_before"] * (1 + 1e-9) + 1e-12
    change = abs(disagreement(out.numpy(), y.numpy(), 1.0)) - ERRORS
    assert abs(change) < 1e-6 or (temperature != 1) == (change > 0)


probabilities = st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=2, max_size=25)


@given(probabilities, st.sampled_from([0.5, 0.75, 0.9, 1.0]))
def test_a_threshold_for_a_precision_has_the_largest_recall(cases: list[tuple[int, bool]], wanted: float) -> None:
    positive, y = torch.tensor([p / 8 for p, _ in cases]).double(), torch.tensor([int(true) for _, true in cases])
    if not y.any():
        y[0] = 1
    threshold = choose_threshold(ThresholdRule("precision", (wanted,)), positive, y)

    def quality(threshold: float) -> tuple[float, float]:
        guess = positive >= threshold
        return precision_score(y, guess, zero_division=0), recall_score(y, guess)

    precision, recall = quality(threshold)
    others = [quality(one) for one in positive.tolist()]
    enough = [one for one in others if one[0] >= wanted]
    if enough:
        assert precision >= wanted
        assert recall == pytest.approx(max(one[1] for one in enough))
    else:  # as precise as possible
        assert precision == pytest.approx(max(one[0] for one in others))


@given(probabilities, st.sampled_from([(5.0, 1.0), (1.0, 1.0), (1.0, 20.0)]))
def test_a_threshold_for_costs_has_the_lowest_cost(cases: list[tuple[int, bool]], costs: tuple[float, float]) -> None:
    positive, y = torch.tensor([(p + 0.5) / 9 for p, _ in cases]).double(), torch.tensor([int(t) for _, t in cases])

    def cost(threshold: float) -> float:
        guess = (positive >= threshold).long()
        return costs[0] * int((guess < y).sum()) + costs[1] * int((guess > y).sum())

    threshold = choose_threshold(ThresholdRule("cost", costs), positive, y)
    assert cost(threshold) == pytest.approx(min(cost(one) for one in np.linspace(0, 1, 200)))


@pytest.mark.parametrize("text", ["", "x", "1", "-0.1", "precision", "precision=2", "recall=0.9", "cost=5", "cost=0:1"])
def test_other_rules_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="threshold must be a probability such as"):
        TrainingOptions(threshold=text)


def test_a_threshold_needs_two_classes() -> None:
    for data, what in ((tiny(regression=True), "real numbers"), (tiny(), "3 classes")):
        with pytest.raises(SettingsError, match=f"needs a target with two classes, but it has {what}; leave it out"):
            fit(torch.nn.Identity(), data, TrainingOptions(threshold="cost=5:1"), device="cpu")


def test_a_run_predicts_with_its_temperature_and_threshold(tmp_path: Path) -> None:
    tables = write(tmp_path)
    graph = load_tables(tables)
    experiment = override(table_experiment(tables, graph, "gcn"), ["epochs=3", 'threshold="cost=30:1"'])
    result = train(experiment, tmp_path / "run", graph=graph, device="cpu")
    run = Run(tmp_path / "run")
    assert run.result.to_json() == result.to_json()  # a precision without positives is not equal to itself
    found = predict(run, tables.nodes, tables.edges)
    with torch.no_grad():
        out = run.network.on(graph.data).double()
    assert result.temperature is not None
    assert result.threshold is not None
    assert torch.allclose(found.probabilities, (out / result.temperature).softmax(dim=-1))
    assert found.values == tuple("yes" if share >= result.threshold else "no" for share in found.probabilities[:, 1])
    assert any("'yes' is predicted if its probability is at least" in note for note in found.notes)
    # The same as from the scores of the splits.
    parts = {one: (out[graph.data[f"{one}_mask"]], graph.data.y[graph.data[f"{one}_mask"]]) for one in ("val", "test")}
    decided = decide(parts, "cost=30:1")
    assert decided.decision.threshold == pytest.approx(result.threshold, rel=1e-4)
    assert result.at_threshold is not None
    truth = np.array(found.truth)[graph.data.test_mask] == "yes"
    guess = np.array(found.values)[graph.data.test_mask] == "yes"
    assert result.at_threshold["test"]["recall"] == pytest.approx(recall_score(truth, guess))
    graph_of_run = run.graph()
    assert [graph_of_run.classes[one] for one in graph_of_run.decision.classes(out)] == list(found.values)


def test_a_result_in_memory_is_calibrated_and_a_regression_is_not() -> None:
    data = tiny()
    network = Network(ModelOptions("gcn", hidden_channels=4), data.num_features, 3)
    result = fit(network, data, TrainingOptions(epochs=2), device="cpu", seed=0)
    assert result.calibration is not None
    assert set(result.calibration) == set(result.metrics)
    assert (result.threshold, result.at_threshold) == (None, None)
    data = tiny(regression=True)
    network = Network(ModelOptions("gcn", hidden_channels=4), data.num_features, 1)
    result = fit(network, data, TrainingOptions(epochs=2), device="cpu", seed=0)
    assert (result.temperature, result.calibration) == (None, None)
