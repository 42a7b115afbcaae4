"""The trials of a search, shared by any number of processes through a storage of Optuna's."""

import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from torch_goat import settings
from torch_goat.experiments import Experiment, RunError
from torch_goat.experiments.run import Run, check_outside_runs, usable, write_error
from torch_goat.experiments.search.search import (
    Point,
    Search,
    at,
    best_first,
    decoded,
    default_point,
    encoded,
    points,
    size,
)
from torch_goat.experiments.search.storage import open_storage
from torch_goat.files import Busy, locked, replace_file

optuna.logging.set_verbosity(optuna.logging.WARNING)  # events report what happens

ATTEMPTS: Final = 20  # draws of a new point before the first unused one is taken
JOURNAL: Final = "journal.log"
SEARCH: Final = "search.toml"
PLACE: Final = ".place"
TRIALS: Final = "trials"  # a folder


class Study:
    """The trials of a search, for any number of processes on any number of machines.

    A trial enters the storage with its parameters in one step. The process that trains it locks its folder, so a trial
    that is not finished and whose folder is not locked has lost its process: the next process that looks for work
    continues it. Trials of another machine that does not share the folder are left to that machine. The storage is the
    path of a journal or the address of a database; if empty, a journal in the folder.
    """

    def __init__(self, search: Search, folder: Path, storage: str, total: int) -> None:
        self.search, self.folder, self.total = search, folder, min(total, size(search.space))
        self.storage = storage
        warmup = search.experiment.training.epochs // 4  # before, only learning rates matter
        median = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=warmup)
        with usable(folder):
            self._place = self._settle()
            self._study = optuna.create_study(
                storage=open_storage(storage or str(folder / JOURNAL)),
                study_name=search.name,
                direction="minimize" if search.minimize else "maximize",
                sampler=optuna.samplers.RandomSampler(),  # not used: points come from next_point
                pruner=median if search.prune else optuna.pruners.NopPruner(),
                load_if_exists=True,
            )

    def trials(self) -> list[FrozenTrial]:
        """The trials so far, at most ``total``, and all finished ones beyond that.

        Two machines that do not share a folder may enter the same point at the same moment; the later trial does not
        count. Finished trials of an earlier, longer search count, so that a shorter one does not lose them.
        """
        counted = {frozenset(trial.params.items()): trial for trial in reversed(self._study.get_trials(deepcopy=False))}
        ordered = sorted(counted.values(), key=lambda trial: trial.number)
        return ordered[: self.total] + [trial for trial in ordered[self.total :] if trial.state.is_finished()]

    def expected(self) -> int:
        """Total number of trials, including earlier ones."""
        return max(self.total, len(self.trials()))

    def finished(self) -> list[FrozenTrial]:
        """The trials that are complete, pruned or failed."""
        return [trial for trial in self.trials() if trial.state.is_finished()]

    def waits(self) -> bool:
        """Whether other processes train trials that this one could continue if they died."""
        return any(self._is_open(trial) for trial in self.trials())

    @contextmanager
    def claimed(self) -> Iterator[FrozenTrial | None]:
        """Claims a trial for this process: one whose process has died, else a new one, else ``None``."""
        with ExitStack() as held:
            yield self._claim(held)

    def folder_of(self, trial: FrozenTrial) -> Path:
        return self.folder / TRIALS / str(trial.number)

    def experiment(self, trial: FrozenTrial) -> Experiment:
        """The experiment of a trial, on the first index."""
        point = decoded(self.search.space, trial.params)
        return at(self.search.experiment, point | {"index": self.search.indices[0]})

    def live(self, trial: FrozenTrial) -> optuna.Trial:
        """The trial as an Optuna trial, for intermediate values and pruning."""
        return optuna.Trial(self._study, trial._trial_id)

    def tell(self, trial: FrozenTrial, value: float | None, *, pruned: bool = False) -> None:
        """Ends a trial as complete if it has a value, else as pruned or failed."""
        with usable(self.folder):
            if value is not None:
                self._study.tell(trial.number, value)
            else:
                self._study.tell(trial.number, state=TrialState.PRUNED if pruned else TrialState.FAIL)

    def explain(self, trial: FrozenTrial, reason: str) -> None:
        """Writes why a trial failed into the folder of its first run."""
        with usable(self.folder):
            write_error(self.folder_of(trial) / str(self.search.indices[0]), reason)

    def reason(self, trial: FrozenTrial) -> str:
        """Why a trial failed, in one line; empty if its folder is on another machine."""
        return Run(self.folder_of(trial) / str(self.search.indices[0])).error

    def give_up(self, number: int, reason: str) -> bool:
        """Ends a trial whose process has died as failed, unless another process continues it."""
        with usable(self.folder), locked(self.folder, wait=True):
            trial = self._study.get_trials(deepcopy=False)[number]
            if self._is_open(trial):
                with suppress(Busy), locked(self.folder_of(trial), wait=False):
                    self.explain(trial, reason)
                    self.tell(trial, None)
                    return True
        return False

    def best(self) -> FrozenTrial | None:
        """The complete trial with the best value, the first of equal ones."""
        done = {trial.number: trial for trial in self.trials() if trial.state == TrialState.COMPLETE}
        values = {number: float(trial.value or 0.0) for number, trial in done.items()}
        return done[best_first(values, self.search.metric)[0]] if done else None

    def _claim(self, held: ExitStack) -> FrozenTrial | None:
        with usable(self.folder), locked(self.folder, wait=True):
            for trial in filter(self._is_open, self.trials()):
                with suppress(Busy), ExitStack() as attempt:
                    attempt.enter_context(locked(self.folder_of(trial), wait=False))
                    now = self._study.get_trials(deepcopy=False)[trial.number]
                    if self._is_open(now):  # not ended since it was listed
                        held.push(attempt.pop_all())
                        return trial
            while len(trials := self.trials()) < self.total:
                trial = self._enter(trials)
                held.enter_context(locked(self.folder_of(trial), wait=False))
                if any(trial.number == one.number for one in self.trials()):
                    return trial
        return None

    def _enter(self, trials: list[FrozenTrial]) -> FrozenTrial:
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

    def _is_open(self, trial: FrozenTrial) -> bool:
        return not trial.state.is_finished() and trial.user_attrs.get("place") == self._place

    def _is_same(self, path: Path) -> bool:
        """Whether a folder holds this search; settings that an earlier version did not have have their defaults."""
        try:
            return settings.dumps(settings.read(Search, path)) == settings.dumps(self.search)
        except ValueError:
            return False

    def _settle(self) -> str:
        """Claims the folder for this search and returns the name of the place that all its processes share."""
        with locked(self.folder, wait=True, what="folder of a search"):
            check_outside_runs(self.folder)
            text, path = settings.dumps(self.search), self.folder / SEARCH
            if path.exists() and not self._is_same(path):
                raise RunError(f"{self.folder} holds another search ({SEARCH} differs); choose another folder.")
            if not (self.folder / PLACE).exists():
                replace_file(self.folder / PLACE, uuid.uuid4().hex)
            replace_file(path, text)
            return (self.folder / PLACE).read_text(encoding="utf-8")


def next_point(search: Search, trials: Sequence[FrozenTrial]) -> Point:
    """A point that no trial has, as Optuna stores it; the same trials, in order, give the same point."""
    first = default_point(search)
    if first is not None and not trials:
        return {key: encoded(value) for key, value in first.items()}
    taken = {frozenset(trial.params.items()) for trial in trials}
    if search.method == "tpe":
        for attempt in range(ATTEMPTS):
            point = _draw_tpe(search, trials, attempt)
            if frozenset(point.items()) not in taken:
                return point
    everywhere = ({key: encoded(value) for key, value in point.items()} for point in points(search.space))
    return next(point for point in everywhere if frozenset(point.items()) not in taken)


def _draw_tpe(search: Search, trials: Sequence[FrozenTrial], attempt: int) -> Point:
    """A draw of the tree-structured Parzen estimators, seeded by the search and the number of the trial."""
    seed = int(np.random.SeedSequence([search.seed, len(trials), attempt]).generate_state(1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions call the two options experimental
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
        study = optuna.create_study(sampler=sampler, direction="minimize" if search.minimize else "maximize")
        study.add_trials([trial for trial in trials if trial.state != TrialState.FAIL])
        return study.ask(distributions(search)).params


def distributions(search: Search) -> dict[str, BaseDistribution]:
    return {key: CategoricalDistribution([encoded(value) for value in values]) for key, values in search.space.items()}
