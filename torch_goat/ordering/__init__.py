"""The order of every neighbourhood: sorting (Eq. 2), ties (Algorithm 1), and the order as an object."""

from torch_goat.ordering.agreement import kendall_tau
from torch_goat.ordering.ordering import Ordering
from torch_goat.ordering.sort import sort_tokens

__all__ = ["Ordering", "kendall_tau", "sort_tokens"]
