import io
import re

import pytest
from rich.console import Console

from torch_goat.app.cli import progress
from torch_goat.app.cli.progress import LeaderboardProgress, PoolProgress, RunProgress
from torch_goat.experiments import Epoch, Event, Experiment, ModelOptions, Result
from torch_goat.experiments.leaderboard import Plan, PlannedModel
from torch_goat.experiments.training.metrics import duration

RESULT = Result({"val": {"mse": 0.5}, "test": {"mse": 0.25}}, 1, 3, "epochs", 90.0, 1.0, 0, "cpu", {}, "")


def epoch(number: int, total: int = 10) -> Epoch:
    return Epoch(number, total, "mse", 0.125, 0.5, 0.5, 0.75, 0.5, 0.1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that progress sees, to be set."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal in place of standard error receives."""
    text = io.StringIO()
    options = {"file": text, "force_terminal": True, "width": 160, "legacy_windows": False}
    monkeypatch.setattr(progress, "console", lambda stderr: Console(**options))
    return text


def plain(text: str) -> str:
    """What a terminal shows, without what moves its cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def story() -> list[Event]:
    """A plan of four runs, of which one is done, in two processes; one of them fails."""
    return [
        Event("skipped", 0, result=RESULT),
        Event("started", 1, 0),
        Event("started", 2, 1),
        Event("epoch", 1, 0, epoch=epoch(5)),
        Event("finished", 1, 0, result=RESULT),
        Event("started", 3, 0),
        Event("failed", 2, 1, message="no [room]"),
        Event("finished", 3, 0, result=RESULT),
    ]


def test_lines_say_how_each_run_ended(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with PoolProgress(4, ["a", "b", "c [x]", "d"].__getitem__) as show:
        for event in story():
            clock[0] += 10
            show(event)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "2/4 b: mse 0.25, 3 epochs, 90 s, about 100 s left",  # one run in 50 s, two are left
        "3/4 c [x]: failed: no [room], about 35 s left",  # two in 70 s
        "4/4 d: mse 0.25, 3 epochs, 90 s",
    ]


def test_the_time_left_counts_parts_of_runs_but_not_those_done_before(
    clock: list[float], terminal: io.StringIO
) -> None:
    with PoolProgress(10, str) as show:
        for number in range(4):
            show(Event("skipped", number))
        show(Event("started", 4))
        assert "left" not in plain(terminal.getvalue())
        clock[0] += 30
        show(Event("epoch", 4, epoch=epoch(5)))  # half a run in 30 s; five and a half are left
    assert f"4/10 0:00:00 about {duration(330)} left" in " ".join(plain(terminal.getvalue()).split())


def test_runs_that_are_added_are_counted(terminal: io.StringIO) -> None:
    with PoolProgress(1, str) as show:
        show(Event("started", 0))
        show.grow(3)
        show(Event("finished", 0, result=RESULT))
    assert "all 3 runs" in plain(terminal.getvalue())
    assert "1/3" in plain(terminal.getvalue())


def test_a_line_on_a_long_run_comes_now_and_then(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with PoolProgress(1, ["a"].__getitem__) as show:
        show(Event("started", 0))
        for number in range(1, 8):
            clock[0] += 10
            show(Event("epoch", 0, epoch=epoch(number)))
    assert capsys.readouterr().err.splitlines() == [
        "a: epoch 3 of 10, loss 0.1250, validation mse 0.75",
        "a: epoch 6 of 10, loss 0.1250, validation mse 0.75",
    ]


@pytest.mark.parametrize("colours", [True, False])
def test_bars_show_every_process_and_all_runs(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch, colours: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", "" if colours else "1")
    with PoolProgress(4, ["a", "b", "c [x]", "d"].__getitem__) as show:
        for event in story()[:4]:
            show(event)
        show._bars.refresh()
        seen = plain(terminal.getvalue())
        for event in story()[4:]:
            show(event)
    assert re.search(r"all 4 runs .* 1/4 .* about \d", seen)
    assert re.search(r"\bb .* 5/10 .* loss 0.1250, validation mse 0.75", seen)
    assert re.search(r"c \[x\] .* starting", seen)
    assert "c [x]: failed: no [room]" in plain(terminal.getvalue())
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", terminal.getvalue())) is colours


def test_a_run_ends_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with RunProgress("a [b]") as show:
        show(epoch(9))
        show(epoch(10))
    assert capsys.readouterr().err == "a [b]: epoch 10 of 10, loss 0.1250, validation mse 0.75\n"


def test_a_run_has_a_bar_on_a_terminal(terminal: io.StringIO) -> None:
    with RunProgress("a [b]") as show:
        show(epoch(10))
    assert re.search(r"a \[b\] .* 10/10 .* loss 0.1250, validation mse 0.75", plain(terminal.getvalue()))


def test_the_progress_of_a_search_counts_earlier_trials(capsys: pytest.CaptureFixture[str]) -> None:
    with PoolProgress(2, "trial {}".format, "trials", "mse") as show:
        show(Event("opened", -1, done=3, best=0.5))  # of a longer search
        show(Event("started", 1))
        show(Event("finished", 1, value=0.25, done=4, best=0.25))
    assert capsys.readouterr().err == "4/4 trial 1: mse 0.25, best mse 0.25\n"


def test_trials_that_end_together_or_elsewhere_are_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    with PoolProgress(4, "trial {}".format, "trials", "mse") as show:
        for job in (0, 1):
            show(Event("started", job, job))
        for job in (0, 1):  # both saw the other's end in the study, and the second also one on another machine
            show(Event("finished", job, job, value=0.25, done=2 + job, best=0.25))
        show(Event("started", 3))
        show(Event("pruned", 3, done=4, best=0.25))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["1/4", "2/4", "4/4"]
    assert lines[2] == "4/4 trial 3: pruned, best mse 0.25"


@pytest.mark.parametrize(
    ("skipped", "text"),
    [
        ({"gat": 45.0, "goat": 60.0}, "GAT (about 90 s), GOAT (about 2 min). To include all, set --minutes 5."),
        ({"gat": 45.0, "goat": 0.0}, "GAT (about 90 s), GOAT (not tried). To include all, set a larger --minutes, or 0 "
         "for no limit."),
    ],
)  # fmt: skip
def test_a_plan_names_what_is_skipped_and_how_to_include_it(
    capsys: pytest.CaptureFixture[str], skipped: dict[str, float], text: str
) -> None:
    experiment = Experiment("village", model=ModelOptions("linear"))
    model = PlannedModel(experiment, 10.0, 20.0, 2**30)
    plan = Plan(1.0, ((0, 0), (1, 1)), {"linear": model}, skipped)
    LeaderboardProgress(lambda: None, "accuracy").announce(plan)  # type: ignore[arg-type,return-value]
    assert capsys.readouterr().out.splitlines() == [
        "Plan: 2 runs of 1 models, about 20 s (at most 40 s) and 1.0 GiB of memory.",
        f"Skipped for lack of time: {text}",
    ]


def test_times_are_for_people() -> None:
    times = {0.04: "0.0 s", 9.94: "9.9 s", 42.4: "42 s", 119.4: "119 s", 150: "2 min", 9000: "2.5 h"}
    assert {seconds: duration(seconds) for seconds in times} == times
