import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import optuna
from optuna.trial import FrozenTrial, TrialState

from torch_goat import settings
from torch_goat.experiments import Experiment, RunError
from torch_goat.experiments.run import ERROR, usable
from torch_goat.experiments.search.sampler import distributions, next_point
from torch_goat.experiments.search.search import Search
from torch_goat.experiments.search.space import at, decoded
from torch_goat.experiments.search.storage import open_storage
from torch_goat.files import Busy, locked, write_atomic

JOURNAL: Final = "journal.log"
SEARCH: Final = "search.toml"
PLACE: Final = ".place"
TRIALS: Final = "trials"  # a folder


class Study:
    """The trials of a search, which any number of processes on any number of machines work on.

    A trial enters the storage with its parameters in one step. The process that trains it holds its folder, so that a
    trial which is not finished and whose folder nobody holds is one whose process has died: the next process that looks
    for work goes on with it. Trials of another machine that does not share the folder are left to that machine.

    Args:
        search: The search.
        folder: Where the trials train, shared by all processes of a machine, and of other machines if they can.
        storage: The path of a journal or the address of a database; a journal in the folder if empty.
        total: How many trials there will be; no more than the space has points, and no fewer than are over.
    """

    def __init__(self, search: Search, folder: Path, storage: str, total: int) -> None:
        self.search, self.folder, self.total = search, folder, min(total, search.size)
        self.storage = storage
        with usable(folder):
            self._place = self._settle()
            self._study = optuna.create_study(
                storage=open_storage(storage or str(folder / JOURNAL)),
                study_name=search.name,
                direction="minimize" if search.minimize else "maximize",
                sampler=optuna.samplers.RandomSampler(),  # never asked: points come from next_point
                pruner=_pruner(search),
                load_if_exists=True,
            )

    def trials(self) -> list[FrozenTrial]:
        """The trials so far, no more than there should be, and those that are over all the same.

        Two machines that do not share a folder may enter a trial at the same moment; the later one does not count. What
        a longer search has come to does, so that a shorter one neither loses it nor writes over it.
        """
        counted = {
            tuple(sorted(trial.params.items())): trial for trial in reversed(self._study.get_trials(deepcopy=False))
        }
        ordered = sorted(counted.values(), key=lambda trial: trial.number)
        return ordered[: self.total] + [trial for trial in ordered[self.total :] if trial.state.is_finished()]

    def expected(self) -> int:
        """How many trials there are in the end."""
        return max(self.total, len(self.trials()))

    def finished(self) -> list[FrozenTrial]:
        """The trials that are done, pruned or failed."""
        return [trial for trial in self.trials() if trial.state.is_finished()]

    def waits(self) -> bool:
        """Whether trials are left that other processes have, and that would be anybody's if those died."""
        return any(self._is_open(trial) for trial in self.trials())

    @contextmanager
    def claimed(self) -> Iterator[FrozenTrial | None]:
        """A trial for this process alone: one that was left by a process that died, else a new one, if any."""
        with ExitStack() as held:
            yield self._claim(held)

    def folder_of(self, trial: FrozenTrial) -> Path:
        """Where a trial trains."""
        return self.folder / TRIALS / str(trial.number)

    def experiment(self, trial: FrozenTrial) -> Experiment:
        """What a trial trains, on the first index."""
        point = decoded(self.search.space, trial.params)
        return at(self.search.experiment, point | {"index": self.search.indices[0]})

    def live(self, trial: FrozenTrial) -> optuna.Trial:
        """The trial as Optuna's, to report to and to ask whether to prune."""
        return optuna.Trial(self._study, trial._trial_id)

    def tell(self, trial: FrozenTrial, value: float | None, *, pruned: bool = False) -> None:
        """Ends a trial: with its value, as pruned, or else as failed."""
        with usable(self.folder):
            if value is not None:
                self._study.tell(trial.number, value)
            else:
                self._study.tell(trial.number, state=TrialState.PRUNED if pruned else TrialState.FAIL)

    def explain(self, trial: FrozenTrial, reason: str) -> None:
        """Keeps why a trial failed, in the folder of its first run."""
        with usable(self.folder):
            write_atomic(self.folder_of(trial) / str(self.search.indices[0]) / ERROR, reason.strip() + "\n")

    def reason(self, trial: FrozenTrial) -> str:
        """Why a trial failed, in a line; empty if this machine does not know."""
        path = self.folder_of(trial) / str(self.search.indices[0]) / ERROR
        return path.read_text(encoding="utf-8").partition("\n")[0] if path.exists() else ""

    def give_up(self, number: int, reason: str) -> bool:
        """Ends a trial as failed whose process has died, unless another process has gone on with it."""
        with usable(self.folder), locked(self.folder, wait=True):
            trial = self._study.get_trials(deepcopy=False)[number]
            if self._is_open(trial):
                with suppress(Busy), locked(self.folder_of(trial), wait=False):
                    self.explain(trial, reason)
                    self.tell(trial, None)
                    return True
        return False

    def best(self) -> FrozenTrial | None:
        """The trial with the best value, the first of equal ones; pruned ones do not count."""
        done = [trial for trial in self.trials() if trial.state == TrialState.COMPLETE]
        sign = 1 if self.search.minimize else -1
        return min(done, key=lambda trial: sign * float(trial.value or 0.0), default=None)

    def _claim(self, held: ExitStack) -> FrozenTrial | None:
        with usable(self.folder), locked(self.folder, wait=True):
            for trial in filter(self._is_open, self.trials()):
                with suppress(Busy), ExitStack() as attempt:
                    attempt.enter_context(locked(self.folder_of(trial), wait=False))
                    if self._is_open(self._again(trial)):  # not ended since it was listed
                        held.push(attempt.pop_all())
                        return trial
            while len(trials := self.trials()) < self.total:
                trial = self._enter(trials)
                held.enter_context(locked(self.folder_of(trial), wait=False))
                if any(trial.number == one.number for one in self.trials()):
                    return trial
        return None

    def _enter(self, trials: list[FrozenTrial]) -> FrozenTrial:
        """A new trial, in the storage as running."""
        token = uuid.uuid4().hex
        self._study.add_trial(
            optuna.trial.create_trial(
                state=TrialState.RUNNING,
                params=next_point(self.search, trials),
                distributions=distributions(self.search),
                user_attrs={"place": self._place, "token": token},
            )
        )
        return next(trial for trial in self._study.get_trials(deepcopy=False) if trial.user_attrs.get("token") == token)

    def _again(self, trial: FrozenTrial) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[trial.number]

    def _is_open(self, trial: FrozenTrial) -> bool:
        return not trial.state.is_finished() and trial.user_attrs.get("place") == self._place

    def _settle(self) -> str:
        """Makes the folder this search's, or refuses it as another's; gives the name that the folder has for all."""
        with locked(self.folder, wait=True, what="folder of a search"):
            text, path = settings.dumps(self.search), self.folder / SEARCH
            if path.exists() and path.read_text(encoding="utf-8") != text:
                raise RunError(f"{self.folder} holds another search ({SEARCH} differs); choose another folder.")
            if not (self.folder / PLACE).exists():
                write_atomic(self.folder / PLACE, uuid.uuid4().hex)
            write_atomic(path, text)
            return (self.folder / PLACE).read_text(encoding="utf-8")


def _pruner(search: Search) -> optuna.pruners.BasePruner:
    """None ends in the first quarter of its epochs, where learning rates alone decide."""
    if not search.prune:
        return optuna.pruners.NopPruner()
    return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=search.experiment.training.epochs // 4)
