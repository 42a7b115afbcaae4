"""What holds on a GPU, for the whole layer."""

from collections.abc import Callable

import pytest
import torch

import torch_goat
from tests.compare import assert_close, relative_error, with_gradients
from torch_goat.nn import GOATConv, Neighborhoods
from torch_goat.ops import Places, weighted_mean

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def graph() -> tuple[torch.Tensor, torch.Tensor]:
    edge_index = torch.cat(
        [torch.randint(500, (2, 6000)), torch.stack([torch.arange(400), torch.zeros(400).long()])], 1
    )
    return torch.randn(500, 12), edge_index


@pytest.mark.parametrize("attention", ["gat", "gatv2"])
@pytest.mark.parametrize("rnn", ["lstm", "gru", "rnn"])
def test_equals_the_cpu_given_one_ordering(rnn: str, attention: str) -> None:
    x, edge_index = graph()
    conv = GOATConv(12, 16, heads=4, rnn=rnn, attention=attention).double()
    ordering = conv(x.double(), edge_index, return_ordering=True)[1]
    expected = with_gradients(conv, conv(x.double(), edge_index, ordering=ordering))
    conv = conv.float().cuda()
    out = conv(x.cuda(), edge_index.cuda(), ordering=ordering.to("cuda"))
    found = {name: value.cpu() for name, value in with_gradients(conv, out.cpu()).items()}
    assert_close(found, expected, 1e-5)
    own = conv(x.cuda(), edge_index.cuda(), return_ordering=True)[1].to("cpu")
    wrong = own.token != ordering.token
    # Orders may differ only between scores within rounding of each other.
    assert float((own.score - ordering.score).abs()[wrong].max() if bool(wrong.any()) else 0) < 1e-5


@pytest.mark.parametrize(("heads", "channels"), [(8, 64), (8, 8), (3, 20)])
def test_the_mean_with_a_hub_equals_the_cpu(heads: int, channels: int) -> None:
    hub = torch.stack([torch.arange(1, 5001), torch.zeros(5000).long()])
    edge_index = torch.cat([hub, hub.flip(0), torch.randint(6000, (2, 9000))], 1)  # read often, and by many
    ptr = torch.nn.functional.pad(torch.bincount(edge_index[1], minlength=6000).cumsum(0), (1, 0))
    by_target = edge_index[0, edge_index[1].argsort(stable=True)]
    source = torch.stack([by_target, *(torch.randint(6000, by_target.shape) for _ in range(heads - 1))])
    z = torch.randn(6000, heads, channels, requires_grad=True)
    weight = torch.rand(source.shape, requires_grad=True)
    expected = sum_on_cpu(*(value.detach().double() for value in (z, weight)), source, ptr)
    for _ in range(2):
        out = weighted_mean("triton", z.cuda(), Places.from_ptr(source.cuda(), ptr.cuda()), weight.cuda())
        uneven = (1.5 + torch.arange(out.numel()).sin()).view_as(out)
        found = [out, *torch.autograd.grad(out, [z, weight], uneven.cuda())]
        for value, other in zip(found, expected, strict=True):
            assert relative_error(value.cpu(), other) < 1e-5


def sum_on_cpu(z: torch.Tensor, weight: torch.Tensor, source: torch.Tensor, ptr: torch.Tensor) -> list[torch.Tensor]:
    """The weighted sums over segments and their gradients, of states in float64."""
    leaves = [z.requires_grad_(), weight.requires_grad_()]
    messages = weight.t().unsqueeze(-1) * z[source.t(), torch.arange(z.size(1))]
    out = z.new_zeros(ptr.numel() - 1, *z.shape[1:]).index_add(0, torch.repeat_interleave(ptr.diff()), messages)
    uneven = (1.5 + torch.arange(out.numel()).sin()).view_as(out)
    return [out, *torch.autograd.grad(out, leaves, uneven.double())]


def test_the_layer_with_a_hub_equals_the_cpu() -> None:
    hub = torch.stack([torch.arange(1, 5001), torch.zeros(5000).long()])
    edge_index = torch.cat([hub, hub.flip(0)], 1)
    x = torch.randn(5001, 12)
    conv = GOATConv(12, 64, heads=8, mean_residual=True).double()
    ordering = conv(x.double(), edge_index, return_ordering=True)[1]
    expected = with_gradients(conv, conv(x.double(), edge_index, ordering=ordering))
    conv = conv.float().cuda()
    assert conv.rnn.kernel(x.cuda()) == "triton"
    out = conv(x.cuda(), edge_index.cuda(), ordering=ordering.to("cuda"))
    found = {name: value.cpu() for name, value in with_gradients(conv, out.cpu()).items()}
    assert_close(found, expected, 1e-4)


@pytest.mark.parametrize("attention", ["gat", "gatv2"])
def test_equal_from_run_to_run(attention: str) -> None:
    x, edge_index = (value.cuda() for value in graph())
    conv = GOATConv(12, 16, heads=4, attention=attention).cuda()
    runs = []
    for _ in range(3):
        leaf = x.clone().requires_grad_()
        runs.append(with_gradients(conv, conv(leaf, edge_index).cpu(), leaf))
    for other in runs[1:]:
        assert all(torch.equal(runs[0][name], other[name]) for name in runs[0])


def test_bfloat16_under_autocast() -> None:
    x, edge_index = graph()
    conv = GOATConv(12, 16, heads=4).cuda()
    ordering = conv(x.cuda(), edge_index.cuda(), return_ordering=True)[1]
    expected = with_gradients(conv, conv(x.cuda(), edge_index.cuda(), ordering=ordering).cpu())
    with torch.autocast("cuda", torch.bfloat16):
        out = conv(x.cuda(), edge_index.cuda(), ordering=ordering)
    found = with_gradients(conv, out.float().cpu())
    assert relative_error(found["output"].cpu(), expected["output"].cpu()) < 1e-2
    for name in expected:
        assert relative_error(found[name].cpu(), expected[name].cpu()) < 2e-2, name


def test_compile() -> None:
    x, edge_index = (value.cuda() for value in graph())
    conv = GOATConv(12, 16, heads=4).cuda()
    compiled = torch.compile(conv, backend="aot_eager")
    found, expected = (with_gradients(conv, run(x, edge_index).cpu()) for run in (compiled, conv))
    for name in expected:
        assert relative_error(found[name], expected[name]) < 1e-6, name


@pytest.mark.parametrize("attention", ["gat", "gatv2"])
@pytest.mark.parametrize("build", [GOATConv, GOATConv.paper], ids=["default", "paper"])
@pytest.mark.parametrize("given", ["edge_index", "neighborhoods"])
def test_a_step_in_a_cuda_graph_is_the_same_step(given: str, build: Callable[..., GOATConv], attention: str) -> None:
    """With checks on, warmed up on one stream and captured on another, as PyTorch advises."""
    x, edge_index = (value.cuda() for value in graph())
    x = x.round()  # equal rows, hence ties
    conv = build(12, 16, heads=4, attention=attention).cuda()
    edges = Neighborhoods.from_edge_index(edge_index, 500) if given == "neighborhoods" else edge_index

    def step() -> list[torch.Tensor]:
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


def test_a_cuda_graph_needs_the_edges_to_be_known() -> None:
    x, edge_index = (value.cuda() for value in graph())
    conv = GOATConv(12, 16).cuda()
    conv(x, edge_index)  # compiles the kernels
    with pytest.raises(RuntimeError, match="edges cannot be grouped"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        conv(x, edge_index.clone())
    torch.cuda.synchronize()


def test_auto_takes_triton() -> None:
    from torch_goat.ops.ragged_rnn.backends import _choose

    assert torch_goat.backends()["triton"].available
    assert _choose("auto", "cuda", torch.float32, 8) == "triton"
