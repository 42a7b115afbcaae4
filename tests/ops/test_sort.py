import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.graphs import graphs, neighborhoods
from torch_goat.ops.sort import sort_tokens

SCORES = [-2.5, -1.0, -0.0, 0.0, 1e-30, 1.0, 3.0]


def by_the_book(score: float, state: list[float], other_score: float, other_state: list[float]) -> int:
    """Equation 2 and Algorithm 1 for two neighbours: negative if the first goes first."""
    if score != other_score:
        return -1 if score > other_score else 1
    for element, other in zip(state, other_state, strict=True):
        if element != other:
            return -1 if element < other else 1
    return 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(graph=graphs(), data=st.data())
def test_order_is_that_of_the_paper(dtype: torch.dtype, graph, data) -> None:
    num_nodes, edge_index = graph
    hood = neighborhoods(edge_index, None, num_nodes, num_nodes, True)
    num_tokens = hood.source.numel()
    # Few values, so that scores tie and rows of x agree in their first elements.
    score = data.draw(st.lists(st.sampled_from(SCORES), min_size=2 * num_tokens, max_size=2 * num_tokens))
    score = torch.tensor(score, dtype=dtype).view(2, num_tokens)
    x = data.draw(st.lists(st.integers(0, 1), min_size=3 * num_nodes, max_size=3 * num_nodes))
    x = torch.tensor(x, dtype=dtype).view(num_nodes, 3)
    token, source = sort_tokens(score, x, hood.source, hood.target, num_nodes)
    assert torch.equal(source, hood.source[token])

    for head in range(2):
        key = functools.cmp_to_key(
            lambda a, b, head=head: by_the_book(
                float(score[head, a]), x[hood.source[a]].tolist(), float(score[head, b]), x[hood.source[b]].tolist()
            )
        )
        for node in range(num_nodes):
            run = range(int(hood.ptr[node]), int(hood.ptr[node + 1]))
            assert token[head, run.start : run.stop].tolist() == sorted(run, key=key)


def test_the_example_of_the_appendix() -> None:
    # h_j = [1, 2, 3] goes before h_k = [1, 3, 3] when their scores are equal.
    x = torch.tensor([[1.0, 3.0, 3.0], [1.0, 2.0, 3.0]])
    token, source = sort_tokens(torch.zeros(1, 2), x, torch.tensor([0, 1]), torch.tensor([0, 0]), 1)
    assert token.tolist() == source.tolist() == [[1, 0]]
