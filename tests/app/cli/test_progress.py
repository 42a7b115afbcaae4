import io
import re

import pytest
from rich.console import Console

from torch_goat.app.cli import progress
from torch_goat.app.cli.progress import Board, PoolProgress, RunProgress, duration
from torch_goat.experiments import Epoch, Event, Result

RESULT = Result({"val": {"mse": 0.5}, "test": {"mse": 0.25}}, 1, 3, "epochs", 90.0, 1.0, 0, "cpu", {}, "")


def epoch(number: int, total: int = 10) -> Epoch:
    return Epoch(number, total, "mse", 0.125, 0.5, 0.5, 0.75, 0.5, 0.1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that progress sees, to be set."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def terminal() -> tuple[io.StringIO, Console]:
    text = io.StringIO()
    return text, Console(file=text, force_terminal=True, width=160, legacy_windows=False)


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
        "2/4 b: mse 0.25, 3 epochs, 90 s, about 2 min left",  # one run in 50 s, two are left
        "3/4 c [x]: failed: no [room], about 35 s left",  # two in 70 s
        "4/4 d: mse 0.25, 3 epochs, 90 s",
    ]


def test_the_time_left_counts_parts_of_runs_but_not_those_done_before(clock: list[float]) -> None:
    lines = Board(10, "runs", Console(file=io.StringIO()))
    lines.skip(4)
    assert lines.left() == ""
    lines.start(0, "a")
    clock[0] += 30
    lines.epoch(0, "a", epoch(5))  # half a run in 30 s; five and a half are left
    assert lines.left() == f"about {duration(330)} left"


def test_a_line_on_a_long_run_comes_now_and_then(clock: list[float]) -> None:
    text = io.StringIO()
    lines = Board(1, "runs", Console(file=text, width=200))
    lines.start(0, "a")
    for number in range(1, 8):
        clock[0] += 10
        lines.epoch(0, "a", epoch(number))
    assert text.getvalue().splitlines() == [
        "a: epoch 3 of 10, loss 0.1250, validation mse 0.75",
        "a: epoch 6 of 10, loss 0.1250, validation mse 0.75",
    ]


def test_bars_show_every_process_and_all_runs() -> None:
    text, console = terminal()
    shown = PoolProgress(4, ["a", "b", "c [x]", "d"].__getitem__)
    shown.board = Board(4, "runs", console)
    with shown:
        for event in story()[:4]:
            shown(event)
        assert shown.board._bars is not None
        shown.board._bars.refresh()
        seen = plain(text.getvalue())
        for event in story()[4:]:
            shown(event)
    assert re.search(r"all 4 runs .* 1/4 .* about \d", seen)
    assert re.search(r"\bb .* 5/10 .* loss 0.1250, validation mse 0.75", seen)
    assert re.search(r"c \[x\] .* starting", seen)
    assert "c [x]: failed: no [room]" in plain(text.getvalue())


def test_a_run_has_a_bar_on_a_terminal_and_a_line_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunProgress("a [b]") as show:
        show(epoch(9))
        show(epoch(10))
    assert capsys.readouterr().err == "a [b]: epoch 10 of 10, loss 0.1250, validation mse 0.75\n"
    text, console = terminal()
    monkeypatch.setattr(progress, "console", lambda stderr: console)
    with RunProgress("a [b]") as show:
        show(epoch(10))
    assert re.search(r"a \[b\] .* 10/10 .* loss 0.1250, validation mse 0.75", plain(text.getvalue()))


def test_colours_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text, console = terminal()
    with Board(1, "runs", console) as bars:
        bars.start(0, "a")
        bars.epoch(0, "a", epoch(3))
    assert "3/10" in text.getvalue()
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", text.getvalue())


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


def test_times_are_for_people() -> None:
    times = {0.04: "0.0 s", 9.94: "9.9 s", 42.4: "42 s", 150: "2 min", 9000: "2.5 h"}
    assert {seconds: duration(seconds) for seconds in times} == times
