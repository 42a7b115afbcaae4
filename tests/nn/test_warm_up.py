"""The first call: compiling ahead of it, and the line that says why it takes long."""

import pytest
import torch
from torch_geometric.nn import GCNConv

import torch_goat
from torch_goat.nn import GOAT, GOATConv, RNNAggregation
from torch_goat.ops import compiling

needs_numba = pytest.mark.skipif(not torch_goat.backends()["cpu"].available, reason="numba is not installed")


def new_function():  # without a file, so that numba cannot have cached it
    names = {"__name__": "torch_goat.example"}
    exec("def example(x):\n    return x + 1", names)
    return names["example"]


@needs_numba
def test_compiling_is_announced_once_and_not_if_quiet(monkeypatch, capsys) -> None:
    monkeypatch.setattr(compiling, "_announced", False)
    assert compiling.compiled(new_function())(1) == 2  # the suite is quiet
    assert capsys.readouterr().err == ""
    monkeypatch.delenv("TORCH_GOAT_QUIET")
    for _ in range(2):
        assert compiling.compiled(new_function())(1) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("torch_goat: compiling CPU kernels with numba for this machine, about ")


@needs_numba
def test_warm_up_compiles_both_passes_and_changes_nothing() -> None:
    from torch_goat.ops.ragged_rnn.cpu import sweep

    network = torch.nn.ModuleList([GOAT(3, 7, 2), RNNAggregation(4, 7), GOATConv((3, 5), 7, edge_dim=2)])
    for conv in network.modules():
        if isinstance(conv, GOATConv):
            conv.dropout = 0.5  # which draws random numbers
    before = {name: value.clone() for name, value in network.state_dict().items()}
    drawn = torch.get_rng_state()
    torch_goat.warm_up(network.eval())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not network.training
    for function in (sweep.forward, sweep.backward):
        assert {4, 7} <= {shape.hidden for shape in function._entries}


def test_sizes_that_a_call_has_inferred() -> None:
    conv, lazy = GOATConv(-1, 4, edge_dim=-1), GOATConv((-1, -1), 4)
    edge_index = torch.tensor([[0, 1, 2], [1, 1, 0]])
    conv(torch.randn(3, 5), edge_index, torch.randn(3, 2))
    lazy((torch.randn(3, 5), torch.randn(2, 7)), edge_index)
    torch_goat.warm_up(torch.nn.ModuleList([conv, lazy]))


def test_what_cannot_be_warmed_up() -> None:
    with pytest.raises(ValueError, match="needs a module with a GOATConv or an RNNAggregation, got GCNConv"):
        torch_goat.warm_up(GCNConv(2, 3))
    with pytest.raises(ValueError, match=r"GOATConv\(-1, 4, heads=1\) infers its sizes from its first call"):
        torch_goat.warm_up(GOATConv(-1, 4))
