"""Scores, order and coefficients in few launches, on a GPU or in Triton's interpreter, against the plain functions."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends import AVAILABLE
from torch_goat.nn import GOATConv, Neighborhoods
from torch_goat.ops.segments import segment_softmax
from torch_goat.ops.sort import sort_tokens

pytest.importorskip("triton", reason="Triton is not installed")

from torch_goat.ops.fused_order import order_and_weigh
from torch_goat.ops.ragged_rnn.triton import mean

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytestmark = pytest.mark.skipif("triton" not in AVAILABLE, reason="there is neither a GPU nor the interpreter")


@given(
    seed=st.integers(0, 2**31),
    num_nodes=st.integers(1, 9),
    num_edges=st.integers(0, 30),
    heads=st.integers(1, 3),
    values=st.sampled_from([2, 1000]),  # few values: many ties
    large=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_equals_scores_sort_and_softmax(
    seed: int, num_nodes: int, num_edges: int, heads: int, values: int, large: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return (torch.randint(values, shape, generator=generator) - values // 2).float().to(DEVICE) / 7

    edges = torch.randint(num_nodes, (2, num_edges), generator=generator).to(DEVICE)
    hood = Neighborhoods.from_edge_index(edges, num_nodes)
    shares = [draw(heads, num_nodes).requires_grad_() for _ in range(2)]
    x, grads = draw(num_nodes, 3), [draw(heads, hood.num_places) for _ in range(2)]

    with pytest.MonkeyPatch.context() as patch:
        if large:  # as in a graph with hubs
            patch.setattr(mean, "LARGE", 0)
            patch.setattr(mean, "LONGEST", 2)
        token, source, score, alpha = order_and_weigh(*shares, 0.2, x, hood)
        found = torch.autograd.grad([score, alpha], shares, grads)

    plain = F.leaky_relu(shares[0][:, hood.source] + shares[1][:, hood.target], 0.2)
    expected_token, expected_source = sort_tokens(plain.detach(), x, hood.source, hood.target, num_nodes)
    assert torch.equal(token, expected_token)
    assert torch.equal(source, expected_source)
    plain = plain.gather(1, expected_token)
    weight = segment_softmax(plain, hood)
    torch.testing.assert_close(score, plain)
    torch.testing.assert_close(alpha, weight)
    for one, other in zip(found, torch.autograd.grad([plain, weight], shares, grads), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_layer_in_float32_equals_the_reference() -> None:
    torch.manual_seed(0)
    x, edges = torch.randn(6, 5, device=DEVICE, requires_grad=True), torch.randint(6, (2, 20), device=DEVICE)
    conv = GOATConv(5, 4, heads=2, backend="triton").to(DEVICE)
    out, ordering = conv(x, edges, return_ordering=True)
    (grad,) = torch.autograd.grad(out.square().sum(), x)
    plain = GOATConv(5, 4, heads=2, backend="reference").to(DEVICE).double()  # cuDNN uses TF32 for float32
    plain.load_state_dict(conv.state_dict())
    exact = x.detach().double().requires_grad_()
    expected = plain(exact, edges, ordering=ordering)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-6)
    (expected_grad,) = torch.autograd.grad(expected.square().sum(), exact)
    torch.testing.assert_close(grad.double(), expected_grad, rtol=1e-4, atol=1e-5)


def test_one_loss_of_the_scores_alone() -> None:
    hood = Neighborhoods.from_edge_index(torch.tensor([[0, 1], [1, 1]], device=DEVICE), 2)
    shares = [torch.tensor([[1.0, -2.0]], device=DEVICE, requires_grad=True) for _ in range(2)]
    *_, score, _ = order_and_weigh(*shares, 0.5, torch.zeros(2, 1, device=DEVICE), hood)
    # Node 0 reads itself, 1 + 1 = 2. Node 1 reads node 0, 1 - 2 = -1, and itself, -2 - 2 = -4, both halved.
    assert score.tolist() == [[2.0, -0.5, -2.0]]
    of_source, of_target = torch.autograd.grad(score.sum(), shares)
    assert of_source.tolist() == [[1.5, 0.5]]
    assert of_target.tolist() == [[1.0, 1.0]]
