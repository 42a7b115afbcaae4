"""The kinds of layers: what each is and which options it reads; the layers themselves are in :mod:`.layers`."""

from typing import NamedTuple

BACKENDS = ("auto", "reference", "torch", "cpu", "triton")  # those of torch_goat.ops, which imports PyTorch
AGGREGATORS = ("sum", "mean", "min", "max", "var", "std")
SCALERS = ("identity", "amplification", "attenuation", "linear", "inverse_linear")


class Kind(NamedTuple):
    """A kind of layer."""

    description: str
    reads: frozenset[str] = frozenset()  # the options that it reads
    edges: bool = False  # whether it reads edge features
    whole: str = ""  # the field of Part that it needs when it is applied to a part of a graph
    goat: bool = False  # a GOAT layer: it has an ordering, and its states lie within (-1, 1)
    last: str = ""  # the default kind of the last layer in a network of this kind; "" is this kind
    fitted: bool = False  # a whole model of one layer, fitted to the features instead of trained by gradients


_RNN = frozenset({"rnn", "backend"})
_ATTENTION = frozenset({"heads", "head_pooling", "attention_dropout"})
_PAPER = _RNN | _ATTENTION | {"attention", "bidirectional", "max_neighbors", "neighbor_selection"}
_SEPARABLE = _ATTENTION | {"separate_self"}
_GOAT = (
    _PAPER
    | _SEPARABLE
    | {"add_self_loops", "mean_residual", "scaling", "state_norm", "state_dropout", "rnn_init", "order_noise"}
)
_JANOSSY = _RNN | {"permutation_lengths", "permutations"}
_PNA = frozenset({"aggregators", "scalers"})
_GIN = frozenset({"activation", "norm"})
_LINEAR = frozenset({"penalties"})
_TREES = frozenset({"rounds", "shrinkage", "max_leaves", "min_leaf_nodes", "leaf_l2"})

KINDS: dict[str, Kind] = {  # the simpler and faster ones first, as in trials and among equally good models
    "constant": Kind("the majority class or the mean of the training nodes, without the graph", fitted=True),
    "linear": Kind("logistic or ridge regression on the features, without the graph", _LINEAR, fitted=True),
    "trees": Kind("gradient-boosted trees on the features, without the graph", _TREES, fitted=True),
    "mlp": Kind("linear maps of each node alone, without the graph"),
    "gcn": Kind("graph convolution: the mean over neighbours, weighted by degrees", whole="degree"),
    "sage-mean": Kind("GraphSAGE with the mean over neighbours"),
    "sage-max": Kind("GraphSAGE with the maximum over neighbours"),
    "sage-lstm": Kind("GraphSAGE with an LSTM that reads all neighbours in a random order", _RNN, whole="n_id"),
    "gin": Kind("graph isomorphism network: an MLP on the sum over neighbours", _GIN),
    "gat": Kind("graph attention", _SEPARABLE, edges=True),
    "gatv2": Kind("graph attention with dynamic scores", _SEPARABLE, edges=True),
    "pna": Kind("principal neighbourhood aggregation: several aggregators, scaled by degree", _PNA),
    "janossy": Kind("Janossy pooling: the mean of RNNs over sampled orders of some neighbours", _JANOSSY, whole="n_id"),
    "goat": Kind("graph ordering attention", _GOAT, True, "n_id", goat=True, last="gat"),
    "goat-paper": Kind(
        "graph ordering attention, the paper's equations exactly", _PAPER, True, "n_id", goat=True, last="gat"
    ),
}
MODELS = {name: kind.description for name, kind in KINDS.items() if not kind.fitted}  # networks that are trained
FITTED = {name: kind.description for name, kind in KINDS.items() if kind.fitted}  # models of the features alone
