import gc

import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from tests.graphs import graphs
from torch_goat.ops import memory, places
from torch_goat.ops.neighborhoods import neighborhoods
from torch_goat.ops.places import places_by_source, remember_order
from torch_goat.ops.sort import sort_tokens


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
    found = places_by_source(source, num_nodes)
    assert (found.source.tolist(), found.place.tolist()) == expected
    remember_order(source, token, hood.source)
    found = places_by_source(source, num_nodes)
    assert (found.source.tolist(), found.place.tolist()) == expected


@pytest.mark.parametrize("by_tokens", [True, False])
def test_places_are_found_once_and_go_with_their_source(by_tokens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    token = torch.tensor([[1, 0, 2], [2, 1, 0]])
    of_token = torch.tensor([4, 0, 4])
    source = of_token[token]
    monkeypatch.setattr(memory, "_derived", WeakIdKeyDictionary())  # what other tests left behind may go at any time
    remember_order(source, token if by_tokens else None, of_token)
    monkeypatch.setattr(places, "_from_tokens" if not by_tokens else "_sort", None)  # the other way
    first = places_by_source(source, 5)
    assert places_by_source(source, 5) is first
    assert len(memory._derived) == 1
    del source
    gc.collect()
    assert len(memory._derived) == 0


def test_a_change_of_the_order_is_seen() -> None:
    token, of_token = torch.tensor([[1, 0, 2]]), torch.tensor([4, 0, 4])
    source = of_token[token]
    remember_order(source, token, of_token)
    places_by_source(source, 5)
    source[0, 0] = 4
    assert places_by_source(source, 5).source.tolist() == [[4, 4, 4]]
