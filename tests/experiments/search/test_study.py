import itertools
import os
import threading
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from tests.experiments.search.cases import small_search
from torch_goat.experiments import RunError
from torch_goat.experiments.search import Search, Space
from torch_goat.experiments.search.search import Point
from torch_goat.experiments.search.storage import masked, one_line, open_storage
from torch_goat.experiments.search.study import Study, distributions, next_point
from torch_goat.files import locked
from torch_goat.settings import SettingsError


def study(folder: Path, total: int = 4, search: Search | None = None, storage: str = "") -> Study:
    return Study(search or small_search(), folder, storage, total)


def finish(study: Study, value: float) -> None:
    with study.claimed() as trial:
        study.tell(trial, value)


def test_two_processes_never_have_the_same_trial(tmp_path: Path) -> None:
    one, two = study(tmp_path), study(tmp_path)
    with one.claimed() as a, two.claimed() as b, one.claimed() as c, two.claimed() as d, one.claimed() as none:
        assert [trial and trial.number for trial in (a, b, c, d)] == [0, 1, 2, 3]
        assert none is None
        assert one.waits()
    assert len({str(trial.params) for trial in one.trials()}) == 4


def test_a_finished_trial_is_not_taken_up(tmp_path: Path) -> None:
    one = study(tmp_path, total=1)
    finish(one, 0.5)
    with study(tmp_path, total=1).claimed() as none:
        assert none is None
    assert not one.waits()
    assert [trial.value for trial in one.finished()] == [0.5]


def test_a_trial_that_ends_while_it_is_looked_at_is_left_alone(tmp_path: Path) -> None:
    """One process lists a trial as running; before it can look at the folder, the other ends the trial."""
    one, two = study(tmp_path, total=1), study(tmp_path, total=1)
    with one.claimed() as trial:
        stale = two.trials()
        one.tell(trial, 0.5)
    two.trials = lambda: stale  # type: ignore[method-assign]
    with two.claimed() as none:
        assert none is None


def test_the_trials_of_a_machine_without_the_folder_are_left_to_it(tmp_path: Path) -> None:
    storage = str(tmp_path / "shared.log")
    here, there = (study(tmp_path / name, storage=storage) for name in ("here", "there"))
    with there.claimed() as first:
        assert first is not None
    with here.claimed() as second:
        assert second.number == 1
        here.tell(second, 1.0)
    assert not here.waits()
    assert there.waits()
    with there.claimed() as again:
        assert again.number == 0


def test_two_machines_that_enter_a_trial_at_once_count_it_once(tmp_path: Path) -> None:
    storage = str(tmp_path / "shared.log")
    here, there = (study(tmp_path / name, total=2, storage=storage) for name in ("here", "there"))
    before = here.trials()
    here._enter(before)
    there._enter(before)  # the same point, since it knows of the same trials
    assert [trial.number for trial in here.trials()] == [0]
    there._enter(there.trials())
    here._enter(here.trials()[:1])  # one too many
    assert [trial.number for trial in here.trials()] == [0, 2]


def test_fewer_trials_than_there_are_lose_none_of_those_that_are_over(tmp_path: Path) -> None:
    whole = study(tmp_path, total=5)
    with whole.claimed() as first, whole.claimed() as left, whole.claimed() as last, whole.claimed():
        for trial, value in ((first, 0.5), (last, 0.25)):
            whole.tell(trial, value)
    again = study(tmp_path, total=2)
    assert [trial.number for trial in again.trials()] == [0, 1, 2]  # the last one was only begun
    assert (again.expected(), len(again.finished())) == (3, 2)
    assert (again.best().number, again.best().value) == (2, 0.25)
    with again.claimed() as trial:  # one of the two is not over
        assert trial.number == left.number
        again.tell(trial, 1.0)
    with again.claimed() as none:
        assert none is None


def test_the_best_is_the_first_of_equal_ones_and_never_a_pruned_one(tmp_path: Path) -> None:
    one = study(tmp_path, search=small_search(metric="r2"))
    assert one.best() is None
    for value in (None, 0.3, 0.7, 0.7):
        with one.claimed() as trial:
            one.tell(trial, value, pruned=True)
    assert one.best().number == 2


def test_giving_up_leaves_a_trial_that_another_process_has(tmp_path: Path) -> None:
    one = study(tmp_path)
    with one.claimed() as trial:
        assert not one.give_up(trial.number, "it died")
    assert one.give_up(trial.number, "it died\n\nlong story")
    assert [one.reason(failed) for failed in one.finished()] == ["it died"]
    assert not one.give_up(trial.number, "it died")


def test_the_folder_of_another_search_is_refused(tmp_path: Path) -> None:
    study(tmp_path)
    with pytest.raises(RunError, match=f"{tmp_path} holds another search"):
        study(tmp_path, search=small_search(seed=1))


def test_several_searches_share_a_storage(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/trials.db"
    one = study(tmp_path / "one", storage=storage)
    two = study(tmp_path / "two", storage=storage, search=small_search(seed=1))
    finish(one, 0.25)
    assert [trial.value for trial in study(tmp_path / "one", storage=storage).trials()] == [0.25]
    assert two.trials() == []


@pytest.mark.parametrize("storage", ["sqlite:////no/such/folder/x.db", "postgres:///", "nonsense://x"])
def test_a_database_that_cannot_be_opened_is_an_error_that_names_it(tmp_path: Path, storage: str) -> None:
    with pytest.raises(SettingsError, match=f"the storage {storage} cannot be opened"):
        study(tmp_path, storage=storage)


def test_a_file_of_something_else_is_not_touched_and_a_journal_of_half_a_line_is_used(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_bytes(b"all that I know")
    with pytest.raises(SettingsError, match="notes is not a journal of trials"):
        study(tmp_path / "study", storage=str(file))
    assert file.read_bytes() == b"all that I know"
    file.write_bytes(b'{"op_code":0,"wor')
    assert study(tmp_path / "study", storage=str(file)).trials() == []


@pytest.mark.parametrize("rest", [b'{"op', b'{"op_code":4,"trial_id":0,"sta', b"x" * 10000])
def test_what_a_full_disk_left_of_a_line_is_cut_off(tmp_path: Path, rest: bytes) -> None:
    one = study(tmp_path)
    with one.claimed() as trial:
        assert trial is not None
    with open(tmp_path / "journal.log", "ab") as journal:
        journal.write(rest)
    finish(study(tmp_path), 1.5)
    assert [trial.value for trial in study(tmp_path).trials()] == [1.5]
    assert (tmp_path / "journal.log").read_bytes().endswith(b"\n")


@pytest.mark.parametrize("line", [b'{"op_code":4,"wor', b"\xff\xfe", b'{"op_code":4}', b'{"op_code":99}', b"7"])
def test_a_journal_that_is_damaged_in_between_is_named_with_its_line(tmp_path: Path, line: bytes) -> None:
    with study(tmp_path).claimed():
        lines = (tmp_path / "journal.log").read_bytes().splitlines()
    assert len(lines) == 2  # the study and the trial
    (tmp_path / "journal.log").write_bytes(b"\n".join([lines[0], line, lines[1], b""]))
    with pytest.raises(RunError, match=r"journal\.log, line 2: the list of the trials is damaged; restore an intact"):
        study(tmp_path)


def test_a_damaged_last_line_is_named_once_another_follows(tmp_path: Path) -> None:
    one = study(tmp_path)
    with open(tmp_path / "journal.log", "ab") as journal:
        journal.write(b"nothing\n")
    with pytest.raises(RunError, match=r"journal\.log, line 2: the list of the trials is damaged"), one.claimed():
        pass


def test_a_writer_waits_for_the_one_before(tmp_path: Path) -> None:
    open_storage(str(tmp_path / "journal"))
    one = study(tmp_path / "study", storage=str(tmp_path / "journal"))
    entered = threading.Event()

    def enter() -> None:
        with one.claimed():
            entered.set()

    with locked(tmp_path / "study", wait=False):
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.3)
    assert entered.wait(10)
    thread.join()


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    place = tmp_path if os.geteuid() else Path("/sys")  # where not even root may make a folder
    with pytest.raises(
        RunError, match=f"the run folder {place}/study cannot be used: (permission|operation|read-only)"
    ):
        study(place / "study")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://host/name", "postgresql://host/name"),
        ("postgresql://me@host:5432/name", "postgresql://me@host:5432/name"),
        ("postgresql://me:secret@host:5432/name", "postgresql://me:***@host:5432/name"),
        ("postgresql+psycopg://me:se:cret@host/name", "postgresql+psycopg://me:***@host/name"),
        ("postgresql://me:se@cr/et@host/name", "postgresql://me:***@host/name"),
        ("postgresql://host/name?user=me&password=secret&x=1", "postgresql://host/name?user=me&password=***&x=1"),
        ("postgresql://:secret@host", "postgresql://:***@host"),
        ("sqlite:///trials.db", "sqlite:///trials.db"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    assert masked(address) == shown


def test_an_error_is_shown_in_a_line_and_without_the_password() -> None:
    error = ValueError("cannot read 'a%20b' or 'a b' of u:a%20b@h.\nDETAIL: more of a b")
    assert one_line(error, "postgresql://u:a%20b@h") == "cannot read '***' or '***' of u:***@h"
    assert one_line(ValueError(), "postgresql://h") == "ValueError"


def told(search: Search, point: Point, value: float | None) -> FrozenTrial:
    state = TrialState.FAIL if value is None else TrialState.COMPLETE
    return optuna.trial.create_trial(state=state, value=value, params=point, distributions=distributions(search))


def drawn(search: Search, count: int) -> list[Point]:
    """Points of trials that come to the sum of their parameters; the fourth one fails."""
    trials: list[FrozenTrial] = []
    for number in range(count):
        point = next_point(search, trials)
        trials.append(told(search, point, None if number == 3 else sum(point.values())))
    return [one.params for one in trials]


def test_a_point_depends_on_the_seed_and_the_trials_alone() -> None:
    whole = drawn(small_search(), 16)
    assert drawn(small_search(), 16) == whole
    assert drawn(small_search(seed=1), 16) != whole
    assert drawn(small_search(), 12) == whole[:12]


@pytest.mark.parametrize("method", ["tpe", "grid"])
def test_no_point_comes_twice_and_all_come(tmp_path: Path, method: str) -> None:
    space: Space = {"heads": (1, 2, 3), "num_layers": (1, 2), "patience": (5, 6, 7)}
    assert study(tmp_path, 100, small_search(space)).total == 18
    found = drawn(small_search(space, method=method), 18)
    combinations = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    assert sorted(found, key=str) == sorted(combinations, key=str)
    assert (found == combinations) is (method == "grid")


def test_draws_learn_from_the_values() -> None:
    """After the random start, points are nearer to the best place than random ones."""
    space: Space = {f"{key}": tuple(range(8)) for key in ("hidden_channels", "epochs", "patience")}

    def distance(points: list[Point]) -> float:
        return sum(value**2 for point in points for value in point.values()) / len(points)

    found, search = [], small_search(space)
    trials: list[FrozenTrial] = []
    for _ in range(40):
        found.append(next_point(search, trials))
        trials.append(told(search, found[-1], distance(found[-1:])))
    assert distance(found[20:]) < distance(found[:10])


def test_values_that_are_lists_are_drawn_as_texts() -> None:
    search = small_search({"scalers": (("identity",), ("identity", "linear")), "dropout": (0.0,)}, method="grid")
    assert next_point(search, []) == {"scalers": '["identity"]', "dropout": 0.0}
    done = told(search, next_point(search, []), 1.0)
    assert next_point(search, [done]) == {"scalers": '["identity", "linear"]', "dropout": 0.0}
