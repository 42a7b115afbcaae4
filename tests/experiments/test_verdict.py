"""The verdict of a comparison: how sure it is that one model is better than another."""

import math
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from tests.small_runs import Done, result
from torch_goat.data.tables import Tables
from torch_goat.experiments import Experiment, ModelOptions, Verdict, compare_runs
from torch_goat.experiments.models.kinds import KINDS
from torch_goat.experiments.verdict import WITHOUT_EDGES, margin_of, paired_difference

TABLES = Tables("nodes.csv", "label", "edges.csv")


@cache
def on_split(model: str, index: int, seed: int) -> Experiment:
    return Experiment("mine", "", index, seed, ModelOptions(name=model), tables=TABLES)


def runs(
    model: str,
    val: list[float],
    test: list[float],
    *,
    fixed: bool = False,
    metric: str = "accuracy",
    seconds: float = 1.0,
    nodes: tuple[int, int] = (600, 200),
) -> list[Done]:
    """Runs of a model on random splits with a seed each, or with several seeds on a fixed split."""
    found = []
    for number, values in enumerate(zip(val, test, strict=True)):
        metrics = {split: {metric: value} for split, value in zip(("val", "test"), values, strict=True)}
        experiment = on_split(model, 0 if fixed else number, number)
        sizes = {"train": nodes[0], "val": 200, "test": nodes[1]}
        found.append(Done(experiment, result(metrics, seconds=seconds, nodes=sizes)))
    return found


def verdict(*groups: list[Done]) -> Verdict:
    found = compare_runs(
        [run for group in groups for run in group], label=lambda run: run.experiment.model.name
    ).verdict
    assert found is not None
    return found


def test_interval_over_random_splits_is_nadeau_and_bengios() -> None:
    ours, theirs = [0.80, 0.83, 0.81, 0.86], [0.78, 0.80, 0.80, 0.79]
    found = verdict(runs("goat", ours, ours), runs("gat", theirs, theirs))
    differences = np.subtract(ours, theirs)
    scale = np.sqrt((1 / 4 + 200 / 600) * differences.var(ddof=1))
    assert (found.best, found.runner_up, found.pairs, found.over) == ("goat", "gat", 4, "splits")
    assert found.difference == pytest.approx(differences.mean())
    assert found.interval == pytest.approx(stats.t.interval(0.95, 3, differences.mean(), scale))
    assert found.p == pytest.approx(2 * stats.t.sf(differences.mean() / scale, 3))
    # The sentences have the unit of the tables.
    low, high = (f"{100 * end:.1f}" for end in stats.t.interval(0.95, 3, differences.mean(), scale))
    assert f" {100 * differences.mean():.1f} percentage points above that of GAT" in found.sentences[1]
    assert f"(95 % interval of the difference {low} to {high} over 4 splits" in found.sentences[1]
    # Independent data are not corrected: then it is the paired t-test.
    scores = ({(split, 0): value for split, value in enumerate(values)} for values in (ours, theirs))
    plain, oracle = paired_difference(*scores), stats.ttest_rel(ours, theirs)
    assert plain.interval == pytest.approx(tuple(oracle.confidence_interval()))
    assert plain.p == pytest.approx(oracle.pvalue)


@pytest.mark.parametrize("unit", [1e-15, 1e-9, 1e8])
def test_the_conclusion_does_not_depend_on_the_unit_of_the_target(unit: float) -> None:
    ours, theirs, lower = [0.4, 0.43, 0.41], [0.6, 0.62, 0.63], {"metric": "rmse", "lower_is_better": True}
    for fixed in (False, True):  # several splits, or several seeds on one
        scores = [
            {(0 if fixed else one, one): unit * value for one, value in enumerate(values)} for values in (ours, theirs)
        ]
        found, tested = paired_difference(*scores, **lower), (stats.ttest_ind if fixed else stats.ttest_rel)
        expected = tested(ours, theirs, **({"equal_var": False} if fixed else {}))
        assert (found.p, found.conclusion) == (pytest.approx(expected.pvalue), "clearly better")
        assert found.interval == pytest.approx([unit * end for end in expected.confidence_interval()])
    # Seeds that all give the same result are no more than one, also if the variance of the floats is not zero.
    constant = [{(0, seed): unit * value for seed in range(5)} for value in (0.081448869, 0.26446987)]
    assert paired_difference(*constant, **lower).conclusion == "too few runs to tell"


def test_seeds_of_a_split_are_averaged_before_the_splits_are_compared() -> None:
    ours = {(split, seed): 0.7 + 0.02 * split + 0.05 * seed for split in range(3) for seed in range(4)}
    theirs = {one: 0.6 + 0.01 * one[0] ** 2 for one in ours}
    found = paired_difference(ours, theirs, ratio=0.5)
    differences = [0.775 + 0.02 * split - 0.6 - 0.01 * split**2 for split in range(3)]
    expected = stats.t.interval(0.95, 2, np.mean(differences), np.std(differences, ddof=1) * (1 / 3 + 0.5) ** 0.5)
    assert found.pairs == 3
    assert found.interval == pytest.approx(expected)


def test_one_split_is_about_seeds_only_and_says_so() -> None:
    ours, theirs = [0.80, 0.83, 0.81], [0.78, 0.80, 0.77]
    found = verdict(runs("goat", ours, ours, fixed=True), runs("gat", theirs, theirs, fixed=True))
    oracle = stats.ttest_ind(ours, theirs, equal_var=False)
    assert found.over == "seeds"
    assert found.interval == pytest.approx(tuple(oracle.confidence_interval()))
    assert found.p == pytest.approx(oracle.pvalue)
    assert "With a single split, this covers the choice of the seed only." in str(found)
    # Two models without randomness: any number of seeds is one run.
    same = verdict(runs("gcn", [0.8] * 9, [0.8] * 9, fixed=True), runs("mlp", [0.7] * 9, [0.7] * 9, fixed=True))
    assert same.conclusion == "too few runs to tell"
    assert "several splits are needed to tell" in str(same)


@pytest.mark.parametrize("fixed", [False, True])
def test_fewer_than_three_pairs_tell_nothing(fixed: bool) -> None:
    found = verdict(
        runs("goat", [0.9, 0.91], [0.9, 0.91], fixed=fixed), runs("mlp", [0.5, 0.5], [0.5, 0.5], fixed=fixed)
    )
    assert (found.conclusion, found.p, found.recommended) == ("too few runs to tell", None, "goat")
    assert found.graph_helps is None
    assert "Too few runs to tell whether GOAT or MLP is better" in str(found)
    assert "At least 3 splits" in str(found)


def nearest_mean(generator: np.random.Generator, informative: int, models: dict[str, int], splits: int) -> list[Done]:
    """Classifiers on overlapping random splits of 250 nodes; each model sees some columns and part of the nodes."""
    y = generator.integers(0, 2, 250)
    x = generator.normal(size=(250, 6))
    x[:, :informative] += y[:, None]
    found = []
    for model, columns in models.items():
        scores: dict[str, list[float]] = {"val": [], "test": []}
        for split in range(splits):
            order = np.random.default_rng([split, int(y.sum())]).permutation(250)
            train = generator.choice(order[:150], 100, replace=False)  # the seed of the model
            means = np.stack([x[train][y[train] == label][:, :columns].mean(0) for label in (0, 1)])
            guess = np.square(x[:, None, :columns] - means).sum(-1).argmin(-1)
            for part, nodes in (("val", order[150:200]), ("test", order[200:])):
                scores[part].append(float((guess == y)[nodes].mean()))
        found += runs(model, scores["val"], scores["test"], nodes=(150, 50))
    return found


@pytest.mark.parametrize("splits", [3, 10])
def test_the_same_model_under_two_names_is_no_clear_difference(splits: int) -> None:
    generator = np.random.default_rng(splits)
    drawn = [verdict(nearest_mean(generator, 3, {"gat": 3, "gcn": 3}, splits)) for _ in range(200)]
    ties = [one for one in drawn if one.conclusion == "no clear difference"]
    assert len(ties) >= 0.93 * 200
    assert not any("clearly" in str(one) or "wins" in str(one) for one in ties)


def test_a_planted_tie_on_one_split_is_no_clear_difference() -> None:
    generator = np.random.default_rng(0)
    conclusions = Counter(
        paired_difference(*({(0, seed): value for seed, value in enumerate(row)} for row in draw)).conclusion
        for draw in generator.normal(0.8, 0.02, (200, 2, 5))
    )
    assert conclusions["no clear difference"] >= 0.93 * 200


def test_a_planted_difference_is_found() -> None:
    generator = np.random.default_rng(1)
    drawn = [verdict(nearest_mean(generator, 6, {"goat": 6, "gat": 1}, 10)) for _ in range(50)]
    assert Counter(one.conclusion for one in drawn)["clearly better"] >= 0.9 * 50
    assert all(one.best == "goat" for one in drawn)


def test_what_would_settle_it_settles_it() -> None:
    ours, theirs = [0.82, 0.80, 0.83], [0.80, 0.81, 0.80]
    scores = [{(split, 0): value for split, value in enumerate(values)} for values in (ours, theirs)]
    found = paired_difference(*scores)
    assert found.conclusion == "no clear difference"
    assert found.needed is not None
    spread = np.std(np.subtract(ours, theirs), ddof=1)
    clear = [stats.t.ppf(0.975, n - 1) * spread / n**0.5 < found.difference for n in (found.needed - 1, found.needed)]
    assert clear == [False, True]
    text = str(verdict(runs("goat", ours, ours, nodes=(10**6, 1)), runs("gat", theirs, theirs, nodes=(10**6, 1))))
    assert f"About {found.needed} splits instead of 3 would settle it" in text
    # The overlap of the splits leaves an uncertainty that no number of splits removes.
    assert paired_difference(*scores, ratio=1 / 3).needed is None
    text = str(verdict(runs("goat", ours, ours), runs("gat", theirs, theirs)))
    assert "More splits of the same nodes would not settle it" in text


def test_lower_errors_are_better_and_the_chosen_model_may_be_worse_on_test_nodes() -> None:
    low, high = [0.10, 0.11, 0.12, 0.10], [0.50, 0.52, 0.51, 0.53]
    found = verdict(runs("goat", low, low, metric="mse"), runs("gat", high, high, metric="mse"))
    assert (found.best, found.conclusion) == ("goat", "clearly better")
    assert found.interval[1] < 0
    found = verdict(runs("goat", low, high, metric="mse"), runs("gat", high, low, metric="mse"))
    assert (found.best, found.conclusion) == ("goat", "clearly worse")


def test_a_graph_that_does_not_help_and_a_cheaper_model_are_named() -> None:
    high, low = [0.80, 0.83, 0.81], [0.60, 0.62, 0.60]
    near = [0.7995, 0.829, 0.8105]  # differences of 0.05, 0.1 and -0.05 points
    goat = runs("goat", high, high, seconds=40.0)
    found = verdict(goat, runs("mlp", near, near, seconds=2.0), runs("gcn", low, low))
    assert (found.best, found.recommended, found.graph_helps) == ("goat", "mlp", False)
    level = "is as good as GOAT to within one percentage point"
    assert f"The graph does not help: MLP, which ignores the edges, {level}." in found.sentences
    level = level.removeprefix("is ")
    assert f"Recommended: MLP, which is {level} and trains in 2 s instead of 40 s." == found.sentences[-1]
    found = verdict(goat, runs("gcn", near, near, seconds=2.0), runs("mlp", low, low, seconds=0.1))
    assert (found.recommended, found.graph_helps) == ("gcn", True)
    assert "The graph helps: GOAT is clearly better than MLP, the best model without edges." in str(found)
    found = verdict(goat, runs("gcn", near, near, seconds=39.0))
    assert (found.recommended, found.graph_helps) == ("goat", None)  # hardly cheaper; nothing without edges
    found = verdict(runs("mlp", high, high), runs("goat", low, low))
    assert found.graph_helps is False
    assert "MLP, which ignores the edges, is better than GOAT" in str(found)
    assert {name for name, kind in KINDS.items() if name in WITHOUT_EDGES} == {
        name for name, kind in KINDS.items() if "without the graph" in kind.description
    }


def test_a_noisy_difference_is_not_equality_but_the_cheaper_model_is_named() -> None:
    """With a standard deviation of one point over three splits, a loss of four points is not excluded."""
    high, near = [0.80, 0.83, 0.81], [0.81, 0.82, 0.805]
    found = verdict(runs("goat", high, high, seconds=40.0), runs("mlp", near, near, seconds=0.25))
    assert (found.conclusion, found.recommended, found.graph_helps) == ("no clear difference", "goat", None)
    assert found.sentences[-2:] == (
        "It is not shown that the graph helps: no clear difference was found between GOAT and MLP, which ignores the "
        "edges.",
        "Recommended: GOAT; MLP is cheaper (0.25 s instead of 40 s), and no clear difference from GOAT was found.",
    )
    assert "as good" not in str(found)
    assert len(found.sentences) == 5
    assert found.sentences[0].startswith("There is no clear difference between GOAT and MLP; ")
    # A cheaper model that is far behind on the validation nodes is not even named.
    behind = verdict(runs("goat", high, high, seconds=40.0), runs("mlp", [0.6] * 3, near, seconds=0.25))
    assert behind.sentences[-1] == "Recommended: GOAT."


def test_equal_results_and_seeds_of_one_split_do_not_show_that_a_model_is_as_good() -> None:
    same, near = [0.80, 0.83, 0.81], [0.8001, 0.83, 0.8099]
    for scores, fixed in ((same, False), (near, True)):
        found = verdict(
            runs("goat", same, same, seconds=40.0, fixed=fixed), runs("mlp", scores, scores, seconds=2.0, fixed=fixed)
        )
        assert (found.graph_helps, "as good" in str(found)) == (None, False)


def compared(generator: np.random.Generator, gain: float, deviation: float) -> Verdict:
    """GCN and the cheaper MLP on three splits: the gain of the graph and its standard deviation are in points."""
    base = generator.normal(0.7, 0.03, (2, 3))
    gains = generator.normal(gain / 100, deviation / 100, (2, 3))
    gcn, mlp = runs("gcn", *(base + gains).tolist(), seconds=9.0), runs("mlp", *base.tolist())
    return verdict(gcn, mlp)


@pytest.mark.parametrize(("gain", "deviation"), [(5.0, 4.0), (2.0, 4.0), (5.0, 1.0), (2.0, 0.3)])
def test_a_graph_that_helps_is_not_said_not_to_help(gain: float, deviation: float) -> None:
    generator = np.random.default_rng(2)
    drawn = [compared(generator, gain, deviation) for _ in range(200)]
    wrong = [one for one in drawn if one.graph_helps is False or one.recommended == "mlp" != one.best]
    assert len(wrong) <= 0.02 * 200
    assert not any("as good" in str(one) or "does not help" in str(one) for one in drawn if one not in wrong)
    if deviation < 1:
        assert Counter(one.graph_helps for one in drawn)[True] >= 0.9 * 200


def test_a_graph_that_adds_nothing_is_not_said_to_help() -> None:
    generator = np.random.default_rng(3)
    noisy = Counter(compared(generator, 0.0, 4.0).graph_helps for _ in range(200))
    assert noisy[True] <= 0.05 * 200
    quiet = Counter(compared(generator, 0.0, 0.1).graph_helps for _ in range(200))
    assert quiet[True] <= 0.05 * 200
    assert quiet[False] >= 0.9 * 200


@pytest.mark.parametrize(("deviation", "good"), [(10.0, True), (2.0, False)])
def test_the_margin_of_errors_is_a_part_of_the_targets_standard_deviation(deviation: float, good: bool) -> None:
    """The interval of the difference ends at 0.04, the margin is 0.1 or 0.02."""
    error = {"gcn": [4.0, 4.4, 4.2], "mlp": [4.01, 4.39, 4.205]}
    found = [
        run
        for model, values in error.items()
        for run in runs(model, values, values, seconds=9.0 if model == "gcn" else 1.0, metric="rmse")
    ]
    for run in found:
        for metrics in run.result.metrics.values():
            metrics |= {"mse": metrics["rmse"] ** 2, "r2": 1 - (metrics["rmse"] / deviation) ** 2}
    ranking = compare_runs(found, metric="rmse")
    assert margin_of(ranking.groups) == pytest.approx(0.01 * deviation)
    assert margin_of(compare_runs(found, metric="mse").groups) == pytest.approx(0.02 * deviation**2)
    assert (ranking.verdict.graph_helps, ranking.verdict.recommended) == ((False, "mlp") if good else (None, "gcn"))
    assert ("as good as GCN to within 1 % of the target's standard deviation" in str(ranking.verdict)) is good


def test_models_that_are_not_shown_to_be_better_than_the_trivial_one_are_not_recommended() -> None:
    trivial, near, far = [0.60, 0.61, 0.59], [0.61, 0.60, 0.60], [0.80, 0.81, 0.79]
    best, constant = runs("goat", near, near, seconds=9.0), runs("constant", trivial, trivial)
    found = verdict(best, runs("mlp", trivial, near, seconds=2.0), constant)
    assert found.sentences[0] == "No model is shown to predict 'label' better than the majority class."
    assert found.sentences[1].startswith("There is no clear difference between GOAT and ")
    assert "more nodes" in found.sentences[-1]
    assert (found.recommended, found.graph_helps, "the graph" in str(found)) == ("goat", None, False)
    assert len(found.sentences) <= 5
    # The best model on the validation nodes is lucky; another one is good.
    lucky = verdict(runs("goat", far, near), runs("mlp", trivial, far), constant)
    assert lucky.sentences[0] == "GOAT is not shown to predict 'label' better than the majority class, but MLP is."
    assert "No model" not in str(lucky)
    assert (lucky.best, lucky.recommended, lucky.sentences[-1]) == ("goat", "mlp", "Recommended: MLP.")
    # The trivial model is lucky.
    first = verdict(runs("constant", [0.70, 0.71, 0.70], trivial), runs("mlp", near, far, seconds=9.0))
    assert first.sentences[0] == "MLP is shown to predict 'label' better than the majority class."
    assert (first.best, first.recommended, first.sentences[-1]) == ("constant", "mlp", "Recommended: MLP.")
    good = verdict(runs("goat", far, far), constant)
    assert "shown to predict" not in str(good)
    # If no model is better on the validation nodes either, a single run is enough to say so.
    one = verdict(runs("goat", [0.5], [0.5]), runs("constant", [0.6], [0.6]))
    assert one.sentences[0].startswith("No model is shown")
    assert one.sentences[-1] == "Recommended: more splits or seeds before any of these models is used."
    assert "shown to predict" not in str(verdict(runs("goat", [0.6], [0.6]), runs("constant", [0.5], [0.5])))
    # If it is better there, but worse on the test nodes, too few runs are no reason to recommend it.
    worse = verdict(runs("trees", [0.8], [0.5]), runs("constant", [0.6], [0.6]))
    assert worse.sentences[0] == "No model is shown to predict 'label' better than the majority class."
    assert worse.sentences[-1] == one.sentences[-1]
    # Errors are those of a number.
    error = verdict(runs("goat", trivial, trivial, metric="mse"), runs("constant", near, near, metric="mse"))
    assert error.sentences[0] == "No model is shown to predict 'label' better than the training mean."


def test_a_lead_that_never_varies_counts_as_much_as_its_test_nodes() -> None:
    always = {"nodes": (150, 50)}
    sure = verdict(runs("goat", [1.0] * 5, [1.0] * 5, **always), runs("gat", [0.5] * 5, [0.5] * 5, **always))
    assert sure.conclusion == "clearly better"
    few = {"nodes": (6, 2)}
    unsure = verdict(runs("goat", [1.0] * 3, [1.0] * 3, **few), runs("gat", [0.5] * 3, [0.5] * 3, **few))
    assert unsure.conclusion == "no clear difference"
    equal = verdict(runs("goat", [0.5] * 3, [0.5] * 3), runs("gat", [0.5] * 3, [0.5] * 3))
    assert (equal.conclusion, equal.interval, equal.p) == ("no clear difference", (0.0, 0.0), 1.0)


def test_a_run_and_its_copy_count_once() -> None:
    goat, gat = runs("goat", [0.9, 0.8], [0.9, 0.8]), runs("gat", [0.5, 0.6], [0.5, 0.6])
    moved = [
        one._replace(experiment=replace(one.experiment, tables=replace(TABLES, nodes=name, digest="d")))
        for one, name in zip(goat, ("here.csv", "there.csv"), strict=True)
    ]
    copied = [one._replace(experiment=replace(one.experiment, index=0, seed=0)) for one in moved]
    assert [len(group.runs) for group in compare_runs([*goat, *goat, *gat]).groups] == [2, 2]
    assert [len(group.runs) for group in compare_runs(copied, label=lambda run: "goat").groups] == [1]
    assert verdict(goat + goat + goat, gat).pairs == 2


def test_results_without_numbers_of_nodes_use_those_of_the_split() -> None:
    tables = replace(TABLES, train=0.5, val=0.3)
    old = [
        Done(replace(one.experiment, tables=tables), replace(one.result, nodes={}))
        for one in runs("goat", [0.9], [0.9]) + runs("gat", [0.8], [0.8])
    ]
    assert compare_runs(old).overlap == pytest.approx(0.2 / 0.5)

    def on(dataset: str) -> float:
        moved = [Done(replace(one.experiment, dataset=dataset, tables=None), one.result) for one in two]
        return compare_runs(moved).overlap

    two = [Done(replace(one.experiment, index=index), one.result) for index, one in enumerate(old)]
    assert on("top2") == 0  # another graph each
    assert on("cornell") == pytest.approx(37 / 87)
    assert on("squirrel-filtered") == pytest.approx((452 / 1053 + 443 / 1080) / 2)  # whose splits differ in size


def test_models_without_a_finite_validation_are_not_judged() -> None:
    assert compare_runs(runs("goat", [0.9], [0.9])).verdict is None
    assert compare_runs(runs("goat", [0.9], [0.9]) + runs("gat", [math.nan], [0.9])).verdict is None
    untested = verdict(runs("goat", [0.9] * 3, [math.nan] * 3), runs("gat", [0.8] * 3, [math.nan] * 3))
    assert untested.conclusion == "too few runs to tell"
    assert "no test nodes" in str(untested)
