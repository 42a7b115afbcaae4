import dataclasses
import re
from typing import Any

import pytest
import torch

from tests.experiments.models.cases import graph, network
from torch_goat.experiments.models import MODELS, ModelOptions
from torch_goat.experiments.models.kinds import KINDS
from torch_goat.nn.ragged_rnn import RaggedRNN


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "gta"}, "name='gta' is unknown; did you mean 'gat'?"),
        ({"last": "gcnn"}, "last='gcnn' is unknown; did you mean 'gcn'?"),
        ({"rnn": "lstn"}, "rnn = 'lstn' is unknown; did you mean 'lstm'?"),
        ({"backend": "tritton"}, "backend='tritton' is unknown; did you mean 'triton'?"),
        ({"name": "pna", "aggregators": ("mean", "median")}, "aggregators='median' is unknown"),
        ({"name": "pna", "scalers": ("line",)}, "scalers='line' is unknown; did you mean 'linear'?"),
        ({"name": "pna", "scalers": ()}, "scalers is empty"),
        ({"hidden_channels": 0}, "hidden_channels must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"input_channels": -1}, "input_channels must be at least 0, got -1"),
        ({"input_gain": 0.0}, "input_gain must be a positive number, got 0.0"),
        ({"input_gain": float("nan")}, "input_gain must be a positive number, got nan"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"attention_dropout": float("nan")}, "attention_dropout must be at least 0 and below 1, got nan"),
        ({"name": "janossy", "permutations": 0}, "permutations must be at least 1, got 0"),
        ({"name": "janossy", "permutation_lengths": (5, 0)}, "permutation_lengths must be at least 1 each, got [5, 0]"),
        ({"name": "janossy", "permutation_lengths": (5, 5, 5)}, "has 3 entries, but there are 2 janossy layers"),
        ({"name": "janossy", "last": "gcn", "permutation_lengths": (5, 5)}, "2 entries, but there are 1 janossy"),
        ({"neighbor_selection": "top"}, "neighbor_selection='top' needs max_neighbors of at least 1"),
        ({"order_noise": -0.1}, "order_noise must be a number of at least 0, got -0.1"),
        ({"order_noise": float("nan")}, "order_noise must be a number of at least 0, got nan"),
        ({"order_noise": 0.2, "given_order": True}, "order_noise=0.2 is for an order that is learned"),
        ({"name": "linear", "penalties": (1.0, 0.0)}, "penalties must be positive numbers, got [1.0, 0.0]"),
        ({"name": "linear", "penalties": ()}, "penalties is empty"),
        ({"name": "trees", "rounds": 0}, "rounds must be at least 1, got 0"),
        ({"name": "trees", "shrinkage": 0.0}, "shrinkage must be above 0 and at most 1, got 0.0"),
        ({"name": "trees", "shrinkage": float("nan")}, "shrinkage must be above 0 and at most 1, got nan"),
        ({"name": "trees", "max_leaves": 1}, "max_leaves must be at least 2, got 1"),
        ({"name": "trees", "min_leaf_nodes": 0}, "min_leaf_nodes must be at least 1, got 0"),
        ({"name": "trees", "leaf_l2": -1.0}, "leaf_l2 must be a number of at least 0, got -1.0"),
        ({"output_channels": 4}, "output_channels=4 needs last_channels of at least 1"),
        ({"name": "gat", "last_heads": 2}, "last_heads=2 needs last_channels of at least 1"),
        ({"num_layers": 1, "last_heads": 3}, "last_heads=3 must divide the width of the last layer, 8"),
        ({"num_layers": 1, "last": "gcn"}, "last='gcn' needs num_layers of at least 2"),
        # options that do nothing
        ({"name": "gat", "rnn": "gru"}, "rnn='gru' is read by no layer of this network (gat -> gat); leave it out."),
        ({"name": "gcn", "last_channels": 4, "last_heads": 2}, "last_heads=2 is read by no layer"),
        ({"name": "goat-paper", "order_noise": 0.2}, "order_noise=0.2 is read by no layer"),
        ({"name": "gat", "given_order": True}, "given_order=True is read by no layer"),
        ({"name": "gcn", "heads": 4}, "heads=4 is read by no layer"),
        ({"name": "gcn", "last": "gat", "heads": 4}, "heads=4 is read by no layer"),  # the last layer has one head
        ({"name": "mlp", "attention_dropout": 0.1}, "attention_dropout=0.1 is read by no layer"),
        ({"name": "sage-lstm", "bidirectional": False}, "bidirectional=False is read by no layer"),
        ({"name": "sage-lstm", "permutations": 3}, "permutations=3 is read by no layer"),
        ({"name": "gat", "scalers": ("linear",)}, "scalers=('linear',) is read by no layer"),
        ({"name": "gcn", "num_layers": 1, "hidden_channels": 4}, "hidden_channels=4 is read by no layer"),
        ({"name": "goat", "penalties": (1.0,)}, "penalties=(1.0,) is read by no layer"),
        ({"name": "trees", "penalties": (1.0,)}, "penalties=(1.0,) is read by no layer"),
        ({"name": "linear", "rounds": 20}, "rounds=20 is read by no layer"),
        ({"name": "constant", "dropout": 0.1}, "dropout=0.1 is read by no layer"),
        ({"name": "gcn", "num_layers": 1, "norm": "batch"}, "norm='batch' is read by no layer"),
    ],
)
def test_impossible_values_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"{re.escape(message)}.*(?<=[.?])$"):
        ModelOptions(**values)


def test_options_that_only_some_layers_read() -> None:
    ModelOptions(name="gcn", last="goat", rnn="gru", bidirectional=False, last_channels=5)
    ModelOptions(name="gat", last="pna", heads=4, aggregators=("sum",))
    ModelOptions(name="gin", num_layers=1, norm="batch", activation="relu")  # in the layer itself
    ModelOptions(backend="triton")  # planned for another machine


@pytest.mark.parametrize(
    ("values", "kinds", "linear"),
    [
        ({}, ("goat", "gat"), False),
        ({"num_layers": 3}, ("goat", "goat", "gat"), False),
        ({"num_layers": 1}, ("goat",), True),
        ({"last": "goat"}, ("goat", "goat"), True),
        ({"last": "gcn"}, ("goat", "gcn"), False),
        ({"name": "goat-paper"}, ("goat-paper", "gat"), False),
        ({"name": "gcn", "num_layers": 3}, ("gcn", "gcn", "gcn"), False),
        ({"name": "gcn", "last_channels": 4}, ("gcn", "gcn"), True),
        ({"name": "janossy", "last": "mlp"}, ("janossy", "mlp"), False),
    ],
)
def test_kinds_of_the_layers(values: dict[str, Any], kinds: tuple[str, ...], linear: bool) -> None:
    options = ModelOptions(**values)
    assert options.kinds == kinds
    assert options.linear_output == linear


def test_every_option_is_read_by_some_model() -> None:
    read = frozenset().union(*(ModelOptions(name=name).reads() for name in KINDS))
    assert read == {field.name for field in dataclasses.fields(ModelOptions)}


OTHER = {  # for every option of a layer or between layers, a value that is not the default
    "input_gain": 3.0,
    "input_channels": 7,
    "hidden_channels": 6,
    "num_layers": 3,
    "last_channels": 6,
    "output_channels": 4,
    "last": "gcn",
    "heads": 3,
    "last_heads": 2,
    "head_pooling": "sum",
    "activation": "relu",
    "dropout": 0.2,
    "attention_dropout": 0.4,
    "norm": "layer",
    "residual": True,
    "rnn": "gru",
    "attention": "gatv2",
    "bidirectional": False,
    "max_neighbors": 1,
    "neighbor_selection": "top",
    "add_self_loops": False,
    "separate_self": True,
    "mean_residual": False,
    "scaling": "size",
    "state_norm": True,
    "state_dropout": 0.3,
    "rnn_init": "uniform",
    "aggregators": ("sum", "var"),
    "scalers": ("identity", "linear"),
    "permutation_lengths": (1,),
    "permutations": 3,
}


def shapes_and_outputs(name: str, **values: Any) -> tuple[dict[str, torch.Size], list[torch.Tensor]]:
    torch.manual_seed(1)
    model = network(name, **values)
    x, edge_index = graph()
    outputs = [model.train(mode)(x, edge_index) for mode in (True, False)]
    return {key: value.shape for key, value in model.state_dict().items()}, outputs


@pytest.mark.parametrize("name", MODELS)
def test_every_option_that_is_read_changes_the_network(name: str) -> None:
    # The noise changes gradients only, and a given order needs one.
    reads = ModelOptions(name=name).reads() - {"name", "backend", "order_noise", "given_order"}
    # Where an option matters beside another one only, that one is set.
    base = {"heads": 2, "max_neighbors": 2, "last_channels": 4}
    base = {key: value for key, value in base.items() if key in reads}
    before = shapes_and_outputs(name, **base)
    for option in reads - ({"last"} if name == "gcn" else set()):
        after = shapes_and_outputs(name, **base | {option: OTHER[option]})
        same = before[0] == after[0] and all(torch.equal(*pair) for pair in zip(before[1], after[1], strict=True))
        assert not same, option


@pytest.mark.parametrize("name", [name for name in MODELS if "backend" in KINDS[name].reads])
def test_backend_reaches_the_rnns(name: str) -> None:
    model = network(name, backend="reference")
    assert {module.backend for module in model.modules() if isinstance(module, RaggedRNN)} == {"reference"}
