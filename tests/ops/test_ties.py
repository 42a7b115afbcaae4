"""Ties in Triton, on a GPU or in Triton's interpreter, and sorting on a GPU, which never waits for the device."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.backends import AVAILABLE
from tests.graphs import graphs, neighborhoods
from tests.ops.test_sort import by_the_book
from torch_goat.ops import sort

pytest.importorskip("triton", reason="Triton is not installed")

from torch_goat.ops import ties

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
NODES, HEADS = 3000, 8  # of large graphs; small ones have fewer
SMALL = ties.Sizes(places=8, mark_features=2, programs=3, members=4, features=2, scan=8)

runs_here = pytest.mark.skipif("triton" not in AVAILABLE, reason="there is neither a GPU nor the interpreter")
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="there is no CUDA device")


def in_triton(score: Tensor, x: Tensor, source: Tensor, target: Tensor, sizes: ties.Sizes) -> Tensor:
    score, x, source, target = (value.to(DEVICE) for value in (score, x, source, target))
    return ties.resolve_ties(*sort._by_score(score, target, NODES), x, source, sizes=sizes).cpu()


def in_pytorch(score: Tensor, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
    token, tied = sort._by_score(score, target, NODES)
    return sort._resolve_ties(token, source[token], tied, x, source)[0]


@runs_here
@given(
    graph=graphs(max_edges=16),
    scores=st.integers(1, 3),
    values=st.sampled_from([[0.0], [-0.0, 0.0], [0.0, 1.0], [-1.0, -0.0, 0.0, float("inf")]]),
    features=st.integers(0, 5),
    heads=st.integers(1, 2),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    sizes=st.sampled_from([SMALL, ties.SIZES]),
    seed=st.integers(0, 1000),
)
def test_equals_pytorch_and_python(
    graph: tuple[int, Tensor],
    scores: int,
    values: list[float],
    features: int,
    heads: int,
    dtype: torch.dtype,
    sizes: ties.Sizes,
    seed: int,
) -> None:
    """Few scores and few values: ties everywhere, duplicate and zero rows, all scores equal, edges twice."""
    num_nodes, edge_index = graph
    hood = neighborhoods(edge_index, None, num_nodes, num_nodes, True)
    random = torch.Generator().manual_seed(seed)
    score = torch.randint(scores, (heads, hood.source.numel()), generator=random).to(dtype)
    x = torch.tensor(values)[torch.randint(len(values), (num_nodes, features), generator=random)]
    given = (score, x, hood.source, hood.target)
    found = in_triton(*given, sizes)
    assert torch.equal(found, in_pytorch(*given))
    assert found.tolist() == by_the_book(*given)


def hub(neighbors: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All neighbours of one node have one score; a third are zero, others occur twice."""
    random = torch.Generator().manual_seed(0)
    x = torch.randint(3, (7, neighbors), generator=random).to(dtype).t()  # not contiguous
    x[:, 0] = 1
    x[torch.rand(neighbors, generator=random) < 0.3] = 0
    source = torch.cat([torch.arange(neighbors), torch.tensor([0, 0, 1])])
    target = torch.cat([torch.zeros(neighbors, dtype=torch.long), torch.ones(3, dtype=torch.long)])
    return torch.zeros(1, neighbors + 3), x, source, target


@runs_here
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sizes", [SMALL, ties.SIZES], ids=["small", "default"])
def test_a_hub_of_one_score(dtype: torch.dtype, sizes: ties.Sizes) -> None:
    given = hub(20, dtype)
    assert not given[1].is_contiguous()
    assert in_triton(*given, sizes).tolist() == by_the_book(*given)


@runs_here
def test_what_is_no_number_goes_last_and_loses_no_token() -> None:
    x = torch.tensor([[1.0, float("nan")], [float("nan"), 0.0], [1.0, 5.0], [float("nan"), 0.0], [1.0, float("inf")]])
    found = in_triton(torch.zeros(1, 5), x, torch.arange(5), torch.zeros(5, dtype=torch.long), SMALL)
    assert found.tolist() == [[2, 4, 0, 1, 3]]


def large_graph() -> tuple[Tensor, Tensor]:
    """Source and target of each token ``[E]``: 60,000 random edges and two hubs with all nodes, sorted."""
    hubs = [torch.stack([torch.arange(NODES), torch.full((NODES,), node)]) for node in (7, 8)]
    edge_index = torch.cat([torch.randint(NODES, (2, 60_000)), *hubs], dim=1)
    source, target = edge_index[:, (edge_index[1] * NODES + edge_index[0]).argsort()]
    return source.cuda(), target.cuda()


def few_scores(levels: int, num_tokens: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randint(levels, (HEADS, num_tokens), device="cuda").to(dtype)


def few_states(features: int, dtype: torch.dtype = torch.float32) -> Tensor:
    x = torch.randint(2, (NODES, features), device="cuda").to(dtype)
    x[:, : features // 2] = 1
    x[torch.rand(NODES, device="cuda") < 0.2] = 0
    x[torch.randint(NODES, (500,), device="cuda")] = x[0].clone()
    return x


@needs_gpu
@pytest.mark.parametrize("levels", [1, 3, 1000, 2**24])
@pytest.mark.parametrize("features", [0, 1, 16, 700])
@pytest.mark.parametrize(
    ("dtype", "state_dtype"),
    [(FLOATS[0], FLOATS[0]), (FLOATS[1], FLOATS[0]), *((FLOATS[0], other) for other in FLOATS[1:])],
)
def test_large_graphs_equal_pytorch(levels: int, features: int, dtype: torch.dtype, state_dtype: torch.dtype) -> None:
    source, target = large_graph()
    score, x = few_scores(levels, source.numel(), dtype), few_states(features, state_dtype)
    if state_dtype != torch.float32:
        x = x.t().contiguous().t()
    token, ordered = sort.sort_tokens(score, x, source, target, NODES)
    assert torch.equal(token, in_pytorch(score, x, source, target))
    assert torch.equal(ordered, source[token])


@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_waits_for_nothing_and_replays_in_a_cuda_graph(dtype: torch.dtype) -> None:
    source, target = large_graph()
    score, x = few_scores(100, source.numel(), dtype), few_states(16)
    sort.sort_tokens(score, x, source, target, NODES)  # compiles the kernels
    torch.cuda.set_sync_debug_mode("error")
    try:
        token, _ = sort.sort_tokens(score, x, source, target, NODES)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(token, in_pytorch(score, x, source, target))
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        token, ordered = sort.sort_tokens(score, x, source, target, NODES)
    for levels in (5, 1, 2**24):
        score.copy_(few_scores(levels, source.numel()))
        captured.replay()
        assert torch.equal(token, in_pytorch(score, x, source, target))
        assert torch.equal(ordered, source[token])
