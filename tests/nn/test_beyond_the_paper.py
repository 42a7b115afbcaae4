"""The options that the paper's layer does not have."""

import inspect

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GATConv

from tests.backends import AVAILABLE, device_of
from tests.compare import relative_error
from tests.graphs import small_graph
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.models.kinds import KINDS
from torch_goat.nn import GOATConv

N = 10


def layers(**options) -> tuple[GOATConv, GOATConv, Tensor, Tensor]:
    """The layer with an option and the same layer without."""
    conv = GOATConv(5, 4, heads=2, bias=False, **{"mean_residual": False} | options).double()
    plain = GOATConv.paper(5, 4, heads=2).double()
    plain.load_state_dict(conv.state_dict(), strict=False)
    return conv, plain, torch.randn(N, 5).double(), small_graph()


def test_the_mean_residual_is_a_gat() -> None:
    conv, plain, x, edge_index = layers(mean_residual=True)
    gat = GATConv(5, 4, heads=2, bias=False).double()
    gat.lin.weight.data.copy_(conv.lin_src.weight.data)
    gat.att_src.data.copy_(conv.attention.att_src.data.unsqueeze(0))
    gat.att_dst.data.copy_(conv.attention.att_dst.data.unsqueeze(0))
    expected = plain(x, edge_index) + gat(x, edge_index)
    assert relative_error(conv(x, edge_index), expected) < 1e-12
    weights = [conv.lin_src.weight, conv.attention.att_src]
    found = torch.autograd.grad(conv(x, edge_index).square().sum(), weights)
    others = [*plain.parameters(), *gat.parameters()]
    wanted = dict(zip(others, torch.autograd.grad(expected.square().sum(), others, allow_unused=True), strict=True))
    assert relative_error(found[0], wanted[plain.lin_src.weight] + wanted[gat.lin.weight]) < 1e-10
    assert relative_error(found[1], wanted[plain.attention.att_src] + wanted[gat.att_src].squeeze(0)) < 1e-10


def test_the_mean_residual_leaves_out_what_was_not_selected() -> None:
    conv = GOATConv(5, 4, heads=2, bias=False, mean_residual=True, max_neighbors=2, neighbor_selection="top").double()
    x, edge_index = torch.randn(N, 5).double(), small_graph()
    out, ordering = conv(x, edge_index, return_ordering=True)
    plain = GOATConv.paper(5, 4, heads=2, max_neighbors=2, neighbor_selection="top").double()
    plain.load_state_dict(conv.state_dict())
    z = conv.lin_src(x).view(N, 2, 4)
    for node in range(N):
        for head in range(2):
            mean = ordering.weights(node, head) @ z[ordering.neighbors(node, head), head]
            difference = (out - plain(x, edge_index))[node].view(2, 4)[head]
            assert relative_error(difference, mean) < 1e-10


@pytest.mark.parametrize("backend", AVAILABLE)
def test_scaling_multiplies_the_coefficients_by_the_size_of_the_neighbourhood(backend: str) -> None:
    conv, plain, x, _ = layers(scaling="size", backend=backend)
    star = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 1]])
    conv, plain, x, star = (value.to(device_of(backend)) for value in (conv, plain, x[:5], star))
    out, weight = conv(x, star), plain.rnn.weight_ih.detach().clone()
    for node, size in enumerate([4, 2, 1, 1, 1]):  # a node and its neighbours
        plain.rnn.weight_ih.data = size * weight  # the factor of one size moves into the RNN's input weights
        assert relative_error(out[node].cpu(), plain(x, star)[node].cpu()) < 1e-12


def test_normalised_states_do_not_depend_on_the_scale_of_the_input() -> None:
    conv, plain, x, edge_index = layers(state_norm=True)
    conv.attention.att_src.data.zero_()  # coefficients that do not depend on it either
    conv.attention.att_dst.data.zero_()
    small, large = conv(1e2 * x, edge_index), conv(1e4 * x, edge_index)
    assert relative_error(small, large) < 1e-6
    assert relative_error(plain(1e2 * x, edge_index), plain(1e4 * x, edge_index)) > 1e-2


def test_normalisation_leaves_the_coefficients_their_gradient() -> None:
    conv, _, x, edge_index = layers(state_norm=True)
    gradient = torch.autograd.grad(conv(x, edge_index).square().sum(), conv.attention.att_src)[0]
    assert float(gradient.abs().max()) > 1e-6


def test_state_dropout_drops_in_training_only() -> None:
    conv, plain, x, edge_index = layers(state_dropout=0.5)
    assert relative_error(conv(x, edge_index), plain(x, edge_index)) > 1e-3
    assert torch.equal(conv.eval()(x, edge_index), plain.eval()(x, edge_index))
    all_dropped = GOATConv(5, 4, state_dropout=1.0, mean_residual=False)
    assert torch.equal(all_dropped(x.float(), edge_index), all_dropped(0 * x.float(), edge_index))


@pytest.mark.parametrize("rnn", ["lstm", "gru", "rnn"])
def test_orthogonal_weights_are_orthogonal(rnn: str) -> None:
    conv = GOATConv(5, 8, heads=2, rnn=rnn, rnn_init="orthogonal")
    gates = conv.rnn.weight_hh.view(-1, 4, 4)
    assert torch.allclose(gates @ gates.transpose(1, 2), torch.eye(4).expand_as(gates), atol=1e-5)
    bias = (conv.rnn.bias_ih + conv.rnn.bias_hh).view(2, 2, -1, 4)
    expected = torch.zeros_like(bias)
    if rnn == "lstm":
        expected[:, :, 1] = 1  # the forget gate
    assert torch.equal(bias, expected)
    assert conv.rnn.weight_ih.unique().numel() == conv.rnn.weight_ih.numel()


EXTRA = ["mean_residual", "scaling", "state_norm", "state_dropout", "rnn_init", "bias", "residual"]


@pytest.mark.parametrize("option", EXTRA)
def test_the_papers_layer_has_none_of_them(option: str) -> None:
    conv = GOATConv.paper(5, 4, heads=2, rnn="gru")
    assert conv.bias is None
    assert conv.res is None
    with pytest.raises(ValueError, match=f"have no {option}"):
        GOATConv.paper(5, 4, **{option: True})


# A network keeps a node's own state separate, not a layer.
@pytest.mark.parametrize("option", sorted(KINDS["goat"].reads - KINDS["goat-paper"].reads - {"separate_self"}))
def test_networks_have_the_defaults_of_the_layer(option: str) -> None:
    default = inspect.signature(GOATConv).parameters[option].default
    if option == "rnn_init":  # not given, so that a factory's own weights stay
        assert default is None
        default = GOATConv(5, 4).rnn.init
    assert getattr(ModelOptions(), option) == default
