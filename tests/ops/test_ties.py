"""Ties in Triton: on a GPU or, without one, in Triton's interpreter."""

import os
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.graphs import graphs, neighborhoods
from torch_goat.ops import sort

pytest.importorskip("triton", reason="Triton is not installed")

from torch_goat.ops import ties

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL = ties.Sizes(places=8, mark_features=2, programs=3, members=4, features=2, scan=8)

runs_here = pytest.mark.skipif(
    DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1", reason="there is neither a GPU nor the interpreter"
)


def in_triton(score: Tensor, x: Tensor, source: Tensor, target: Tensor, sizes: ties.Sizes) -> Tensor:
    score, x, source, target = (value.to(DEVICE) for value in (score, x, source, target))
    by_score = sort._sort_float32 if score.dtype == torch.float32 else sort._sort
    token, tied = by_score(score, target, int(target[-1]) + 1)
    return ties.resolve_ties(token, tied, x, source, sizes).cpu()


def in_pytorch(score: Tensor, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return sort._sorted(score, x, source, target, int(target[-1]) + 1)[0]


def in_python(score: Tensor, x: Tensor, source: Tensor, target: Tensor) -> list[list[int]]:
    states, sources, targets = x.tolist(), source.tolist(), target.tolist()

    def key(token: int, scores: list[float]) -> Any:
        return targets[token], -scores[token], states[sources[token]]

    tokens = range(len(sources))
    return [sorted(tokens, key=lambda token, scores=scores: key(token, scores)) for scores in score.tolist()]


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
    assert found.tolist() == in_python(*given)


def hub(neighbors: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All neighbours of one node have its score; a third have no states, others have them twice."""
    random = torch.Generator().manual_seed(0)
    x = torch.randint(3, (7, neighbors), generator=random).to(dtype).t()  # not contiguous
    x[:, 0] = 1
    x[torch.rand(neighbors, generator=random) < 0.3] = 0
    source = torch.cat([torch.arange(neighbors), torch.tensor([0, 0, 1])])
    target = torch.cat([torch.zeros(neighbors, dtype=torch.long), torch.ones(3, dtype=torch.long)])
    return torch.zeros(1, neighbors + 3), x, source, target


@runs_here
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sizes", [SMALL, ties.SIZES], ids=["small", "default"])
def test_a_hub_of_one_score(dtype: torch.dtype, sizes: ties.Sizes) -> None:
    given = hub(20, dtype)
    assert not given[1].is_contiguous()
    assert in_triton(*given, sizes).tolist() == in_python(*given)


@runs_here
def test_what_is_no_number_goes_last_and_loses_no_token() -> None:
    x = torch.tensor([[1.0, float("nan")], [float("nan"), 0.0], [1.0, 5.0], [float("nan"), 0.0], [1.0, float("inf")]])
    found = in_triton(torch.zeros(1, 5), x, torch.arange(5), torch.zeros(5, dtype=torch.long), SMALL)
    assert found.tolist() == [[2, 4, 0, 1, 3]]


@runs_here
def test_a_single_token() -> None:
    one = torch.zeros(1, dtype=torch.long)
    assert in_triton(torch.zeros(2, 1), torch.ones(1, 3), one, one, ties.SIZES).tolist() == [[0], [0]]


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_compiles(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """For an NVIDIA GPU, which need not be there."""
    from tests.ops.test_triton_compiles import Launch, Recorder, _check

    launches: list[Launch] = []
    for name in ("mark_kernel", "rank_kernel"):
        monkeypatch.setattr(ties, name, Recorder(getattr(ties, name), launches))
    token, tied = torch.zeros(2, 100, dtype=torch.long), torch.zeros(2, 99, dtype=torch.bool)
    ties.resolve_ties(token, tied, torch.zeros(10, 16, dtype=dtype), token[0])
    assert len(launches) == 2
    _check(launches)
