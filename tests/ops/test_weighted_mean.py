"""The weighted mean in plain PyTorch, compiled by numba, and in Triton, on a GPU or in Triton's interpreter."""

from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.backends import AVAILABLE, device_of
from tests.compare import assert_close, relative_error, with_gradients
from tests.graphs import small_graph
from torch_goat.nn import GOATConv
from torch_goat.ops import Neighborhoods, Places, weighted_mean

KERNELS = AVAILABLE
FUSED = [name for name in AVAILABLE if name != "torch"]
needs_triton = pytest.mark.skipif("triton" not in AVAILABLE, reason="Triton does not run here")


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short segments have many tiles, and few places many chunks."""
    mean = pytest.importorskip("torch_goat.ops.ragged_rnn.triton.mean")
    launch, sizes = pytest.importorskip("torch_goat.ops.ragged_rnn.triton.launch"), mean.sizes
    small = {"segments": 2, "places": 4, "chunk": 4, "chunks": 2}
    monkeypatch.setattr(mean, "sizes", lambda channels: sizes(channels)._replace(**small))
    plain = launch.sizes
    monkeypatch.setattr(launch, "sizes", lambda *values, **named: plain(*values, **named)._replace(chunk=4))


def example(lengths: list[int], heads: int, channels: int, num_sources: int, kernel: str) -> list[Tensor]:
    device, random = device_of(kernel), torch.Generator().manual_seed(0)
    z = torch.randn(num_sources, heads, channels, dtype=torch.double, generator=random)
    source = torch.randint(num_sources, (heads, sum(lengths)), generator=random)
    weight = torch.rand(heads, sum(lengths), dtype=torch.double, generator=random)
    ptr = torch.tensor([0, *lengths]).cumsum(0)
    z, source, weight, ptr = (value.to(device) for value in (z, source, weight, ptr))
    return [z.requires_grad_(), source, weight.requires_grad_(), ptr]


def mean_of(kernel: str, z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> Tensor:
    return weighted_mean(kernel, z, Places.from_ptr(source, ptr), weight)


def by_hand(z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> Tensor:
    """Adds every place's message to its target."""
    heads = torch.arange(z.size(1), device=z.device)
    messages = weight.t().unsqueeze(-1) * z[source.t(), heads]  # [E, K, C]
    target = torch.repeat_interleave(ptr.diff())
    return z.new_zeros(ptr.numel() - 1, *z.shape[1:]).index_add(0, target, messages)


def check(kernel: str, lengths: list[int], heads: int, channels: int, num_sources: int) -> None:
    given_values = example(lengths, heads, channels, num_sources, kernel)
    leaves = [given_values[0], given_values[2]]
    results = []
    for out in (mean_of(kernel, *given_values), by_hand(*given_values)):
        uneven = torch.arange(1, out.numel() + 1, dtype=out.dtype, device=out.device).sin().view_as(out)
        total = (out * uneven).sum() + 0 * leaves[0].sum()  # without places nothing leads back to the states
        results.append([out, *torch.autograd.grad(total, leaves, materialize_grads=True, allow_unused=True)])
    for value, expected in zip(*results, strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 2, 3, 5, 23]), max_size=5),
    heads=st.integers(1, 3),
    channels=st.sampled_from([1, 2, 3, 4, 7]),
    num_sources=st.integers(1, 6),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_adds_up_every_run(
    kernel: str, small_tiles: None, lengths: list[int], heads: int, channels: int, num_sources: int
) -> None:
    check(kernel, lengths, heads, channels, num_sources)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("lengths", "channels"), [([70, 0, 3], 5), ([40, 1], 64), ([], 4), ([0, 0], 4), ([80, 2], 20)])
def test_the_tiles_of_real_graphs(kernel: str, lengths: list[int], channels: int) -> None:
    check(kernel, lengths, 2, channels, 3)


def test_plain_pytorch_differentiates_twice() -> None:
    z, source, weight, ptr = example([1, 0, 3], 2, 2, 3, "torch")
    assert torch.autograd.gradgradcheck(lambda z, weight: mean_of("torch", z, source, weight, ptr), (z, weight))


@pytest.mark.parametrize("kernel", FUSED)
def test_states_of_any_layout_and_type(kernel: str, small_tiles: None) -> None:
    z, source, weight, ptr = (value.detach() for value in example([3, 0, 6], 2, 3, 4, kernel))
    expected = mean_of(kernel, z, source, weight, ptr)
    z, source, weight = (value.transpose(0, 1).contiguous().transpose(0, 1) for value in (z, source, weight))
    assert torch.equal(mean_of(kernel, z, source, weight, ptr), expected)
    half = z.to(torch.bfloat16)
    found = mean_of(kernel, half, source, weight.float(), ptr)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, by_hand(half.float(), source, weight.float(), ptr))


@needs_triton
def test_a_run_has_the_same_bits_wherever_it_stands(small_tiles: None) -> None:
    z, source, weight, ptr = (value.detach() for value in example([5, 23, 0, 2], 2, 3, 4, "triton"))
    whole = mean_of("triton", z, source, weight, ptr)
    alone = mean_of("triton", z, source[:, 5:28], weight[:, 5:28], ptr.new_tensor([0, 23]))
    assert torch.equal(whole[1:2], alone)


@pytest.mark.parametrize("kernel", FUSED)
def test_the_operator_is_sound(kernel: str, small_tiles: None) -> None:
    torch.library.opcheck(torch.ops.torch_goat.weighted_mean, (*example([3, 0, 2], 2, 3, 4, kernel), kernel))


@pytest.mark.parametrize("kernel", FUSED)
def test_double_backward_is_refused(kernel: str, small_tiles: None) -> None:
    z, source, weight, ptr = example([3, 0, 2], 1, 2, 4, kernel)
    (grad,) = torch.autograd.grad(mean_of(kernel, z, source, weight, ptr).sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="weighted mean has no second derivative"):
        grad.sum().backward()


@needs_triton
@pytest.mark.parametrize("options", [{}, {"edge_dim": 1}, {"max_neighbors": 2, "neighbor_selection": "top"}])
def test_the_layer_equals_plain_pytorch_whatever_the_order_of_edges(small_tiles: None, options: dict) -> None:
    device = device_of("triton")
    conv, x = GOATConv(3, 6, heads=2, backend="torch", **options).double(), torch.randn(7, 3).double()
    edge_index = small_graph(num_nodes=7, num_edges=12)
    edge_attr = torch.randn(edge_index.size(1), 1).double() if "edge_dim" in options else None
    ordering = conv(x, edge_index, edge_attr, return_ordering=True)[1]
    expected = with_gradients(conv, conv(x, edge_index, edge_attr, ordering=ordering))
    conv.to(device).rnn.backend = "triton"
    x, edge_index, edge_attr = (None if value is None else value.to(device) for value in (x, edge_index, edge_attr))
    assert conv.rnn.kernel(x) == "triton"
    first = with_gradients(conv, conv(x, edge_index, edge_attr).cpu())
    assert_close({name: value.cpu() for name, value in first.items()}, expected, 1e-10)
    if edge_attr is None:
        edge_index = edge_index[:, torch.randperm(edge_index.size(1))]
    again = with_gradients(conv, conv(x, edge_index, edge_attr).cpu())
    assert all(torch.equal(first[name], again[name]) for name in first)


@needs_triton
def test_a_layer_finds_the_places_by_source_once(small_tiles: None, monkeypatch: pytest.MonkeyPatch) -> None:
    device = device_of("triton")
    conv, x = GOATConv(3, 4, heads=2, backend="triton").to(device), torch.randn(5, 3, device=device)
    edge_index = small_graph(num_nodes=5, num_edges=4).to(device)
    calls = []

    def count(owner: type, name: str) -> None:
        way = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *values: (calls.append(name), way(*values))[1])

    for owner, name in ((Places, "_sort"), (Places, "_follow"), (Neighborhoods, "_by_source")):
        count(owner, name)
    for _ in range(2):
        conv(x, edge_index).sum().backward()
    assert calls == ["_follow", "_by_source", "_follow"]  # the graph's own part once for all steps


def test_another_backend_is_plain_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_goat.ops.ragged_rnn import triton as fused_triton

    monkeypatch.setitem(vars(fused_triton), "weighted_sum", None)
    x, edge_index = torch.randn(7, 3), small_graph(num_nodes=7, num_edges=12)
    outs = [GOATConv(3, 4, backend=backend)(x, edge_index) for backend in ("reference", "torch")]
    outs.append(GOATConv(3, 4, rnn=lambda width, out: torch.nn.LSTM(width, out))(x, edge_index))
    assert all(out.shape == (7, 4) for out in outs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize(("heads", "channels"), [(8, 64), (8, 8), (3, 20)])
def test_a_hub_in_float32(heads: int, channels: int) -> None:
    hub = torch.stack([torch.arange(1, 5001), torch.zeros(5000).long()])
    edge_index = torch.cat([hub, hub.flip(0), torch.randint(6000, (2, 9000))], 1)  # node 0 is read by all others
    ptr = torch.nn.functional.pad(torch.bincount(edge_index[1], minlength=6000).cumsum(0), (1, 0))
    by_target = edge_index[0, edge_index[1].argsort(stable=True)]
    source = torch.stack([by_target, *(torch.randint(6000, by_target.shape) for _ in range(heads - 1))])
    z, weight = torch.randn(6000, heads, channels), torch.rand(source.shape)
    results, in_triton = [], partial(mean_of, "triton")
    for mean, device in ((by_hand, "cpu"), (in_triton, "cuda"), (in_triton, "cuda")):
        dtype = torch.double if device == "cpu" else torch.float
        leaves = [value.to(device, dtype).requires_grad_() for value in (z, weight)]
        out = mean(leaves[0], source.to(device), leaves[1], ptr.to(device))
        uneven = (1.5 + torch.arange(out.numel()).sin()).view_as(out).to(out)
        results.append([value.cpu() for value in (out, *torch.autograd.grad(out, leaves, uneven))])
    for found in results[1:]:
        assert all(relative_error(value, expected) < 1e-5 for value, expected in zip(found, results[0], strict=True))
