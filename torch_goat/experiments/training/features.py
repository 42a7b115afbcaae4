"""Models of the features alone, fitted with scikit-learn: a baseline that every network should beat.

Their penalty and their number of trees are chosen on the validation nodes, as networks choose their epoch there.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from torch_goat.experiments.models import Network
from torch_goat.experiments.models.fitted import Trees
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER, decisive
from torch_goat.experiments.training.options import TrainingOptions
from torch_goat.experiments.training.result import Epoch, Stopped
from torch_goat.experiments.training.task import Task

ROUNDS: Final = 10  # of boosting at a time
PATIENCE: Final = 40  # rounds without an improvement
UNSEEN: Final = -10.0  # score of a class without training nodes
_FIELDS: Final = {"feature": "feature_idx", "threshold": "num_threshold"}  # names that scikit-learn has for arrays
_MIXED: Final = 1e-6  # relative difference of two evaluations of the same trees


class FittedModel:
    """A model of the features that has been fitted: what :class:`Loop` has after training, for a single epoch.

    Args:
        network: A network of a fitted kind, whose weights are set.
        task: The nodes to fit and to choose on.
        options: The options of training, of which ``class_weights`` and the metric apply.
        fabric: For its device.
        seed: Of the trees' bins, if there are many nodes.
        trial: Whether to fit roughly, to estimate the time of :attr:`trial_factor` times the work.
    """

    stopped: Stopped = "epochs"

    def __init__(
        self, network: Network, task: Task, options: TrainingOptions, fabric: Any, seed: int = 0, *, trial: bool = False
    ) -> None:
        self.network, self.task, self.options, self.fabric = network.eval(), task, options, fabric
        self.metric = options.metric or decisive(task.metric, options.class_weights)
        self._x = np.ascontiguousarray(task.data.x.double().numpy())
        self._nodes, self._y = task.train_nodes.numpy(), task.train_targets.cpu().numpy()
        self._seed, self._trial = seed, trial
        start = time.perf_counter()
        fits: dict[str, Callable[[], Iterator[dict[str, Tensor]]]]
        fits = {"constant": self._constant, "linear": self._linear, "trees": self._trees}
        values: list[float] = []
        best: dict[str, Tensor] = {}
        for weights in fits[network.options.name]():
            self._load(weights)
            value = task.metrics(self.predict())["val"][self.metric]
            value = value if self.metric in LOWER_IS_BETTER else -value
            best = weights if not values or value < min(values) else best
            values.append(value)
            if self._stops(values):
                break
        self._load(best)
        self.best = self.network.state_dict()
        out = self.predict()
        measured = [float(task.loss(out).detach()), *task.measure(out).tolist(), time.perf_counter() - start]
        self.best_epoch, self.epochs = 1, [Epoch(1, 1, task.metric, *measured)]

    @property
    def trial_factor(self) -> float:
        """How many times longer a whole fit takes than a trial, at most."""
        options = self.network.options
        factors = {"linear": 2.0 * len(options.penalties), "trees": max(1.0, options.rounds / ROUNDS)}
        return factors.get(options.name, 1.0)

    def predict(self) -> Tensor:
        """The output ``[N, C]``."""
        x = self.task.data.x
        with torch.no_grad():
            return self.network(x, torch.empty(2, 0, dtype=torch.long)).to(self.fabric.device)

    def _load(self, weights: dict[str, Tensor]) -> None:
        self.network.load_state_dict({f"layers.0.{name}": value for name, value in weights.items()})

    def _stops(self, values: Sequence[float]) -> bool:
        """Whether enough was tried."""
        if self._trial:
            return True
        waited = ROUNDS * (len(values) - 1 - int(np.argmin(values)))
        return self.network.options.name == "trees" and waited >= PATIENCE

    def _constant(self) -> Iterator[dict[str, Tensor]]:
        if not self.task.classification:
            yield {"value": torch.as_tensor(self._y.mean(axis=0)).float()}
            return
        counts = np.bincount(self._y, minlength=self.network.out_channels)
        with np.errstate(divide="ignore"):
            scores = np.log(counts / counts.sum())
        yield {"value": torch.as_tensor(np.maximum(scores, UNSEEN)).float()}

    def _linear(self) -> Iterator[dict[str, Tensor]]:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression, Ridge

        x = self._x[self._nodes]
        for penalty in self.network.options.penalties:
            if not self.task.classification:
                ridge = Ridge(alpha=10 * penalty).fit(x, self._y)
                coefficients, intercept = np.atleast_2d(ridge.coef_), np.atleast_1d(ridge.intercept_)
            else:
                weight = "balanced" if self.options.class_weights else None
                model = LogisticRegression(C=1 / penalty, class_weight=weight, max_iter=20 if self._trial else 500)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    model.fit(x, self._y)
                slopes, offsets = model.coef_, model.intercept_
                if len(model.classes_) == 2:  # one score, which is the difference of two
                    slopes, offsets = np.concatenate([-slopes, slopes]) / 2, np.concatenate([-offsets, offsets]) / 2
                coefficients = np.zeros((self.network.out_channels, x.shape[1]))
                intercept = np.full(self.network.out_channels, UNSEEN)
                coefficients[model.classes_], intercept[model.classes_] = slopes, offsets
            yield {"weight": torch.as_tensor(coefficients).float(), "bias": torch.as_tensor(intercept).float()}

    def _trees(self) -> Iterator[dict[str, Tensor]]:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        x, options = self._x[self._nodes], self.network.options
        shared = {
            "learning_rate": options.shrinkage, "max_leaf_nodes": options.max_leaves,
            "min_samples_leaf": options.min_leaf_nodes, "l2_regularization": options.leaf_l2, "early_stopping": False,
            "warm_start": True, "random_state": self._seed,
        }  # fmt: skip
        model: Any
        if self.task.classification:
            weight = "balanced" if self.options.class_weights else None
            model = HistGradientBoostingClassifier(class_weight=weight, **shared)
        else:
            model = HistGradientBoostingRegressor(**shared)
        y = self._y if self.task.classification else self._y[:, 0]
        for count in [*range(ROUNDS, options.rounds, ROUNDS), options.rounds]:
            model.set_params(max_iter=count).fit(x, y)
            classes = model.classes_ if self.task.classification else np.zeros(1, dtype=int)
            weights = tree_arrays(model, classes, self.network.out_channels)
            if count <= ROUNDS:
                _check_export(model, weights, x, self.network.out_channels)
            yield weights


def import_for(model: str) -> None:
    """Imports what a fitted model needs, which takes seconds; raises an error if scikit-learn is missing."""
    if model == "constant":
        return
    try:
        import_module("sklearn.linear_model" if model == "linear" else "sklearn.ensemble")
    except ModuleNotFoundError as error:
        message = f"the model {model!r} needs scikit-learn; install it with: pip install 'torch-goat[cli]'."
        raise ImportError(message) from error


def tree_arrays(model: Any, classes: np.ndarray, out_channels: int) -> dict[str, Tensor]:
    """The arrays of :class:`~torch_goat.experiments.models.fitted.Trees` of a fitted model of scikit-learn's."""
    grown = [(tree.nodes, place) for row in model._predictors for place, tree in enumerate(row)]
    width = max(len(nodes) for nodes, _ in grown)
    arrays = {name: np.zeros((len(grown), width)) for name in ("feature", "threshold", "left", "right", "value")}
    arrays["left"][:] = arrays["right"][:] = np.arange(width)  # leaves, also beyond the tree
    for row, (nodes, _) in enumerate(grown):
        inner = np.flatnonzero(nodes["is_leaf"] == 0)
        for name in ("feature", "threshold", "left", "right"):
            arrays[name][row, inner] = nodes[_FIELDS.get(name, name)][inner]
        arrays["value"][row, : len(nodes)] = nodes["value"]
    found = {name: torch.as_tensor(array) for name, array in arrays.items()}
    found |= {name: found[name].long() for name in ("feature", "left", "right")}
    baseline, places = np.asarray(model._baseline_prediction).reshape(-1), np.array([place for _, place in grown])
    whole = torch.full((out_channels,), UNSEEN if len(classes) > 1 else 0.0).double()
    if len(classes) == 2:  # one score, which is the difference of two
        found["output"] = torch.as_tensor(np.repeat(classes, len(grown)))
        signs = torch.tensor([-0.5, 0.5]).double().repeat_interleave(len(grown)).view(-1, 1)
        found |= {name: found[name].repeat(2, 1) for name in arrays}
        found["value"] = found["value"] * signs
        whole[torch.as_tensor(classes)] = torch.tensor([-0.5, 0.5]).double() * float(baseline[0])
    else:
        found["output"] = torch.as_tensor(classes[places])
        whole[torch.as_tensor(classes)] = torch.as_tensor(baseline).double()
    return found | {"baseline": whole}


def _check_export(model: Any, weights: dict[str, Tensor], x: np.ndarray, out_channels: int) -> None:
    """Raises an error if the arrays do not predict as scikit-learn does, whose trees have no public format."""
    trees, few = Trees(out_channels), x[:100]
    trees.load_state_dict(weights)
    found = trees(torch.as_tensor(few), torch.empty(2, 0)).numpy()
    if hasattr(model, "classes_"):
        expected = model.decision_function(few)
        found = found[:, model.classes_]
        found = found[:, 1] - found[:, 0] if len(model.classes_) == 2 else found
    else:
        expected, found = model.predict(few), found[:, 0]
    if not np.allclose(found, expected, rtol=_MIXED, atol=_MIXED):
        raise RuntimeError(
            "this version of scikit-learn stores boosted trees in another way; install one that torch-goat supports, "
            "or leave out the model 'trees'."
        )
