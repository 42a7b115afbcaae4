"""The order of every neighbourhood: sorting (Eq. 2), ties (Algorithm 1), and the order as an object."""

from torch_goat.ordering.agreement import kendall_tau
from torch_goat.ordering.ordering import Ordering
from torch_goat.ordering.places import BySource, places_by_source, remember_order
from torch_goat.ordering.sort import sort_tokens

__all__ = ["BySource", "Ordering", "kendall_tau", "places_by_source", "remember_order", "sort_tokens"]
