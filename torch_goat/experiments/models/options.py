import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal, get_args, get_origin, get_type_hints

from torch_goat.experiments.models.layers import AGGREGATORS, KINDS, SCALERS
from torch_goat.ops.ragged_rnn.backends import BACKENDS
from torch_goat.settings import check_types, make_plain, nearest

_SMALLEST = {
    "input_channels": 0,
    "hidden_channels": 1,
    "num_layers": 1,
    "last_channels": 0,
    "heads": 1,
    "max_neighbors": 0,
    "permutations": 1,
}
_OF_EVERY_NETWORK = {
    "name",
    "input_gain",
    "input_channels",
    "num_layers",
    "last_channels",
    "last",
    "dropout",
    "residual",
}
_OF_HEADS = {"heads", "head_pooling"}  # the last layer has one head


@dataclass(frozen=True)
class ModelOptions:
    """A network: its layers, how wide they are, and what stands between them.

    An encoder, if any, maps the input linearly. Each layer drops out of its input, computes, adds the residual, and is
    followed by the normalisation and the activation. The last layer gives the output itself, or a linear output follows
    it. All of this is the same for every kind of layer, so that two networks may differ in their layers alone. An
    option that no layer of the network reads must keep its default.

    Args:
        name: The kind of the layers, a key of :data:`torch_goat.experiments.models.MODELS`.
        input_gain: What the input is multiplied by. Features whose rows sum to one are small, and with them all that a
            network makes of them until its weights have grown, against which weight decay works.
        input_channels: The width of the encoder; there is none if 0.
        hidden_channels: The width of a layer, of one head where there are heads.
        num_layers: The number of layers.
        last_channels: The width of the last layer, followed by a linear output. With 0 the last layer gives the output
            itself, except for the GOAT kinds, whose states lie within (-1, 1): they have ``hidden_channels`` there,
            and the linear output.
        last: The kind of the last of several layers; ``""`` is ``"gat"`` for the GOAT kinds, as in the paper, and the
            kind of the others for the rest. A network of one layer has only the one of its name.
        heads: The number of heads of every layer but the last, which has one (gat, gatv2, goat).
        head_pooling: How heads are joined; ``"cat"`` makes a layer ``heads * hidden_channels`` wide.
        activation: What follows a layer; in a gin layer, what stands between its two linear maps too.
        dropout: The probability of dropping an element of a layer's input.
        attention_dropout: The probability of dropping a coefficient (gat, gatv2, goat).
        norm: The normalisation after a layer, over all nodes or of each node; in a gin layer after its first map too.
        residual: Whether a linear map of a layer's input is added to its output.
        rnn: The sequence model (goat, sage-lstm, janossy).
        attention: The scores (goat).
        bidirectional: Whether neighbours are read from both ends (goat).
        max_neighbors: The most neighbours that are read; all of them if 0 (goat).
        neighbor_selection: Which ones, if not all (goat).
        add_self_loops: Whether a node is in its own neighbourhood (goat). If not, ``residual`` keeps its own state
            apart from its neighbours', as GraphSAGE does.
        mean_residual: Whether the weighted mean of the neighbours is added to what the RNN gives (goat).
        scaling: What a neighbour's state is scaled by, its coefficient or that times their number (goat).
        state_norm: Whether states are normalised before they are scaled and read (goat).
        state_dropout: The probability of dropping an element of the states that are read (goat).
        rnn_init: How the weights of the sequence model are drawn (goat).
        aggregators: The aggregators (pna).
        scalers: Their scalers (pna).
        permutation_lengths: How many neighbours an order reads in the first layer, the second, and so on; the last
            number is that of all further layers (janossy).
        permutations: How many orders evaluation averages over (janossy).
        backend: What computes the RNN, a name of :func:`torch_goat.backends` or ``"auto"`` (goat, sage-lstm, janossy).
    """

    name: str = "goat"
    input_gain: float = 1.0
    input_channels: int = 0
    hidden_channels: int = 8
    num_layers: int = 2
    last_channels: int = 0
    last: str = ""
    heads: int = 1
    head_pooling: Literal["cat", "sum", "mean"] = "cat"
    activation: Literal["elu", "relu"] = "elu"
    dropout: float = 0.5
    attention_dropout: float = 0.0
    norm: Literal["none", "batch", "layer"] = "none"
    residual: bool = False
    rnn: Literal["lstm", "gru", "rnn"] = "lstm"
    attention: Literal["gat", "gatv2"] = "gat"
    bidirectional: bool = True
    max_neighbors: int = 0
    neighbor_selection: Literal["random", "top"] = "random"
    add_self_loops: bool = True
    mean_residual: bool = True
    scaling: Literal["softmax", "size"] = "softmax"
    state_norm: bool = False
    state_dropout: float = 0.0
    rnn_init: Literal["orthogonal", "uniform"] = "orthogonal"
    aggregators: tuple[str, ...] = ("mean", "min", "max", "std")
    scalers: tuple[str, ...] = ("identity", "amplification", "attenuation")
    permutation_lengths: tuple[int, ...] = (5,)
    permutations: int = 20
    backend: str = "auto"

    def __post_init__(self) -> None:
        make_plain(self)
        self._check_values()
        check_types(self)
        self._check_read()
        self._check_together()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each layer."""
        last = self.last or KINDS[self.name].last or self.name
        return (self.name,) * (self.num_layers - 1) + (last if self.num_layers > 1 else self.name,)

    @property
    def linear_output(self) -> bool:
        """Whether a linear map follows the last layer."""
        return self.last_channels > 0 or KINDS[self.kinds[-1]].bounded

    def channels(self, number: int, out_channels: int) -> int:
        """The width of one head of a layer.

        Args:
            number: The layer's number, from 0.
            out_channels: The width of the network's output.
        """
        if number < self.num_layers - 1:
            return self.hidden_channels
        return self.last_channels or (self.hidden_channels if self.linear_output else out_channels)

    def reads(self) -> frozenset[str]:
        """The options that this network reads."""
        *hidden, last = (KINDS[kind] for kind in self.kinds)
        names = _OF_EVERY_NETWORK | (last.reads - _OF_HEADS)
        names = names.union(*(kind.reads for kind in hidden))
        if hidden or (last.bounded and not self.last_channels):
            names |= {"hidden_channels"}
        if hidden or self.linear_output:
            names |= {"activation", "norm"}
        return frozenset(names)

    def _check_values(self) -> None:
        """Refuses what is impossible whatever the other options are."""
        _check_known("name", [self.name], KINDS)
        _check_known("last", [self.last] if self.last else [], KINDS)
        _check_known("aggregators", self.aggregators, AGGREGATORS)
        _check_known("scalers", self.scalers, SCALERS)
        _check_known("backend", [self.backend], BACKENDS)
        for name, hint in _HINTS.items():
            if get_origin(hint) is Literal:
                _check_known(name, [getattr(self, name)], get_args(hint))
            elif get_origin(hint) is tuple and not getattr(self, name):
                raise ValueError(f"{name} is empty; name at least one.")
        for name, smallest in _SMALLEST.items():
            if (value := getattr(self, name)) < smallest:
                raise ValueError(f"{name} must be at least {smallest}, got {value}.")
        if not 0 < self.input_gain < math.inf:
            raise ValueError(f"input_gain must be a positive number, got {self.input_gain}.")
        if min(self.permutation_lengths) < 1:
            raise ValueError(f"permutation_lengths must be at least 1 each, got {list(self.permutation_lengths)}.")
        for name in ("dropout", "attention_dropout", "state_dropout"):
            if not 0 <= (probability := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {probability}.")

    def _check_read(self) -> None:
        """Refuses an option that was set but does nothing."""
        if self.last and self.num_layers == 1:
            raise ValueError(f"last={self.last!r} needs num_layers of at least 2; with one layer set name instead.")
        reads = self.reads()
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default and field.name not in reads:
                chain = " -> ".join(self.kinds)
                raise ValueError(f"{field.name}={value!r} is read by no layer of this network ({chain}); leave it out.")

    def _check_together(self) -> None:
        """Refuses values that do not fit each other."""
        if self.neighbor_selection != "random" and not self.max_neighbors:
            raise ValueError(f"neighbor_selection={self.neighbor_selection!r} needs max_neighbors of at least 1.")
        lengths, sampled = len(self.permutation_lengths), max(1, self.kinds.count("janossy"))
        if lengths > sampled:
            raise ValueError(f"permutation_lengths has {lengths} entries, but there are {sampled} janossy layers.")
        for number, kind in enumerate(self.kinds):
            width = self.channels(number, out_channels=2)
            if self.bidirectional and "bidirectional" in KINDS[kind].reads and width % 2:
                name = "hidden_channels" if width == self.hidden_channels else "last_channels"
                raise ValueError(
                    f"{name}={width} is odd, but a bidirectional RNN gives each direction half of it; choose an even "
                    f"width or bidirectional=false."
                )


_HINTS = get_type_hints(ModelOptions)


def _check_known(name: str, values: Iterable[str], known: Iterable[str]) -> None:
    for value in values:
        if value not in known:
            raise ValueError(f"{name}={value!r} is unknown{nearest(str(value), known)}")
