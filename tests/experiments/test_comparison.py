import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.small_runs import Done, result
from torch_goat.data.tables import Tables
from torch_goat.experiments import Experiment, ModelOptions, TrainingOptions, compare_runs
from torch_goat.experiments.comparison import RunGroup, paired_p_value, summarize, unpaired_p_value
from torch_goat.experiments.intervals import wilson_interval


def test_mean_and_sample_standard_deviation_by_hand() -> None:
    # mean (2 + 4 + 9) / 3 = 5; deviations 9 + 1 + 16 = 26, over n - 1 = 2
    assert summarize([2.0, 4.0, 9.0]) == (5.0, pytest.approx(13**0.5), 3)
    assert summarize([7.0]) == (7.0, None, 1)
    assert summarize([95.78, 95.78, 95.78]).std == 0.0  # whose sum is rounded
    with pytest.raises(ValueError, match="empty sequence"):
        summarize([])


@pytest.mark.parametrize(
    ("p_value", "ours", "theirs", "expected"),
    [
        # Differences 1, 2, -3: rank sums of all 8 signs are 0, 1, 2, 3, 3, 4, 5, 6; ours is 3, the mean.
        (paired_p_value, [1.0, 2.0, 0.0], [0.0, 0.0, 3.0], 1.0),
        # All ten in favour: only two of 1024 assignments of signs are as extreme.
        (paired_p_value, [*range(1, 11)], [0.0] * 10, 2 / 1024),
        (paired_p_value, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 3.5, 5.0, 6.6, 8.1, 1e14], 2 / 64),  # one diverged
        (paired_p_value, [1.0], [2.0], None),
        (paired_p_value, [1.0, math.nan], [2.0, 1.0], None),
        (paired_p_value, [1.0, 2.0], [1.0, 2.0], 1.0),
        (paired_p_value, [1.0, 2.0, 3.0], [1.0, 2.0, 9.0], 1.0),
        # Ranks 1, 2 and 3, 4, 5: of the ten ways to choose two of five ranks, those with sums 3 and 9 are as extreme.
        (unpaired_p_value, [1.0, 2.0], [3.0, 4.0, 5.0], 2 / 10),
        # All five above all five: two of the 252 ways.
        (unpaired_p_value, [6, 7, 8, 9, 10], [1, 2, 3, 4, 5], 2 / 252),
        (unpaired_p_value, [1.0], [2.0, 3.0], None),
        (unpaired_p_value, [1.0, 2.0], [math.nan, 1.0], None),
        (unpaired_p_value, [1.0, 1.0], [1.0, 1.0], 1.0),
    ],
)
def test_p_value_by_hand(p_value: Callable, ours: list[float], theirs: list[float], expected: float | None) -> None:
    assert p_value(ours, theirs) == p_value(theirs, ours) == pytest.approx(expected)


def test_p_values_do_not_depend_on_the_unit_of_the_target() -> None:
    ours, theirs = [0.1, 0.4, 0.3, 0.2, 0.5, 0.7], [0.3, 0.6, 0.5, 0.4, 0.7, 0.6]
    for p_value in (paired_p_value, unpaired_p_value):
        for unit in (1e-14, 1e9):
            scaled = ([unit * value for value in values] for values in (ours, theirs))
            assert p_value(*scaled) == pytest.approx(p_value(ours, theirs))


def test_p_values_are_scipys_exact_ones_without_ties() -> None:
    for first, second in ((6, 6), (9, 9), (13, 13), (20, 20), (3, 5), (10, 10), (5, 5)):
        generator = np.random.default_rng(first)
        ours, theirs = generator.normal(0.8, 1, first), generator.normal(0, 1, second)
        expected = stats.mannwhitneyu(ours, theirs, method="exact").pvalue
        assert unpaired_p_value(ours, theirs) == pytest.approx(expected)
        if first == second:
            assert paired_p_value(ours, theirs) == pytest.approx(stats.wilcoxon(ours, theirs, method="exact").pvalue)
    with pytest.raises(ValueError, match="as many values of both models, got 1 and 2"):
        paired_p_value([1.0], [1.0, 2.0])


def test_equal_differences_share_ranks_also_if_rounding_tore_them_apart() -> None:
    # 0.83 - 0.82, 0.81 - 0.80 and 0.47 - 0.46 differ in their last bits. Ranks 2, 2, 2 and 4; three of four in favour.
    ours, theirs = [0.83, 0.81, 0.47, 0.50], [0.82, 0.80, 0.46, 0.53]
    assert len(set(np.subtract(ours, theirs)[:3])) > 1
    ranks = [2, 2, 2, 4]
    sums = [sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign) for signs in product([0, 1], repeat=4)]
    expected = np.mean([abs(total - 5) >= abs(6 - 5) for total in sums])
    assert paired_p_value(ours, theirs) == pytest.approx(expected)


def test_equal_runs_share_ranks_also_if_rounding_tore_them_apart() -> None:
    ours, theirs = [0.1 + 0.2, 0.5, 0.5], [0.3, 0.2, 0.1, 0.5]
    assert ours[0] != theirs[0]
    ranks = [3.5, 6.0, 6.0, 3.5, 2.0, 1.0, 6.0]
    sums = np.array([sum(chosen) for chosen in combinations(ranks, 3)])
    expected = np.mean(np.abs(sums - 12) >= abs(15.5 - 12))  # the mean sum is 3 / 7 of all ranks, 28
    assert unpaired_p_value(ours, theirs) == pytest.approx(expected)


def done(model: str, metrics: dict[str, dict[str, float]], seed: int = 0, index: int = 0, **training: object) -> Done:
    experiment = Experiment(
        "top2", index=index, seed=seed, model=ModelOptions(name=model), training=TrainingOptions(**training)
    )
    return Done(experiment, result(metrics))


def accuracies(model: str, val: list[float], test: list[float], **options: int) -> list[Done]:
    """Repetitions on the splits 0, 1, ... with a seed each."""
    pairs = zip(val, test, strict=True)
    return [
        done(model, {"val": {"accuracy": a}, "test": {"accuracy": b}}, **{"seed": n, "index": n, **options})
        for n, (a, b) in enumerate(pairs)
    ]


def test_groups_by_hand() -> None:
    runs = accuracies("gcn", [0.7, 0.9], [0.6, 0.8]) + accuracies("gat", [0.9, 0.8], [0.9, 0.7])
    first, second = compare_runs(runs).groups
    assert (first.label, first.place, first.values) == ("gat", 1, {(0, 0): 0.9, (1, 1): 0.7})
    assert (first.mean, first.std, first.rank_mean) == pytest.approx((0.8, 0.02**0.5, 0.85))
    assert first.best.experiment.seed == 0
    assert first.summary("val", "accuracy").mean == first.rank_mean
    assert (second.label, second.place, second.best.experiment.seed) == ("gcn", 2, 1)
    for group, difference, other in ((first, 0.1, "gcn"), (second, -0.1, "gat")):
        found = group.comparison
        assert found is not None
        assert (found.other, found.ahead, found.common, found.paired) == (other, 1, 2, True)
        assert found.difference == pytest.approx(difference)
        assert found.p_value == 1.0  # ranks 2 and -1: sums of +-1 +-2 as far from 0 as 1 are all


def test_lower_errors_are_better() -> None:
    runs = [
        done(model, {split: {"mse": value, "r2": 1 - value} for split in ("val", "test")}, seed=seed)
        for model, values in (("gcn", (0.3, 0.5)), ("gat", (0.2, 0.1)))
        for seed, value in enumerate(values)
    ]
    ranking = compare_runs(runs, baselines={"gcn"})
    assert ranking.metric == "mse"
    assert [group.label for group in ranking.groups] == ["gat", "gcn"]
    assert ranking["gat"].best.experiment.seed == 1
    assert ranking["gcn"].comparison is None  # a baseline
    assert (found := ranking["gat"].comparison) is not None
    assert (found.ahead, found.paired) == (2, False)  # seeds on one split are no pairs
    assert found.p_value == pytest.approx(2 / 6)


def test_weighted_classes_are_judged_by_macro_f1() -> None:
    runs = []
    for model, f1, weighted in (("gcn", 0.3, False), ("gat", 0.5, True)):
        metrics = {split: {"accuracy": 0.9 - f1, "macro_f1": f1} for split in ("val", "test")}
        runs.append(done(model, metrics, class_weights=weighted))
    assert compare_runs(runs).metric == "macro_f1"
    assert compare_runs(runs[:1]).metric == "accuracy"
    assert [group.mean for group in compare_runs(runs).groups] == [0.5, 0.3]


def test_numeric_columns_of_tables_are_judged_by_rmse_which_runs_of_earlier_versions_lack() -> None:
    """The root of a mean is not the mean of roots: here the two metrics disagree."""
    errors = {"gcn": [1.0, 49.0], "gat": [16.0, 25.0]}
    tables = Tables("nodes.csv", "age", "edges.csv")
    new = [
        done(model, {split: {"mse": value, "rmse": value**0.5} for split in ("val", "test")}, seed=seed, index=seed)
        for model, values in errors.items()
        for seed, value in enumerate(values)
    ]
    assert compare_runs(new).metric == "mse"  # on a named dataset
    new = [Done(replace(run.experiment, tables=tables), run.result) for run in new]
    found = compare_runs(new)
    assert (found.metric, [(group.label, group.mean) for group in found.groups]) == ("rmse", [("gcn", 4), ("gat", 4.5)])
    old = {split: {"mse": values["mse"]} for split, values in new[0].result.metrics.items()}
    mixed = [Done(new[0].experiment, replace(new[0].result, metrics=old)), *new[1:]]
    assert (compare_runs(mixed).metric, compare_runs(mixed).groups[0].label) == ("mse", "gat")


def test_incomplete_and_undefined_groups_have_no_place() -> None:
    runs = accuracies("gcn", [0.7, 0.9], [0.6, 0.8]) + accuracies("gat", [0.9], [0.9])
    runs += accuracies("gin", [math.nan, 0.9], [0.5, 0.5])
    ranking = compare_runs(runs, planned={"gcn": 2, "gat": 2, "gin": 2})
    assert {group.label: group.place for group in ranking.groups} == {"gcn": 1, "gat": 0, "gin": 0}
    assert all(group.comparison is None for group in ranking.groups)


def test_equal_rounded_means_share_a_place() -> None:
    runs = [
        run
        for name, value in (("gcn", 0.601), ("gat", 0.604), ("gin", 0.5))
        for run in accuracies(name, [value], [value])
    ]
    places = {group.label: group.place for group in compare_runs(runs, scale=100, decimals=0).groups}
    assert places == {"gat": 1, "gcn": 1, "gin": 2}
    assert [group.place for group in compare_runs(runs).groups] == [1, 2, 3]


@given(order=st.permutations(range(18)))
def test_equally_good_models_are_ranked_by_simplicity_however_their_runs_are_ordered(order: list[int]) -> None:
    """Else ``goat train`` and ``goat report`` would name different best models."""
    runs = []
    for model in ("goat", "constant", "pna", "gin", "sage-mean", "mlp"):
        scores = [0.1, 0.2, 0.6] if model == "pna" else [0.6, 0.1, 0.2]  # 0.9 and 0.8999999999999999
        runs += accuracies(model, scores, scores)
    found = compare_runs([runs[place] for place in order])
    assert [group.label for group in found.groups] == ["constant", "mlp", "sage-mean", "gin", "pna", "goat"]
    assert found.verdict is not None
    assert "majority class and MLP are equally good on the validation nodes." in str(found.verdict)
    tied = [run for model in ("gcn", "gat") for run in accuracies(model, [0.5, 0.7, 0.7], [0.5, 0.6, 0.7])]
    for group in compare_runs([tied[place] for place in order if place < 6]).groups:
        assert group.best.experiment.seed == 1


def test_intervals_are_scipys() -> None:
    def interval(runs: list[Done], **options: object) -> tuple[float, float]:
        (group,) = compare_runs(runs, **options).groups
        assert isinstance(group, RunGroup)
        return group.interval

    scores = [0.6, 0.7, 0.65]
    expected = stats.t.interval(0.95, 2, loc=np.mean(scores), scale=stats.sem(scores))
    assert interval(accuracies("gcn", scores, scores)) == pytest.approx(expected)
    assert interval(accuracies("gcn", scores, scores), scale=100) == pytest.approx([100 * end for end in expected])
    assert interval(accuracies("gcn", [0.9, 1.0], [0.9, 1.0]))[1] == 1.0
    one = accuracies("gcn", [0.75], [0.75])
    exact = stats.binomtest(9, 12).proportion_ci(method="wilson")
    for runs in (one, accuracies("linear", [0.7] * 3, [0.75] * 3)):  # a model without chance: the same for every seed
        assert interval(runs, test_nodes=12) == pytest.approx((exact.low, exact.high))
    assert wilson_interval(9, 12) == pytest.approx((exact.low, exact.high))
    assert all(map(math.isnan, interval(one)))
    squares = np.array([0.1, 0.2, 0.6])
    single = [done("gcn", {split: {"mse": 0.3} for split in ("val", "test")})]
    normal = stats.norm.interval(0.95, loc=0.3, scale=stats.sem(squares))
    assert interval(single, test_nodes=3, errors=lambda run: squares) == pytest.approx((max(0, normal[0]), normal[1]))
    assert all(map(math.isnan, interval(single, test_nodes=3)))
    root = [done("gcn", {split: {"rmse": 0.3**0.5} for split in ("val", "test")})]
    found = interval(root, metric="rmse", test_nodes=3, errors=lambda run: squares)
    assert found == pytest.approx((max(0, normal[0]) ** 0.5, normal[1] ** 0.5))  # of the squares, as its root


def test_groups_are_named_by_the_settings_in_which_they_differ() -> None:
    metrics = {split: {"accuracy": 0.5} for split in ("val", "test")}
    same = {"epochs": 9, "learning_rate": 0.1, "weight_decay": 0.0, "warmup": 3}
    runs = [done("gat", metrics), done("gat", metrics, seed=1), done("gcn", metrics)]
    assert [(group.label, len(group.runs)) for group in compare_runs(runs).groups] == [("gcn", 1), ("gat", 2)]
    runs += [done("gat", metrics, clip_norm=clip_norm, **same) for clip_norm in (1.0, 2.0)]
    labels = {group.label for group in compare_runs(runs).groups}
    first = "gat, epochs=9, learning_rate=0.1, weight_decay=0.0, warmup=3, clip_norm="
    assert {f"{first}1.0", f"{first}2.0", "gcn"} < labels
    assert len(labels) == 4
    by_model = compare_runs(runs, label=lambda run: run.experiment.model.name)
    assert {group.label: len(group.runs) for group in by_model.groups} == {"gat": 4, "gcn": 1}
