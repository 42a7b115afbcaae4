from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from torch_goat.files import write_atomic
from torch_goat.ops.checks import check_ptr, checks_enabled
from torch_goat.ops.neighborhoods import Neighborhoods

if TYPE_CHECKING:
    import pandas

_FIELDS = ("ptr", "token", "source", "score", "weight")


class Ordering:
    r"""The order in which a GOAT layer read every neighbourhood, per head, with its scores and coefficients.

    A layer returns it with ``return_ordering=True``. Pass it back as ``layer(x, edge_index, ordering=ordering)`` to
    replay the order with coefficients from the current weights (the paper's GOAT-fixed). A node's neighbourhood
    includes the node itself if the layer adds self loops.

    Two orderings are equal if they list the same neighbours of the same graph in the same order; scores and
    coefficients are not compared.

    Args:
        ptr: Target ``t`` owns the places ``ptr[t]`` to ``ptr[t + 1]`` ``[T + 1]``.
        token: The token at each place ``[K, E]``, a position in the layer's :class:`Neighborhoods`.
        source: The source node at each place ``[K, E]``.
        score: The score at each place ``[K, E]``.
        weight: The softmax coefficient at each place, before dropout ``[K, E]``.
    """

    def __init__(self, ptr: Tensor, token: Tensor, source: Tensor, score: Tensor, weight: Tensor) -> None:
        shapes = [tuple(value.shape) for value in (token, source, score, weight)]
        if ptr.dim() != 1 or ptr.numel() == 0 or token.dim() != 2 or len(set(shapes)) != 1:
            raise ValueError(
                f"an ordering needs ptr [T + 1] and four tensors [K, E], got {tuple(ptr.shape)} and {shapes}."
            )
        check_ptr(ptr, token.size(1), checks=True)
        order, place = token.sort(dim=-1)  # neighbourhoods are disjoint ranges of tokens, in ascending order
        segment = torch.repeat_interleave(ptr.diff())  # [E]
        wrong = (segment[place] != segment) | (order < 0)
        wrong[:, 1:] |= order.diff(dim=-1) == 0
        if bool(wrong.any()):
            node = int(segment[wrong.nonzero()[0, 1]])
            raise ValueError(f"the ordering does not read every neighbour of node {node} exactly once in each head.")
        self._set(ptr, token, source, score, weight)

    @classmethod
    def unchecked(cls, *tensors: Tensor) -> Ordering:
        """An ordering of tensors that are known to be valid."""
        ordering = cls.__new__(cls)
        ordering._set(*tensors)
        return ordering

    def _set(self, ptr: Tensor, token: Tensor, source: Tensor, score: Tensor, weight: Tensor) -> None:
        self.ptr, self.token, self.source = ptr, token, source
        self.score, self.weight = score.detach(), weight.detach()

    @property
    def heads(self) -> int:
        """The number of heads K."""
        return self.token.size(0)

    @property
    def num_nodes(self) -> int:
        """The number of target nodes T."""
        return self.ptr.numel() - 1

    @property
    def device(self) -> torch.device:
        return self.ptr.device

    def neighbors(self, node: int, head: int = 0) -> Tensor:
        """The source nodes of ``node``'s neighbourhood in the order in which ``head`` reads them."""
        return self.source[self._segment(node, head)]

    def weights(self, node: int, head: int = 0) -> Tensor:
        """The softmax coefficients of :meth:`neighbors`, in the same order; they sum to one."""
        return self.weight[self._segment(node, head)]

    def scores(self, node: int, head: int = 0) -> Tensor:
        """The attention scores of :meth:`neighbors`, in the same order."""
        return self.score[self._segment(node, head)]

    def _segment(self, node: int, head: int) -> tuple[int, slice]:
        if not 0 <= node < self.num_nodes:
            raise IndexError(f"node {node} is not in this ordering of {self.num_nodes} nodes.")
        if not 0 <= head < self.heads:
            raise IndexError(f"head {head} is not in this ordering of {self.heads} heads.")
        return head, slice(int(self.ptr[node]), int(self.ptr[node + 1]))

    def to_frame(self) -> pandas.DataFrame:
        """One row per node, head and position: ``node, head, position, neighbor, score, weight`` (needs pandas)."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Ordering.to_frame needs pandas: pip install 'torch-goat[frame]'.") from error
        node = torch.repeat_interleave(self.ptr.diff(), output_size=self.token.size(1))  # [E]
        position = torch.arange(self.token.size(1), device=self.device) - self.ptr[node]
        head = torch.arange(self.heads, device=self.device).view(-1, 1)
        names = ["node", "head", "position", "neighbor", "score", "weight"]
        columns = torch.broadcast_tensors(node, head, position, self.source, self.score, self.weight)  # [K, E] each
        values = (value.reshape(-1).cpu().numpy() for value in columns)
        frame = pandas.DataFrame(dict(zip(names, values, strict=True)))
        return frame.sort_values(["node", "head", "position"], ignore_index=True)

    def kendall_tau(self, other: Ordering) -> Tensor:
        """Kendall's rank correlation with another ordering of the same graph ``[T, K]``.

        It is 1 for equal orders, -1 for reversed orders, and NaN for fewer than two neighbours.
        """
        if not isinstance(other, Ordering):
            raise TypeError(f"kendall_tau compares with an Ordering, got {type(other).__name__}.")
        if self.token.shape != other.token.shape or not torch.equal(self.ptr, other.ptr):
            raise ValueError(f"the orderings are of different graphs or heads: {self!r} and {other!r}.")
        if not torch.equal(self._by_token(), other._by_token()):
            raise ValueError("the orderings do not hold the same neighbours, so their order cannot be compared.")
        return kendall_tau(self.token, other.token, self.ptr)

    def _by_token(self) -> Tensor:
        """The tokens of every head, sorted, with their sources ``[2, K, E]``."""
        token, place = self.token.sort(dim=-1)
        return torch.stack([token, self.source.gather(1, place)])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ordering):
            return NotImplemented
        return all(torch.equal(getattr(self, name), getattr(other, name)) for name in ("ptr", "token", "source"))

    __hash__ = None  # type: ignore[assignment]

    def check_fits(self, hood: Neighborhoods, read: Neighborhoods, heads: int, checks: bool | None = None) -> None:
        """Raises an error unless this is an ordering of ``hood``, or of a selection from it with the sizes of
        ``read``."""
        if self.heads != heads:
            raise ValueError(f"the ordering has {self.heads} heads, but the layer has {heads}.")
        if self.num_nodes != hood.num_targets:
            raise ValueError(
                f"the ordering is of another graph: it has {self.num_nodes} nodes, this one {hood.num_targets}."
            )
        if self.device != hood.ptr.device:
            raise ValueError(
                f"the ordering is on {self.device}, but the graph is on {hood.ptr.device}; move it with .to()."
            )
        if not checks_enabled(checks):
            return
        fits = torch.equal(self.ptr, read.ptr)
        if fits and self.token.numel() > 0:
            inside = int(self.token.min()) >= 0 and int(self.token.max()) < hood.source.numel()
            fits = inside and torch.equal(hood.source[self.token], self.source)
            fits = fits and torch.equal(hood.target[self.token], read.index.expand_as(self.token))
        if not fits:
            raise ValueError(
                f"the ordering is of another graph: its {self.token.size(1)} neighbours are not the ones "
                f"of this call ({hood.source.numel()} edges with self loops)."
            )

    def to(self, device: str | torch.device) -> Ordering:
        """A copy on another device."""
        return Ordering.unchecked(*(getattr(self, name).to(device) for name in _FIELDS))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the ordering as safetensors, atomically."""
        write_atomic(Path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file that :meth:`save` writes."""
        tensors = {name: getattr(self, name).contiguous() for name in _FIELDS}
        return save(tensors, metadata={"format": "torch_goat.Ordering"})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Ordering:
        """Reads an ordering that :meth:`save` wrote; no code in the file is executed."""
        try:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("format") != "torch_goat.Ordering" or set(file.keys()) != set(_FIELDS):
                    raise ValueError(f"{os.fspath(path)} is a safetensors file, but was not written by Ordering.save.")
                return cls(*(file.get_tensor(name) for name in _FIELDS))
        except SafetensorError as error:
            raise ValueError(f"{os.fspath(path)} is not a readable ordering ({error}).") from error

    def __repr__(self) -> str:
        return f"Ordering(nodes={self.num_nodes}, heads={self.heads}, neighbors={self.token.size(1)})"


def kendall_tau(first: Tensor, second: Tensor, ptr: Tensor) -> Tensor:
    """Kendall's rank correlation ``[T, K]`` of two orders ``[K, E]`` of the same tokens, NaN for fewer than two."""
    heads, num_tokens = first.shape
    length = ptr.diff()  # [T]
    # The place of each token of `first` in `second`: two orders agree where it increases.
    place = torch.arange(num_tokens, device=ptr.device).expand(heads, -1)
    last = int(torch.stack([first.max(), second.max()]).max()) if num_tokens else -1  # more where some were left out
    value = first.new_empty(heads, last + 1).scatter_(1, second, place).gather(1, first)
    target = torch.repeat_interleave(length, output_size=num_tokens)
    value = value - ptr[target]  # [K, E], 0 .. length - 1 within a segment
    segment = target + torch.arange(heads, device=ptr.device).view(-1, 1) * length.numel()  # [K, E]
    longest = int(length.max()) if length.numel() > 0 else 0
    discordant = _inversions(value.flatten(), segment.flatten(), heads * length.numel(), longest.bit_length())
    pairs = ((length * (length - 1)).double() / 2).view(-1, 1)  # [T, 1]
    return 1 - 2 * discordant.view(heads, -1).t() / torch.where(pairs > 0, pairs, torch.nan)


def _inversions(value: Tensor, segment: Tensor, num_segments: int, bits: int) -> Tensor:
    """Pairs of falling values within each segment ``[num_segments]``, found bit by bit from the highest.

    Values that agree in the bits above are a group. In it, every one before a zero is an inversion that the present
    bit decides; then the group is split in two and the next bit decides the rest.
    """
    count = torch.zeros(num_segments, dtype=torch.long, device=value.device)
    for bit in reversed(range(bits)):
        ones = value >> bit & 1
        before = ones.cumsum(0) - ones  # ones before each place, from the beginning of everything
        group = (segment << bits) + (value >> (bit + 1))
        new = torch.ones_like(group, dtype=torch.bool)
        new[1:] = group[1:] != group[:-1]
        at_start = before[new][new.cumsum(0) - 1]
        count.scatter_add_(0, segment, (1 - ones) * (before - at_start))
        order = torch.argsort((group << 1) + ones, stable=True)
        value, segment = value[order], segment[order]
    return count
