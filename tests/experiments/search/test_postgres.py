"""A search that machines share through a PostgreSQL server. A machine is a folder that the others do not see."""

import signal
from pathlib import Path

import pytest

from tests.experiments.search.cases import events, run_logged, small_search
from tests.postgres import PASSWORD, Postgres, free_port, tell
from tests.processes import start, succeed, until
from torch_goat.app.cli.app import EXPECTED
from torch_goat.experiments import Event, RunError
from torch_goat.experiments.search.study import Study
from torch_goat.experiments.search.tune import tune
from torch_goat.settings import SettingsError

pytestmark = pytest.mark.postgres
TRIALS = 8
SEARCH = small_search(epochs=40)
LONG = small_search(epochs=100_000)


def work(folder: Path, address: str, long: bool = False) -> None:
    run_logged(Study(LONG if long else SEARCH, folder, address, TRIALS))


def test_two_machines_share_a_study_and_train_every_trial_once(tmp_path: Path, database: str) -> None:
    """Both begin at once on an empty database, with the same point, since they know of the same trials."""
    machines = [tmp_path / "one", tmp_path / "two"]
    succeed(*[start(work, machine, database) for machine in machines])
    trials = Study(SEARCH, machines[0], database, TRIALS).trials()
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * TRIALS
    assert len({str(trial.params) for trial in trials}) == TRIALS
    told = events(*machines)
    finished = {name: count for name, count in told.items() if name.startswith(("started", "finished"))}
    assert finished == {f"{kind} {trial.number}": 1 for trial in trials for kind in ("started", "finished")}
    assert all(any(name.startswith("finished") for name in events(machine)) for machine in machines)


def killed_in_a_trial(folder: Path, address: str) -> None:
    process = start(work, folder, address, True)
    until(lambda: any(name.startswith("epoch") for name in events(folder)), process)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_the_trial_of_a_killed_process_is_taken_up(tmp_path: Path, database: str) -> None:
    """By a process that sees its folder: one of the same machine, started before or after."""
    here, there = tmp_path / "here", tmp_path / "there"
    killed_in_a_trial(here, database)
    with Study(LONG, there, database, TRIALS).claimed() as other:
        assert other is not None
        assert other.number == 1  # it is not for a machine that cannot see what became of it
    study = Study(LONG, here, database, TRIALS)
    (left, *_) = study.trials()
    with study.claimed() as again:
        assert again is not None
        assert (again.number, again.params) == (0, left.params)
    assert len(study.trials()) == 2


@pytest.mark.usefixtures("quick_processes")
def test_a_search_goes_on_and_holds_no_connection(tmp_path: Path, database: str, postgres: Postgres) -> None:
    for trials, jobs in ((3, 1), (6, 2)):
        outcome = tune(SEARCH, tmp_path, storage=database, trials=trials, jobs=jobs, device="cpu")
        assert (outcome.finished, outcome.failed, outcome.elsewhere) == (trials, 0, 0)
    study = Study(SEARCH, tmp_path, database, 6)
    assert len(study.finished()) == 6
    name = database.rpartition("/")[2]
    tell(postgres.address, f"ALTER DATABASE {name} RENAME TO {name}_free")  # refused while somebody is connected


@pytest.mark.usefixtures("quick_processes")
def test_a_server_that_goes_away_is_named_in_a_sentence(tmp_path: Path, database: str, postgres: Postgres) -> None:
    name = database.rpartition("/")[2]

    def watch(event: Event) -> None:
        if event.kind == "finished" and event.number == 0:
            ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            for query in (f"ALTER DATABASE {name} ALLOW_CONNECTIONS false", ended):
                tell(postgres.address, query)

    with pytest.raises(RunError, match=r"no longer answers: .*; run the same command again once it does\.") as caught:
        tune(SEARCH, tmp_path, storage=database, trials=TRIALS, device="cpu", on_event=watch)
    check_sentence(caught.value)
    assert isinstance(caught.value, EXPECTED)
    tell(postgres.address, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert tune(SEARCH, tmp_path, storage=database, trials=3, device="cpu").finished == 3


def check_sentence(error: Exception) -> None:
    text = str(error)
    assert text.startswith("the storage postgresql://goat:***@127.0.0.1:")
    assert "\n" not in text
    assert PASSWORD not in text
    assert "concern" not in text


def test_a_server_that_cannot_be_reached(tmp_path: Path, postgres: Postgres) -> None:
    elsewhere = postgres.address.replace(str(postgres.port), str(free_port()))
    for wrong in (elsewhere, postgres.address.replace("business", "concern"), postgres.address + "_not"):
        with pytest.raises(SettingsError, match=r"cannot be opened: .*\.") as caught:
            Study(SEARCH, tmp_path, wrong, TRIALS)
        check_sentence(caught.value)
