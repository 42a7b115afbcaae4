"""The plan of a comparison: what fits into a time budget and into memory, and that it is followed."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.data.tables.files import write, write_maximum
from torch_goat.data.tables import load_tables
from torch_goat.data.tables.graph import TableGraph
from torch_goat.experiments import Experiment, RunError, compare_models, leaderboard, train
from torch_goat.experiments.leaderboard import Plan, PlannedModel, full_batch_bytes, make_plan
from torch_goat.experiments.own_graph import MODELS, starting_points
from torch_goat.experiments.training import features
from torch_goat.settings import SettingsError

QUICK = partial(train, device="cpu")
SECONDS = {"goat": 100.0, "gat": 50.0, "sage-mean": 20.0, "gcn": 20.0, "mlp": 5.0, "trees": 9.0, "linear": 1.0}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Trials of known duration, and the models that were tried."""
    tried: list[str] = []

    def trial(start: object, graph: object, device: str) -> PlannedModel:
        tried.append(start.model.name)  # type: ignore[attr-defined]
        seconds = SECONDS.get(tried[-1], 0.01)
        return PlannedModel(start, seconds, 2 * seconds, 2**20)  # type: ignore[arg-type]

    monkeypatch.setattr(leaderboard, "_timed", trial)
    return tried


def begin(folder: Path, *more: object, **options: object) -> tuple[dict[str, Experiment], dict[str, TableGraph]]:
    """The starting points of models on small tables, and the graph of each."""
    tables = write(folder)
    graph = load_tables(tables)
    starts = starting_points(tables, graph, *more, **options)  # type: ignore[arg-type]
    return starts, dict.fromkeys(starts, graph)


def test_the_fastest_models_that_fit_are_planned_and_the_others_named(tmp_path: Path, known: list[str]) -> None:
    starts, graphs = begin(tmp_path)
    assert tuple(starts) == MODELS
    plan = make_plan(starts, [(0, 0), (1, 1)], graphs, minutes=2)
    # Twice 0.01 + 1 + 5 + 9 + 20 + 20 seconds are 110.02 of 120.
    assert list(plan.models) == ["constant", "linear", "mlp", "trees", "sage-mean", "gcn"]
    assert plan.skipped == {"gat": 50.0, "goat": 100.0}
    assert (plan.runs, plan.seconds, plan.most) == (12, pytest.approx(110.02), pytest.approx(220.04))
    assert [(name, one.index, one.seed) for name, _, one in plan][5:8] == [
        ("gcn", 0, 0),
        ("constant", 1, 1),
        ("linear", 1, 1),
    ]
    assert Plan.from_json(plan.to_json()) == plan
    assert not make_plan(starts, [(0, 0)], graphs, minutes=0).skipped


def test_too_short_a_budget_names_the_fastest_model_that_learns_and_its_time(
    tmp_path: Path, known: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, graphs = begin(tmp_path)
    monkeypatch.setattr(leaderboard, "monotonic", lambda: 0.0)  # so that the trials take no time
    fastest = "logistic regression, the fastest model that learns, needs about"
    for repeats, minutes, why in (
        (2, 0.01, f"{fastest} 2.0 s"),
        (100, 1, f"{fastest} 100 s"),
        (300, 4, f"{fastest} 5 min"),
        (100, 0.01, "100 runs of any model need at least 10 s"),  # for which nothing is tried
        (1, -1, "1 runs of any model need at least 0.1 s"),
    ):
        known.clear()
        with pytest.raises(SettingsError, match=rf"^--minutes {minutes} is too short: {why}; allow more, or set --min"):
            make_plan(starts, [(0, one) for one in range(repeats)], graphs, minutes=minutes)
        assert bool(known) is (fastest in why)
    alone = {"constant": starts["constant"]}  # which is no comparison, but was asked for
    assert list(make_plan(alone, [(0, 0)], graphs, minutes=0.01).models) == ["constant"]


@pytest.mark.parametrize(
    ("seconds", "last"),
    [(20.0, "linear"), (5.0, "trees"), (4.9, "mlp"), (2.0, "goat")],  # of each trial; a quarter of a minute is 15 s
)
def test_trials_stop_after_a_quarter_of_the_budget(
    tmp_path: Path, known: list[str], monkeypatch: pytest.MonkeyPatch, seconds: float, last: str
) -> None:
    now, said = [0.0], []
    starts, graphs = begin(tmp_path)
    monkeypatch.setattr(leaderboard, "monotonic", lambda: now[0])

    def trying(model: str, number: int, total: int) -> None:
        said.append((model, number, total))
        now[0] += seconds

    plan = make_plan(starts, [(0, 0)], graphs, minutes=1, on_trial=trying)
    simple = MODELS[::-1]  # the simplest first
    expected = simple[: simple.index(last) + 1]
    assert set(known) == set(expected)
    assert [name for name, _, _ in said] == known  # each is announced before it is tried
    assert [(number, total) for _, number, total in said] == [(one + 1, 8) for one in range(len(expected))]
    assert {name for name, time in plan.skipped.items() if not time} == set(MODELS) - set(expected)
    assert {*plan.models, *plan.skipped} == set(MODELS)
    assert plan.models.keys() - {"constant"}  # whatever is short, a model that learns is tried
    assert Plan.from_json(plan.to_json()) == plan
    now[0] = 0.0
    assert len(make_plan(starts, [(0, 0)], graphs, minutes=0, on_trial=trying).models) == 8


def test_a_plan_is_stored_followed_and_repeated(tmp_path: Path, known: list[str]) -> None:
    tables, seen = write(tmp_path), []
    compare = partial(compare_models, tables, tmp_path / "all", assignments=["epochs=2"], repeats=2, runner=QUICK)
    first = compare(minutes=1, on_plan=seen.append)
    assert set(first.plan.models) == {"constant", "linear", "mlp", "trees"}
    runs = {f"{model}-{number}" for model in first.plan.models for number in range(2)}
    assert {path.name for path in (tmp_path / "all").iterdir() if path.is_dir()} == runs
    known.clear()
    again = compare(minutes=1, on_plan=seen.append)
    assert known == []  # nothing was tried
    assert seen[0] == seen[1] == again.plan
    more = compare(minutes=0)
    assert set(more.plan.models) == set(MODELS)
    assert more.ranking["mlp"].runs[0].result == first.ranking["mlp"].runs[0].result
    (tmp_path / "all" / "plan.json").write_text("{}")
    with pytest.raises(RunError, match=r"plan\.json is damaged or from another version; remove it to plan again"):
        compare(minutes=1)


def test_trials_measure_every_model(tmp_path: Path) -> None:
    starts, graphs = begin(tmp_path, assignments=["epochs=20", "patience=4"])
    plan = make_plan(starts, [(0, 0)], graphs, minutes=0, device="cpu")
    assert set(plan.models) == set(MODELS)
    for name, one in plan.models.items():
        assert 0 < one.seconds <= one.most
        if not one.experiment.model.fitted:
            each = (one.seconds - leaderboard.START_SECONDS) / 8  # twice the patience
            assert one.most - leaderboard.START_SECONDS == pytest.approx(20 * each), name


@pytest.mark.parametrize("name", ["trees", "linear"])
def test_what_only_the_first_fit_needs_is_not_counted_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    starts, graphs = begin(tmp_path, [name])
    now, fits, imports = [0.0], getattr(features.FittedModel, f"_{name}"), features.import_module
    costs = iter([0.5, 0.01])  # of the first fit, which starts threads, and of the second

    def slow_import(module: str) -> object:
        now[0] += 60
        return imports(module)

    def slow_fit(model: features.FittedModel) -> Iterator[dict[str, torch.Tensor]]:
        now[0] += next(costs)
        yield from fits(model)

    monkeypatch.setattr(features, "import_module", slow_import)
    monkeypatch.setattr(features.FittedModel, f"_{name}", slow_fit)
    monkeypatch.setattr(features, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    plan = make_plan(starts, [(0, 0)], graphs, minutes=0, device="cpu")
    assert now[0] > 60
    times = {"trees": 30, "linear": 10}  # a whole fit has 300 trees instead of 10; 5 penalties, up to twice as long
    assert plan.seconds == pytest.approx(leaderboard.START_SECONDS + 0.01 * times[name])


def test_mini_batches_replace_full_batches_that_do_not_fit(
    tmp_path: Path, known: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, graphs = begin(tmp_path, ["goat", "mlp", "trees"])
    need = {name: full_batch_bytes(starts[name], graphs[name]) for name in ("goat", "mlp")}
    assert need["goat"] > need["mlp"]
    monkeypatch.setattr(leaderboard, "free_memory", lambda device: sum(need.values()) / 2 / leaderboard.MEMORY_SHARE)
    plan = make_plan(starts, [(0, 0)], graphs, minutes=0)
    sizes = {
        name: (one.experiment.training.batch_size, one.experiment.training.fanout) for name, one in plan.models.items()
    }
    assert sizes == {"goat": (6, (15, 10)), "mlp": (0, ()), "trees": (0, ())}  # six training nodes
    kept = make_plan(starts, [(0, 0)], graphs, minutes=0, batches=False)
    assert kept.models["goat"].experiment.training.batch_size == 0
    # Also if only the trial finds out.
    monkeypatch.setattr(leaderboard, "free_memory", lambda device: np.inf)
    timed = leaderboard._timed

    def full(start: SimpleNamespace, *more: object) -> PlannedModel:
        if start.model.name == "goat" and not start.training.batch_size:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return timed(start, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(leaderboard, "_timed", full)
    assert make_plan(starts, [(0, 0)], graphs, minutes=0).models["goat"].experiment.training.batch_size == 6
    with pytest.raises(torch.OutOfMemoryError):
        make_plan(starts, [(0, 0)], graphs, minutes=0, batches=False)


def test_options_apply_to_the_models_that_have_them(tmp_path: Path) -> None:
    tables = write(tmp_path)
    starts = starting_points(tables, load_tables(tables), assignments=["heads=2", "epochs=7", "record_orderings=[1]"])
    assert {name: one.model.heads for name, one in starts.items() if one.model.heads > 1} == {"goat": 2, "gat": 2}
    assert {one.training.epochs for one in starts.values()} == {7}
    assert {name for name, one in starts.items() if one.training.record_orderings} == {"goat"}
    with pytest.raises(SettingsError, match="permutations"):
        starting_points(tables, load_tables(tables), assignments=["permutations=9"])


def test_a_label_of_the_neighbours_maximum_is_found_by_the_leaderboard(tmp_path: Path) -> None:
    tables = write_maximum(tmp_path, nodes=400, drop=("z", "year"))
    compared = compare_models(
        tables, tmp_path / "all", assignments=["epochs=150"], models=("goat", "gat", "mlp", "constant"), runner=QUICK
    )
    verdict = compared.ranking.verdict
    assert verdict is not None
    assert verdict.graph_helps is True
    assert "The graph helps: " in str(verdict)
    assert compared.ranking.difference(verdict.best, "mlp").conclusion == "clearly better"


def test_macro_f1_is_requested_and_weighs_the_classes(tmp_path: Path) -> None:
    tables = write(tmp_path)
    graph = load_tables(tables)
    plain, weighted = (starting_points(tables, graph, ["gcn"], metric=metric)["gcn"] for metric in ("", "macro_f1"))
    assert (plain.training.class_weights, plain.training.metric) == (False, "")
    assert (weighted.training.class_weights, weighted.training.metric) == (True, "macro_f1")
    with pytest.raises(SettingsError, match="'roc'"):
        starting_points(tables, graph, ["gcn"], metric="roc")
