"""The next point of a search, from the trials so far: the same trials give the same point."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from torch_goat.experiments.search.search import Search
from torch_goat.experiments.search.space import Point, encoded, points

optuna.logging.set_verbosity(optuna.logging.WARNING)  # events say what happens

ATTEMPTS = 20  # to draw a point that is new, before the first new one is taken


def distributions(search: Search) -> dict[str, BaseDistribution]:
    """The space as Optuna knows it."""
    return {key: CategoricalDistribution([encoded(value) for value in values]) for key, values in search.space.items()}


def next_point(search: Search, trials: Sequence[FrozenTrial]) -> Point:
    """A point that no trial has, as Optuna stores it; the space must have one left.

    Args:
        search: The search.
        trials: The trials so far, in their order.
    """
    taken = {_key(trial.params) for trial in trials}
    if search.method == "tpe":
        for attempt in range(ATTEMPTS):
            point = _drawn(search, trials, attempt)
            if _key(point) not in taken:
                return point
    everywhere = ({key: encoded(value) for key, value in point.items()} for point in points(search.space))
    return next(point for point in everywhere if _key(point) not in taken)


def _drawn(search: Search, trials: Sequence[FrozenTrial], attempt: int) -> Point:
    """A draw of the Parzen estimators, seeded by the search and the number of the trial, whoever draws it."""
    seed = int(np.random.SeedSequence([search.seed, len(trials), attempt]).generate_state(1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the two options are called experimental in some versions
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
        study = optuna.create_study(sampler=sampler, direction="minimize" if search.minimize else "maximize")
        study.add_trials([trial for trial in trials if trial.state != TrialState.FAIL])
        return study.ask(distributions(search)).params


def _key(point: Point) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(point.items()))
