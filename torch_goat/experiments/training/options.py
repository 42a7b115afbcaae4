import math
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from torch_goat.data.datasets import DATASETS
from torch_goat.data.fanout import check_fanout
from torch_goat.data.tables import Tables
from torch_goat.experiments.models.options import ModelOptions
from torch_goat.experiments.training.decisions import ThresholdRule
from torch_goat.settings import SettingsError, check_fields, leaves, to_table

Precision = Literal["32-true", "16-mixed", "bf16-mixed", "bf16-true", "64-true"]


@dataclass(frozen=True)
class TrainingOptions:
    """How a network is trained: the ``[training]`` table of a config."""

    epochs: int = 1000  #: The maximum number of epochs.
    #: The maximum number of training nodes per step, over all processes; 0 trains on full batches, one step per epoch.
    batch_size: int = 0
    #: For mini-batches, the maximum number of neighbours sampled per node, starting with the last layer; -1 takes all
    #: neighbours, and so does an empty fanout.
    fanout: tuple[int, ...] = ()
    learning_rate: float = 0.005  #: Adam's learning rate.
    weight_decay: float = 5e-4  #: Adam's weight decay.
    decay_recurrent: bool = True  #: Whether weight decay applies to the weights of RNNs too.
    warmup: int = 0  #: The number of epochs over which the learning rate rises from 0 to its full value.
    #: Whether the learning rate is constant, or falls to 0 over all epochs as half a cosine.
    schedule: Literal["constant", "cosine"] = "constant"
    #: The value to which ``order_noise`` of GOAT layers falls over the first 70 % of the epochs, linearly in 20 steps.
    #: ``None`` keeps ``order_noise`` constant.
    order_noise_end: float | None = None
    #: The decay of an exponential moving average of the weights per epoch, for example 0.99; validation and result use
    #: the averaged weights. 0 turns it off.
    averaging: float = 0.0
    #: The number of epochs without a better validation after which training stops; 0 turns it off.
    patience: int = 250
    #: Which validation value decides the best epoch: the lowest loss, or the best value of the ``metric`` below.
    stop_on: Literal["loss", "metric"] = "loss"
    #: The metric that decides which run is best and, with ``stop_on="metric"``, which epoch. By default that of the
    #: dataset, usually accuracy or MSE; for the best run with ``class_weights``, macro F1.
    metric: Literal["", "accuracy", "macro_f1", "roc_auc"] = ""
    #: Whether all classes have the same weight in the loss, however many training nodes each has.
    class_weights: bool = False
    clip_norm: float = 0.0  #: The maximum norm of the gradient; 0 does not clip.
    precision: Precision = "32-true"  #: The floating-point precision, by Lightning Fabric's names.
    #: The epochs after which the orderings of the GOAT layers are recorded; 0 is before training.
    record_orderings: tuple[int, ...] = ()
    #: Trains for this many epochs, then again from the start with the same seed and the resulting orderings held fixed;
    #: -1 sorts by the current scores, as the paper's GOAT does.
    fixed_ordering: int = -1
    orderings_files: tuple[str, ...] = ()  #: Recorded orderings to hold fixed, one file per GOAT layer.
    #: For two classes, when the second, positive one is predicted: from this probability on (``"0.3"``), or from a
    #: threshold chosen on the validation nodes, for a precision (``"precision=0.9"``) or for the costs of a false
    #: negative and a false positive (``"cost=5:1"``). ``None`` predicts the most probable class.
    threshold: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {self.epochs}.")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be a positive number, got {self.learning_rate}.")
        for key in ("weight_decay", "clip_norm", "patience", "warmup", "batch_size"):
            if not 0 <= getattr(self, key) < math.inf:
                raise ValueError(f"{key} must be at least 0, got {getattr(self, key)}.")
        if self.order_noise_end is not None and not 0 <= self.order_noise_end < math.inf:
            raise ValueError(f"order_noise_end must be a number of at least 0, got {self.order_noise_end}.")
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging must be at least 0 and below 1, got {self.averaging}.")
        for epoch in self.record_orderings:
            if not 0 <= epoch <= self.epochs:
                raise ValueError(f"record_orderings must be epochs from 0 to {self.epochs}, got {epoch}.")
        if self.fixed_ordering < -1:
            raise ValueError(f"fixed_ordering must be -1 (off) or an epoch, got {self.fixed_ordering}.")
        if self.fixed_ordering >= 0 and self.orderings_files:
            raise ValueError("fixed_ordering and orderings_files cannot be combined; set only one of them.")
        if self.threshold is not None:
            ThresholdRule.parse(self.threshold)
        if self.fanout:
            check_fanout(self.fanout)
        if self.fanout and not self.batch_size:
            raise ValueError(f"fanout = {list(self.fanout)} needs mini-batches; set batch_size too, or leave it out.")
        if self.batch_size and self.holds_orderings:
            raise ValueError(
                f"batch_size = {self.batch_size} samples neighbours, whose order cannot be held fixed; leave out "
                "fixed_ordering and orderings_files, or train on full batches."
            )

    @property
    def holds_orderings(self) -> bool:
        """Whether GOAT layers replay given orderings instead of sorting."""
        return self.fixed_ordering >= 0 or bool(self.orderings_files)


@dataclass(frozen=True)
class Experiment:
    """A training run: the same experiment on the same CPU always gives the same result.

    On a GPU, the order of some sums varies, which can become visible after many epochs.
    """

    dataset: str  #: A name in :data:`torch_goat.data.datasets.DATASETS`, or any name for your own graph.
    split: str = ""  #: The dataset's split protocol; empty for its default.
    index: int = 0  #: Which graph of a generated dataset, or which split of a real one, from 0.
    seed: int = 0  #: The seed of the initial weights, of dropout and of all other random draws.
    model: ModelOptions = field(default_factory=ModelOptions)  #: The network.
    training: TrainingOptions = field(default_factory=TrainingOptions)  #: How it is trained.
    tables: Tables | None = None  #: The tables of your own graph.
    graph: str = ""  #: A folder of arrays with your own graph, for :func:`torch_goat.data.loader.open_graph`.
    graph_digest: str | None = None  #: The digest of these arrays, to detect changes; ``None``: no check.

    @property
    def metric(self) -> str:
        """The metric that decides which epoch and which run is best; empty for the first metric of the task."""
        own = self.tables is not None or bool(self.graph)
        known = None if own else DATASETS.get(self.dataset)
        return self.training.metric or (known.judged_by if known else "")

    def __post_init__(self) -> None:
        check_fields(self)
        if self.index < 0:
            raise ValueError(f"index must be at least 0, got {self.index}.")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be from 0 to {2**32 - 1}, got {self.seed}.")
        if self.tables is not None and self.graph:
            raise ValueError(f"tables and graph = {self.graph!r} cannot be combined; set only one of them.")
        if len(self.training.fanout) not in (0, self.model.num_layers):
            raise ValueError(
                f"fanout = {list(self.training.fanout)} has {len(self.training.fanout)} numbers, but the model has "
                f"num_layers = {self.model.num_layers}; give one for each layer."
            )
        model = self.model
        if self.training.holds_orderings and model.max_neighbors and model.neighbor_selection == "random":
            raise ValueError(
                f"max_neighbors = {model.max_neighbors} draws other neighbours in every step, whose order cannot be "
                'held fixed; set neighbor_selection to "top", or leave out fixed_ordering and orderings_files.'
            )
        for key in ("given_order", "order_noise"):
            if self.training.holds_orderings and getattr(model, key):
                raise ValueError(
                    f"{key} = {getattr(model, key)} cannot be combined with an order that is held fixed; leave out "
                    "fixed_ordering and orderings_files, or this."
                )
        if model.given_order and self.tables is not None and not self.tables.order_by:
            raise SettingsError(
                "given_order = True needs tables.order_by (--order-by), the edge column to order neighbours by; name "
                "it, or leave given_order out."
            )
        if self.training.order_noise_end is not None and not model.order_noise:
            raise ValueError(
                f"order_noise_end = {self.training.order_noise_end} needs an order_noise to start from; set "
                "model.order_noise too, or leave it out."
            )


def data_of(experiment: Experiment) -> tuple[Any, ...]:
    """Identifies the graph, the target and the split protocol of an experiment, however files were moved."""
    tables = experiment.tables
    files = tables and (tables.target, tables.digest or (tables.nodes, tables.edges))
    return experiment.dataset, experiment.split, experiment.graph, files


def of_result(experiment: Experiment) -> Experiment:
    """The experiment without what does not change its result: the place of its tables, and what it records."""
    tables, training = experiment.tables, replace(experiment.training, record_orderings=())
    if tables is not None and tables.digest:
        tables = replace(tables, nodes="", edges="")
    return replace(experiment, tables=tables, training=training)


def without_repetition(experiment: Experiment) -> Experiment:
    """The experiment without its seed, its split and what it records: equal for repetitions of the same settings."""
    return replace(experiment, seed=0, index=0, training=replace(experiment.training, record_orderings=()))


_DIGESTS: Final = {"tables.digest": "the tables", "graph_digest": "the arrays"}


def difference(there: Experiment, here: Experiment) -> str:
    """Describes a difference of two experiments, ``"training.epochs = 3 there, 4 here"``; that of the data first."""
    old, new = (dict(leaves(to_table(one))) for one in (there, here))
    keys = [key for key in [*new, *old] if new.get(key) != old.get(key)]
    key = min(keys, key=lambda key: not key.startswith(("dataset", "tables.", "graph")))
    if key in _DIGESTS:
        return f"{_DIGESTS[key]} have changed since"
    return f"{key} = {old.get(key)!r} there, {new.get(key)!r} here"
