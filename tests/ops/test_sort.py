import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.graphs import graphs, neighborhoods
from torch_goat.ops.sort import sort_tokens

SCORES = [-math.inf, -2.5, -1.0, -0.0, 0.0, 1e-30, 1.0, 3.0, math.inf]


def by_the_book(score: Tensor, x: Tensor, source: Tensor, target: Tensor) -> list[list[int]]:
    """Equation 2 and Algorithm 1: a larger score goes first, then the state that is smaller where they first differ."""
    states, sources, targets = x.tolist(), source.tolist(), target.tolist()

    def in_order(scores: list[float]) -> list[int]:
        return sorted(range(len(sources)), key=lambda at: (targets[at], -scores[at], states[sources[at]]))

    return [in_order(scores) for scores in score.tolist()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(graph=graphs(), data=st.data())
def test_order_is_that_of_the_paper(dtype: torch.dtype, graph, data) -> None:
    num_nodes, edge_index = graph
    hood = neighborhoods(edge_index, None, num_nodes, num_nodes, True)
    num_tokens = hood.source.numel()
    # Few values, so that scores tie and rows of x agree in their first elements.
    score = data.draw(st.lists(st.sampled_from(SCORES), min_size=2 * num_tokens, max_size=2 * num_tokens))
    score = torch.tensor(score, dtype=dtype, requires_grad=True).view(2, num_tokens)
    x = data.draw(st.lists(st.integers(0, 1), min_size=3 * num_nodes, max_size=3 * num_nodes))
    x = torch.tensor(x, dtype=dtype).view(num_nodes, 3)
    token, source = sort_tokens(score, x, hood.source, hood.target, num_nodes)
    assert torch.equal(source, hood.source[token])
    assert token.tolist() == by_the_book(score, x, hood.source, hood.target)


def test_the_example_of_the_appendix() -> None:
    # h_j = [1, 2, 3] goes before h_k = [1, 3, 3] when their scores are equal.
    x = torch.tensor([[1.0, 3.0, 3.0], [1.0, 2.0, 3.0]])
    token, source = sort_tokens(torch.zeros(1, 2), x, torch.tensor([0, 1]), torch.tensor([0, 0]), 1)
    assert token.tolist() == source.tolist() == [[1, 0]]


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 65, 1000])
@pytest.mark.parametrize("levels", [2, 50, 10**6])
def test_long_neighborhoods(length: int, levels: int) -> None:
    score = (torch.randint(levels, (3, 2 * length)) - levels // 2) / 7
    score[0, : length // 2] = -0.0
    score[1, 0], score[1, -1] = float("inf"), -float("inf")
    target, source = torch.arange(2).repeat_interleave(length), torch.arange(2 * length)
    x = torch.zeros(2 * length, 0)
    token, _ = sort_tokens(score, x, source, target, 2)
    assert token.tolist() == by_the_book(score, x, source, target)
