"""What holds on a GPU, for the whole layer."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from tests.compare import assert_close, relative_error, with_gradients
from torch_goat.nn import GOATConv, Neighborhoods, Ordering

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def graph() -> tuple[Tensor, Tensor]:
    hub = torch.stack([torch.arange(400), torch.zeros(400).long()])
    return torch.randn(500, 12), torch.cat([torch.randint(500, (2, 6000)), hub], 1)


def check_against_the_cpu(conv: GOATConv, x: Tensor, edge_index: Tensor, tolerance: float) -> Ordering:
    """Given the CPU's ordering in float64, values and gradients are equal. Moves the layer to the GPU."""
    conv = conv.double()
    ordering = conv(x.double(), edge_index, return_ordering=True)[1]
    expected = with_gradients(conv, conv(x.double(), edge_index, ordering=ordering))
    conv = conv.float().cuda()
    assert conv.rnn.kernel(x.cuda()) == "triton"
    out = conv(x.cuda(), edge_index.cuda(), ordering=ordering.to("cuda"))
    found = {name: value.cpu() for name, value in with_gradients(conv, out.cpu()).items()}
    assert_close(found, expected, tolerance)
    return ordering


@pytest.mark.parametrize("attention", ["gat", "gatv2"])
@pytest.mark.parametrize("rnn", ["lstm", "gru", "rnn", "mingru", "minlstm"])
def test_equals_the_cpu_given_one_ordering(rnn: str, attention: str) -> None:
    x, edge_index = graph()
    conv = GOATConv(12, 16, heads=4, rnn=rnn, attention=attention)
    ordering = check_against_the_cpu(conv, x, edge_index, 1e-5)
    own = conv(x.cuda(), edge_index.cuda(), return_ordering=True)[1].to("cpu")
    wrong = own.token != ordering.token
    # Orders may differ only between scores within rounding of each other.
    assert float((own.score - ordering.score).abs()[wrong].max() if bool(wrong.any()) else 0) < 1e-5


@pytest.mark.parametrize("rnn", ["lstm", "mingru", "minlstm"])
def test_the_layer_with_a_hub_equals_the_cpu(rnn: str) -> None:
    hub = torch.stack([torch.arange(1, 5001), torch.zeros(5000).long()])
    conv = GOATConv(12, 64, heads=8, rnn=rnn, mean_residual=True)
    check_against_the_cpu(conv, torch.randn(5001, 12), torch.cat([hub, hub.flip(0)], 1), 1e-4)


@pytest.mark.parametrize("options", [{}, {"attention": "gatv2"}, {"rnn": "mingru"}, {"rnn": "minlstm"}])
def test_repeated_steps_are_equal(options: dict[str, str]) -> None:
    x, edge_index = (value.cuda() for value in graph())
    conv = GOATConv(12, 16, heads=4, **options).cuda()
    x.requires_grad_()
    first, *others = (with_gradients(conv, conv(x, edge_index).cpu(), x) for _ in range(3))
    assert all(torch.equal(first[name], other[name]) for name in first for other in others)


@pytest.mark.parametrize("rnn", ["lstm", "mingru"])
def test_bfloat16_under_autocast(rnn: str) -> None:
    x, edge_index = graph()
    conv = GOATConv(12, 16, heads=4, rnn=rnn).cuda()
    ordering = conv(x.cuda(), edge_index.cuda(), return_ordering=True)[1]
    expected = with_gradients(conv, conv(x.cuda(), edge_index.cuda(), ordering=ordering).cpu())
    with torch.autocast("cuda", torch.bfloat16):
        out = conv(x.cuda(), edge_index.cuda(), ordering=ordering)
    found = with_gradients(conv, out.float().cpu())
    assert relative_error(found["output"], expected["output"]) < 1e-2
    assert_close(found, expected, 2e-2)


@pytest.mark.parametrize("rnn", ["lstm", "mingru"])
def test_compile(rnn: str) -> None:
    x, edge_index = (value.cuda() for value in graph())
    conv = GOATConv(12, 16, heads=4, rnn=rnn).cuda()
    compiled = torch.compile(conv, backend="aot_eager")
    found, expected = (with_gradients(conv, run(x, edge_index).cpu()) for run in (compiled, conv))
    assert_close(found, expected, 1e-6)


@pytest.mark.parametrize("attention", ["gat", "gatv2"])
@pytest.mark.parametrize(
    "build",
    [
        GOATConv,
        GOATConv.paper,
        partial(GOATConv, rnn="mingru"),
        partial(GOATConv, rnn="minlstm"),
        lambda channels, *_, **options: GOATConv(channels, 256, **options | {"heads": 1}),  # programs share a cell
    ],
    ids=["default", "paper", "mingru", "minlstm", "wide"],
)
@pytest.mark.parametrize("given", ["edge_index", "neighborhoods"])
def test_a_step_in_a_cuda_graph_is_the_same_step(given: str, build: Callable[..., GOATConv], attention: str) -> None:
    """With checks on, warmed up on one stream and captured on another, as PyTorch advises."""
    x, edge_index = (value.cuda() for value in graph())
    x = x.round()  # equal rows, hence ties
    conv = build(12, 16, heads=4, attention=attention).cuda()
    edges = Neighborhoods.from_edge_index(edge_index, 500) if given == "neighborhoods" else edge_index

    def step() -> list[Tensor]:
        out = conv(x, edges)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), list(conv.parameters()))]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        found = step()
    for _ in range(2):
        x.copy_(torch.randn_like(x).round())
        captured.replay()
        assert all(torch.equal(value, expected) for value, expected in zip(found, step(), strict=True))


def test_a_cuda_graph_draws_another_order_in_every_replay() -> None:
    x, edge_index = (value.cuda() for value in graph())
    conv = GOATConv(12, 16, heads=4, order_noise=0.3).cuda()

    def step() -> list[Tensor]:
        out = conv(x, edge_index)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), [conv.attention.att_src, conv.rnn.weight_hh])]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        expected = step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        found = step()
    captured.replay()
    first = [value.clone() for value in found]
    captured.replay()
    for one in (first, found):
        assert torch.equal(one[0], expected[0])
        assert torch.equal(one[2], expected[2])
    assert not torch.equal(first[1], found[1])
    assert found[1].isfinite().all()


def test_a_cuda_graph_needs_the_edges_to_be_known() -> None:
    x, edge_index = (value.cuda() for value in graph())
    conv = GOATConv(12, 16).cuda()
    conv(x, edge_index)  # compiles the kernels
    with pytest.raises(RuntimeError, match="edges cannot be grouped"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        conv(x, edge_index.clone())
    torch.cuda.synchronize()
