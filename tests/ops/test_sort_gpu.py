"""The order on a GPU, where ties are resolved in Triton: the same as PyTorch's, and without waiting for the device."""

import pytest
import torch
from torch import Tensor

from torch_goat.ops import sort
from torch_goat.ops.sort import sort_tokens

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]

NODES, HEADS = 3000, 8


def graph() -> tuple[Tensor, Tensor]:
    """Source and target of each token ``[E]``: 60,000 random edges and two hubs with all nodes, sorted."""
    random = torch.Generator().manual_seed(0)
    hubs = [torch.stack([torch.arange(NODES), torch.full((NODES,), node)]) for node in (7, 8)]
    edge_index = torch.cat([torch.randint(NODES, (2, 60_000), generator=random), *hubs], dim=1)
    source, target = edge_index[:, (edge_index[1] * NODES + edge_index[0]).argsort()]
    return source.cuda(), target.cuda()


def scores(levels: int, num_tokens: int) -> Tensor:
    return torch.randint(levels, (HEADS, num_tokens), device="cuda").float()


def states(features: int) -> Tensor:
    """Rows of few values, many of them zero or equal."""
    x = torch.randint(2, (NODES, features), device="cuda").float()
    x[:, : features // 2] = 1
    x[torch.rand(NODES, device="cuda") < 0.2] = 0
    x[torch.randint(NODES, (500,), device="cuda")] = x[0].clone()
    return x


def in_pytorch(score: Tensor, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
    by_score = sort._sort_float32 if score.dtype == torch.float32 else sort._sort
    return sort._resolve_ties(*by_score(score, target, NODES), x, source)[0]


@pytest.mark.parametrize("levels", [1, 3, 1000, 2**24])
@pytest.mark.parametrize("features", [0, 1, 16, 700])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_pytorch(levels: int, features: int, dtype: torch.dtype) -> None:
    source, target = graph()
    score, x = scores(levels, source.numel()).to(dtype), states(features)
    token, ordered = sort_tokens(score, x, source, target, NODES)
    assert torch.equal(token, in_pytorch(score, x, source, target))
    assert torch.equal(ordered, source[token])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_equals_pytorch_for_other_states(dtype: torch.dtype) -> None:
    source, target = graph()
    score, x = scores(3, source.numel()), states(32).to(dtype).t().contiguous().t()
    assert torch.equal(sort_tokens(score, x, source, target, NODES)[0], in_pytorch(score, x, source, target))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_waits_for_nothing(dtype: torch.dtype) -> None:
    source, target = graph()
    score, x = scores(100, source.numel()).to(dtype), states(16)
    sort_tokens(score, x, source, target, NODES)  # compiles the kernels
    torch.cuda.set_sync_debug_mode("error")
    try:
        token, _ = sort_tokens(score, x, source, target, NODES)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(token, in_pytorch(score, x, source, target))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_in_a_cuda_graph(dtype: torch.dtype) -> None:
    source, target = graph()
    score, x = scores(100, source.numel()).to(dtype), states(16)
    sort_tokens(score, x, source, target, NODES)  # compiles the kernels
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        token, ordered = sort_tokens(score, x, source, target, NODES)
    for levels in (5, 1, 2**24):
        score.copy_(scores(levels, source.numel()))
        captured.replay()
        assert torch.equal(token, in_pytorch(score, x, source, target))
        assert torch.equal(ordered, source[token])
