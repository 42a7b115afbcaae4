import math
from dataclasses import dataclass, field
from typing import Final, Literal

from torch_goat.data.loader.sampler import check_fanout
from torch_goat.data.tables import Tables
from torch_goat.experiments.models.options import ModelOptions
from torch_goat.settings import check_types, leaves, make_plain, to_table

Precision = Literal["32-true", "16-mixed", "bf16-mixed", "bf16-true", "64-true"]


@dataclass(frozen=True)
class TrainingOptions:
    """How a network is trained: the ``[training]`` table of a recipe.

    Args:
        epochs: The most epochs.
        batch_size: The most training nodes of a step, over all processes; 0 trains in full batches, a step an epoch.
        fanout: Of mini-batches, the most neighbours that are drawn of each node, for the last layer first; -1 draws all
            of them, and so does leaving it out.
        learning_rate: Adam's learning rate.
        weight_decay: Adam's weight decay.
        decay_recurrent: Whether weight decay pulls at the weights of RNNs too.
        warmup: Over how many epochs the learning rate rises from 0 to its full value.
        averaging: How much of the averaged weights an epoch leaves in place, 0.99 for instance; validation and result
            are those of the average. 0 takes the weights as they are.
        patience: After how many epochs without a better validation training stops; 0 goes through all epochs.
        stop_on: What of the validation nodes decides which epoch is best: its loss (the lowest) or its metric
            (accuracy: the highest; for regression MSE: the lowest).
        class_weights: Whether the classes weigh the same in the loss, however many training nodes each has.
        clip_norm: The largest norm of the gradient; 0 does not clip.
        precision: The numbers that are computed with, as Lightning Fabric names them.
        record_orderings: After which epochs the orderings of the GOAT layers are written; 0 is before training.
        fixed_ordering: A network trained for this many epochs gives its orderings, and training starts anew with the
            same seed and these orderings held fixed; -1 sorts by the present scores, as the paper's GOAT does.
        orderings_files: Recorded orderings to hold fixed, one file per GOAT layer.
    """

    epochs: int = 1000
    batch_size: int = 0
    fanout: tuple[int, ...] = ()
    learning_rate: float = 0.005
    weight_decay: float = 5e-4
    decay_recurrent: bool = True
    warmup: int = 0
    averaging: float = 0.0
    patience: int = 250
    stop_on: Literal["loss", "metric"] = "loss"
    class_weights: bool = False
    clip_norm: float = 0.0
    precision: Precision = "32-true"
    record_orderings: tuple[int, ...] = ()
    fixed_ordering: int = -1
    orderings_files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        make_plain(self)
        check_types(self)
        if self.epochs < 1:
            raise ValueError(f"epochs = {self.epochs} is impossible; it must be at least 1.")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate = {self.learning_rate} is impossible; it must be above 0.")
        for key in ("weight_decay", "clip_norm"):
            if not 0 <= getattr(self, key) < math.inf:
                raise ValueError(f"{key} = {getattr(self, key)} is impossible; it must be 0 or more.")
        for key in ("patience", "warmup", "batch_size"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} = {getattr(self, key)} is impossible; it must be 0 (off) or more.")
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging = {self.averaging} is impossible; it must be 0 (off) or more, and below 1.")
        for epoch in self.record_orderings:
            if not 0 <= epoch <= self.epochs:
                raise ValueError(f"record_orderings = {epoch} is impossible; the epochs go from 0 to {self.epochs}.")
        if self.fixed_ordering < -1:
            raise ValueError(f"fixed_ordering = {self.fixed_ordering} is impossible; it must be -1 (off) or an epoch.")
        if self.fixed_ordering >= 0 and self.orderings_files:
            raise ValueError("fixed_ordering and orderings_files exclude each other; leave one of them out.")
        if self.fanout:
            check_fanout(self.fanout)
        if self.fanout and not self.batch_size:
            raise ValueError(f"fanout = {list(self.fanout)} needs mini-batches; set batch_size too, or leave it out.")
        if self.batch_size and (self.fixed_ordering >= 0 or self.orderings_files):
            raise ValueError(
                f"batch_size = {self.batch_size} draws neighbours, whose order cannot be held fixed; leave out "
                "fixed_ordering and orderings_files, or train in full batches."
            )


@dataclass(frozen=True)
class Experiment:
    """One training run, complete: the same experiment on the same CPU gives the same result.

    A GPU adds some numbers up in no fixed order, and training can make the difference visible.

    Args:
        dataset: A name of :data:`torch_goat.data.datasets.DATASETS`, or any name for a graph of one's own.
        split: The dataset's split protocol; empty is its default.
        index: Which graph of a generated dataset, or which split of a real one, from 0.
        seed: The seed of the initial weights, of dropout and of every other draw.
        model: The network.
        training: How it is trained.
        tables: The files of a graph of one's own.
        graph: A folder of arrays with a graph of one's own, as :func:`torch_goat.data.loader.open_graph` opens it.
        graph_digest: The digest of these arrays, so that a run never goes on with others; ``None`` checks nothing.
    """

    dataset: str
    split: str = ""
    index: int = 0
    seed: int = 0
    model: ModelOptions = field(default_factory=ModelOptions)
    training: TrainingOptions = field(default_factory=TrainingOptions)
    tables: Tables | None = None
    graph: str = ""
    graph_digest: str | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        check_types(self)
        if self.index < 0:
            raise ValueError(f"index = {self.index} is impossible; graphs and splits are counted from 0.")
        if self.tables is not None and self.graph:
            raise ValueError(f"tables and graph = {self.graph!r} exclude each other; leave one of them out.")
        if len(self.training.fanout) not in (0, self.model.num_layers):
            raise ValueError(
                f"fanout = {list(self.training.fanout)} has {len(self.training.fanout)} numbers, but the model has "
                f"num_layers = {self.model.num_layers}; name one for each layer."
            )
        held = self.training.fixed_ordering >= 0 or self.training.orderings_files
        if held and self.model.max_neighbors and self.model.neighbor_selection == "random":
            raise ValueError(
                f"max_neighbors = {self.model.max_neighbors} draws other neighbours in every step, whose order cannot "
                'be held fixed; set neighbor_selection to "top", or leave out fixed_ordering and orderings_files.'
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed = {self.seed} is impossible; it must be from 0 to 4294967295.")


_DIGESTS: Final = {"tables.digest": "the tables", "graph_digest": "the arrays"}


def difference(there: Experiment, here: Experiment) -> str:
    """Describes a difference of two experiments, ``"training.epochs = 3 there, 4 here"``; that of the data first."""
    old, new = (dict(leaves(to_table(one))) for one in (there, here))
    keys = [key for key in [*new, *old] if new.get(key) != old.get(key)]
    key = min(keys, key=lambda key: not key.startswith(("dataset", "tables.", "graph")))
    if key in _DIGESTS:
        return f"{_DIGESTS[key]} have changed since"
    return f"{key} = {old.get(key)!r} there, {new.get(key)!r} here"
