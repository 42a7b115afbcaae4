import hashlib
from dataclasses import dataclass
from typing import Any, Final, Literal

from torch_goat import settings
from torch_goat.datasets import DATASETS
from torch_goat.search.space import size
from torch_goat.settings import SettingsError, nearest
from torch_goat.training import Experiment
from torch_goat.training.metrics import LOWER_IS_BETTER

METRICS: Final = {"classification": ("accuracy", "macro_f1", "roc_auc"), "regression": ("mse", "r2")}


@dataclass(frozen=True)
class Search:
    """A search, complete but for its length: the same search comes to the same trials, one at a time without pruning.

    Args:
        experiment: Where it begins: everything that is not searched, and the seed of every training.
        space: The values of every key that is searched.
        indices: The graphs or splits that a trial trains on; its value is their mean.
        metric: What of the validation nodes is optimised.
        method: ``"tpe"`` (tree-structured Parzen estimators) or ``"grid"`` (all points in their order).
        seed: The seed of the sampler.
        prune: Whether trials that do worse than the median end early.
    """

    experiment: Experiment
    space: dict[str, tuple[Any, ...]]
    indices: tuple[int, ...] = (0,)
    metric: str = "accuracy"
    method: Literal["tpe", "grid"] = "tpe"
    seed: int = 0
    prune: bool = False

    def __post_init__(self) -> None:
        name = self.experiment.dataset
        if name not in DATASETS:
            raise SettingsError(f"there is no dataset {name!r}{nearest(name, DATASETS)}")
        dataset = DATASETS[name]
        known = METRICS[dataset.task]
        if self.metric not in known:
            raise SettingsError(f"{dataset.name} has no metric {self.metric!r}{nearest(self.metric, known)}")
        if self.prune and self.metric != known[0]:
            raise SettingsError(f"pruning watches the {known[0]}, not the {self.metric}; leave --prune out.")
        if not self.indices or len(set(self.indices)) < len(self.indices):
            raise SettingsError(f"the indices {list(self.indices)} must be one or more, each once.")
        for index in self.indices:
            dataset.check(self.experiment.split, index)

    @property
    def name(self) -> str:
        """A name that another search does not have."""
        return f"{self.experiment.dataset}-{self.experiment.model.name}-{fingerprint(self)}"

    @property
    def minimize(self) -> bool:
        """Whether lower values are better."""
        return self.metric in LOWER_IS_BETTER

    @property
    def size(self) -> int:
        """The number of points in the space."""
        return size(self.space)


def fingerprint(value: Any) -> str:
    """Eight letters that stand for all settings of a dataclass."""
    return hashlib.sha256(settings.dumps(value).encode()).hexdigest()[:8]
