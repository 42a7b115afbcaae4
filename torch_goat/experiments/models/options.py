import math
from dataclasses import dataclass, fields
from typing import Literal

from torch_goat.experiments.models.kinds import AGGREGATORS, BACKENDS, KINDS, SCALERS
from torch_goat.settings import check_fields, nearest

_SMALLEST = {
    "input_channels": 0, "last_channels": 0, "output_channels": 0, "max_neighbors": 0, "hidden_channels": 1,
    "num_layers": 1, "heads": 1, "last_heads": 1, "permutations": 1, "rounds": 1, "max_leaves": 2, "min_leaf_nodes": 1,
}  # fmt: skip
_OF_NETWORK = {
    "name", "num_layers", "last", "last_channels", "output_channels", "input_gain", "input_channels", "dropout",
    "residual",
}  # fmt: skip
_OF_HEADS = {"heads", "head_pooling"}  # of all layers but the last


@dataclass(frozen=True)
class ModelOptions:
    """The options of a network: the kind and width of its layers, and what is between the layers.

    An optional encoder maps the input linearly. Before each layer, dropout is applied; after it, the residual, the
    normalisation and the activation. The last layer gives the output, or is followed by a linear output or an MLP. All
    of this is the same for every kind of layer, so that two networks can differ in their layers only. Setting an option
    that no layer of the network reads raises an error.

    The kinds of layers that read an option are given in parentheses. The models that are fitted to the features, linear
    and trees, read only their own. They choose the penalty and the number of rounds on the validation nodes, as
    networks choose their epoch.
    """

    name: str = "goat"  #: The kind of the layers, a key of :data:`torch_goat.experiments.models.MODELS`.
    #: A factor for the input. Features whose rows sum to one are small, and so is everything computed from them until
    #: the weights have grown, which weight decay counteracts.
    input_gain: float = 1.0
    input_channels: int = 0  #: The width of the encoder; 0 for none.
    hidden_channels: int = 8  #: The width of a layer, per head if there are heads.
    num_layers: int = 2  #: The number of layers.
    #: The width of the last layer, followed by a linear output. With 0 the last layer gives the output itself, except
    #: for the GOAT kinds, whose states lie within (-1, 1): these have ``hidden_channels`` there, and the linear output.
    last_channels: int = 0
    #: The width of a hidden layer with ReLU in the output, which then is an MLP; 0 for a linear output.
    output_channels: int = 0
    #: The kind of the last of several layers; ``""`` is ``"gat"`` for the GOAT kinds, as in the paper, else ``name``.
    last: str = ""
    heads: int = 1  #: The number of heads of every layer but the last (gat, gatv2, goat).
    #: The number of heads of the last layer, which share its width and are concatenated (gat, gatv2, goat).
    last_heads: int = 1
    #: How heads are combined; ``"cat"`` makes a layer ``heads * hidden_channels`` wide.
    head_pooling: Literal["cat", "sum", "mean"] = "cat"
    #: The activation after a layer; in a gin layer, also between its two linear maps.
    activation: Literal["elu", "relu"] = "elu"
    dropout: float = 0.5  #: The dropout probability of a layer's input.
    attention_dropout: float = 0.0  #: The dropout probability of attention coefficients (gat, gatv2, goat).
    #: The normalisation after a layer, over all nodes or per node; in a gin layer, also after its first linear map.
    norm: Literal["none", "batch", "layer"] = "none"
    residual: bool = False  #: Whether a linear map of a layer's input is added to its output.
    rnn: Literal["lstm", "gru", "rnn", "mingru", "minlstm"] = "lstm"  #: The sequence model (goat, sage-lstm, janossy).
    attention: Literal["gat", "gatv2"] = "gat"  #: The attention scores (goat).
    bidirectional: bool = True  #: Whether neighbours are read in both directions (goat).
    max_neighbors: int = 0  #: The maximum number of neighbours that are read; 0 for all (goat).
    neighbor_selection: Literal["random", "top"] = "random"  #: Which neighbours are kept (goat).
    #: Whether a node is in its own neighbourhood (goat). If not, ``residual`` keeps its own state separate from its
    #: neighbours', as GraphSAGE does.
    add_self_loops: bool = True
    #: Whether a node's own state is kept separate, as in GAT-sep of Platonov et al.: no self loops are added, and a
    #: linear map reads the node's input next to the layer's output (gat, gatv2, goat).
    separate_self: bool = False
    mean_residual: bool = True  #: Whether the weighted mean of the neighbours is added to the RNN's output (goat).
    #: The factor of a neighbour's state: its coefficient, or its coefficient times the number of neighbours (goat).
    scaling: Literal["softmax", "size"] = "softmax"
    state_norm: bool = False  #: Whether states are normalised before they are scaled and read (goat).
    state_dropout: float = 0.0  #: The dropout probability of the states that are read (goat).
    #: The noise with which a second order is drawn in training, to give the order a gradient of its own; 0 for none
    #: (goat).
    order_noise: float = 0.0
    #: Whether neighbours are read in decreasing order of ``data.edge_key`` instead of their scores (goat, goat-paper).
    given_order: bool = False
    rnn_init: Literal["orthogonal", "uniform"] = "orthogonal"  #: The initialisation of the RNN's weights (goat).
    aggregators: tuple[str, ...] = ("mean", "min", "max", "std")  #: The aggregators (pna).
    scalers: tuple[str, ...] = ("identity", "amplification", "attenuation")  #: The scalers of the aggregators (pna).
    #: The number of neighbours in a permutation for the first layer, the second, and so on; the last number applies to
    #: all further layers (janossy).
    permutation_lengths: tuple[int, ...] = (5,)
    permutations: int = 20  #: The number of permutations that evaluation averages over (janossy).
    #: The RNN backend, a name of :func:`torch_goat.backends` or ``"auto"`` (goat, sage-lstm, janossy).
    backend: str = "auto"
    #: The L2 penalties to choose from: the inverse of scikit-learn's ``C`` for classes; for numbers, a tenth of its
    #: ``alpha`` (linear).
    penalties: tuple[float, ...] = (100.0, 10.0, 1.0, 0.1, 0.01)
    #: The maximum number of rounds of boosting, which ends after 40 rounds without an improvement (trees).
    rounds: int = 300
    shrinkage: float = 0.1  #: The factor of each tree's output, which is the learning rate of boosting (trees).
    max_leaves: int = 31  #: The maximum number of leaves of a tree (trees).
    min_leaf_nodes: int = 20  #: The minimum number of training nodes in a leaf (trees).
    leaf_l2: float = 0.0  #: The L2 penalty of the leaves' outputs (trees).

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_values()
        self._check_read()
        self._check_together()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each layer."""
        if self.fitted:
            return (self.name,)
        last = self.last or KINDS[self.name].last or self.name
        return (self.name,) * (self.num_layers - 1) + (last if self.num_layers > 1 else self.name,)

    @property
    def fitted(self) -> bool:
        """Whether this is a model that is fitted to the features, which reads no option of networks."""
        return KINDS[self.name].fitted

    @property
    def num_orderings(self) -> int:
        """The number of GOAT layers, each of which has an ordering."""
        return sum(KINDS[kind].goat for kind in self.kinds)

    @property
    def linear_output(self) -> bool:
        """Whether a linear map follows the last layer; the states of a GOAT layer cannot be an output."""
        return self.last_channels > 0 or KINDS[self.kinds[-1]].goat

    def channels(self, number: int, out_channels: int) -> int:
        """The width of one head of a layer, counted from 0, in a network with this many outputs."""
        if number < len(self.kinds) - 1:
            return self.hidden_channels
        width = self.last_channels or (self.hidden_channels if self.linear_output else out_channels)
        return width // self.last_heads

    def reads(self) -> frozenset[str]:
        """The options that this network reads."""
        if self.fitted:
            return KINDS[self.name].reads | {"name"}
        *hidden, last = (KINDS[kind] for kind in self.kinds)
        names = _OF_NETWORK | (last.reads - _OF_HEADS)
        names = names.union(*(kind.reads for kind in hidden))
        names |= {"last_heads"} if "heads" in last.reads else set()
        names |= {"given_order"} if self.num_orderings else set()
        if hidden or (last.goat and not self.last_channels):
            names |= {"hidden_channels"}
        if hidden or self.linear_output:
            names |= {"activation", "norm"}
        return frozenset(names)

    def _check_values(self) -> None:
        """Checks each option by itself."""
        lists = {"aggregators": AGGREGATORS, "scalers": SCALERS}
        for name, known in {"name": KINDS, "last": {"", *KINDS}, "backend": BACKENDS, **lists}.items():
            for value in getattr(self, name) if name in lists else [getattr(self, name)]:
                if value not in known or (name == "last" and value and KINDS[value].fitted):
                    raise ValueError(f"{name}={value!r} is unknown{nearest(value, known)}")
        for name in ("aggregators", "scalers", "permutation_lengths", "penalties"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; name at least one.")
        for name, smallest in _SMALLEST.items():
            if (value := getattr(self, name)) < smallest:
                raise ValueError(f"{name} must be at least {smallest}, got {value}.")
        if not 0 < self.input_gain < math.inf:
            raise ValueError(f"input_gain must be a positive number, got {self.input_gain}.")
        if not all(0 < penalty < math.inf for penalty in self.penalties):
            raise ValueError(f"penalties must be positive numbers, got {list(self.penalties)}.")
        if not 0 < self.shrinkage <= 1:
            raise ValueError(f"shrinkage must be above 0 and at most 1, got {self.shrinkage}.")
        for name in ("order_noise", "leaf_l2"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise ValueError(f"{name} must be a number of at least 0, got {value}.")
        if min(self.permutation_lengths) < 1:
            raise ValueError(f"permutation_lengths must be at least 1 each, got {list(self.permutation_lengths)}.")
        for name in ("dropout", "attention_dropout", "state_dropout"):
            if not 0 <= (probability := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {probability}.")

    def _check_read(self) -> None:
        """Raises an error for an option that is set but has no effect."""
        if self.last and self.num_layers == 1:
            raise ValueError(f"last={self.last!r} needs num_layers of at least 2; with one layer set name instead.")
        reads = self.reads()
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default and field.name not in reads:
                chain = " -> ".join(self.kinds)
                raise ValueError(f"{field.name}={value!r} is read by no layer of this network ({chain}); leave it out.")

    def _check_together(self) -> None:
        """Checks options that depend on each other."""
        if self.neighbor_selection != "random" and not self.max_neighbors:
            raise ValueError(f"neighbor_selection={self.neighbor_selection!r} needs max_neighbors of at least 1.")
        for name in ("output_channels", "last_heads"):
            if getattr(self, name) != getattr(type(self), name) and not self.linear_output:
                raise ValueError(f"{name}={getattr(self, name)} needs last_channels of at least 1.")
        if (width := self.last_channels or self.hidden_channels) % self.last_heads:
            raise ValueError(f"last_heads={self.last_heads} must divide the width of the last layer, {width}.")
        if self.given_order and self.order_noise:
            raise ValueError(
                f"order_noise={self.order_noise} is for an order that is learned and cannot be combined with "
                "given_order=True; set only one of them."
            )
        lengths, sampled = len(self.permutation_lengths), max(1, self.kinds.count("janossy"))
        if lengths > sampled:
            raise ValueError(f"permutation_lengths has {lengths} entries, but there are {sampled} janossy layers.")
