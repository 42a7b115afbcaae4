import pytest
import torch
from hypothesis import given
from torch import Tensor

from tests.graphs import graphs, neighborhoods
from torch_goat.ops import Places, sort_tokens


def by_hand(source: Tensor) -> tuple[list[list[int]], list[list[int]]]:
    """The sources and places of each head, by source and then by place."""
    pairs = [sorted((node, place) for place, node in enumerate(row)) for row in source.tolist()]
    return [[node for node, _ in row] for row in pairs], [[place for _, place in row] for row in pairs]


@given(graphs())
def test_places_follow_from_the_tokens(graph: tuple[int, Tensor]) -> None:
    num_nodes, edge_index = graph
    hood = neighborhoods(edge_index, None, num_nodes, num_nodes, False)
    node_score = torch.randn(3, num_nodes)  # copies of an edge have equal scores
    score = node_score[:, hood.source]
    token, source = sort_tokens(score, torch.randn(num_nodes, 2), hood.source, hood.target, num_nodes)
    expected = by_hand(source)
    found = Places(source, hood).by_source(num_nodes)
    assert (found.source.tolist(), found.place.tolist()) == expected
    found = Places(source, hood, token).by_source(num_nodes)
    assert (found.source.tolist(), found.place.tolist()) == expected


@pytest.mark.parametrize("by_tokens", [True, False])
def test_places_are_found_once(by_tokens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    hood = neighborhoods(torch.tensor([[4, 0, 4], [0, 0, 1]]), None, 5, 5, False)
    token = torch.tensor([[1, 0, 2], [0, 1, 2]])
    places = Places(hood.source[token], hood, token if by_tokens else None)
    monkeypatch.setattr(Places, "_sort" if by_tokens else "_follow", None)  # the other way
    assert places.by_source(5) is places.by_source(5)
