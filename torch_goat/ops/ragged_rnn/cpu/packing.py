"""The tensors of the operator in the layout of the kernel, and back."""

from functools import lru_cache
from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import pad

from torch_goat.ops.ragged_rnn.interface import GATES

STRETCH = 32  # steps; the forward keeps the states in between


class Shape(NamedTuple):
    """The layout of H units in blocks of B lanes, with P segments side by side; see :mod:`.layout`."""

    kind: str
    element: str  # of the arithmetic, "float32" or "float64"
    gates: int  # G
    hidden: int  # H
    lanes: int  # B
    blocks: int
    segments: int  # P
    states: int  # the number of state vectors of a segment
    as_given: bool  # whether the gates already have the kernel's layout

    @property
    def width(self) -> int:
        """Units with their padding."""
        return self.blocks * self.lanes


@lru_cache(maxsize=64)
def shape_of(kind: str, element: str, hidden: int) -> Shape:
    lanes = 4 if hidden <= 4 else 8 if hidden <= 8 else 16
    blocks = -(-hidden // lanes)
    # A step is a chain of operations: more segments hide its latency, but fill the registers with those of a block.
    segments = (64 if blocks == 1 else 32) // lanes
    states = 2 if kind == "lstm" else 1
    return Shape(kind, element, GATES[kind], hidden, lanes, blocks, segments, states, as_given=lanes == hidden)


def pad_units(shape: Shape, value: Tensor) -> Tensor:
    """``[..., H]`` as ``[..., width]``: units that stay at zero make whole vectors."""
    return value if shape.as_given else pad(value, (0, shape.width - shape.hidden))


def pad_gates(shape: Shape, value: Tensor) -> Tensor:
    """``[..., G * H]`` as ``[..., G * width]``."""
    if shape.as_given:
        return value
    return pad_units(shape, value.unflatten(-1, (shape.gates, shape.hidden))).flatten(-2)


def cut_gates(shape: Shape, value: Tensor) -> Tensor:
    """The inverse of :func:`pad_gates`."""
    if shape.as_given:
        return value
    return value.unflatten(-1, (shape.gates, shape.width))[..., : shape.hidden].flatten(-2)


def pack_gates(shape: Shape, value: Tensor) -> Tensor:
    """``[..., G * H]`` as ``[..., blocks * G * B]``."""
    if shape.as_given:
        return value
    value = value.unflatten(-1, (shape.gates, shape.hidden))
    value = pad(value, (0, shape.width - shape.hidden)).unflatten(-1, (shape.blocks, shape.lanes))
    return value.transpose(-2, -3).flatten(-3)


def unpack_gates(shape: Shape, value: Tensor) -> Tensor:
    """The inverse of :func:`pack_gates`."""
    if shape.as_given:
        return value
    value = value.unflatten(-1, (shape.blocks, shape.gates, shape.lanes)).transpose(-2, -3).flatten(-2)
    return value[..., : shape.hidden].flatten(-2)


def pack_recurrent(shape: Shape, weight_hh: Tensor) -> Tensor:
    """``[..., G * H, H]`` as ``[..., blocks, width, G * B]``: for every block of gates, one row per unit of h."""
    return _pack_columns(shape, weight_hh).unflatten(-1, (shape.blocks, -1)).transpose(-2, -3)


def unpack_recurrent(shape: Shape, packed: Tensor) -> Tensor:
    """The inverse of :func:`pack_recurrent`."""
    columns = packed.transpose(-2, -3).flatten(-2)  # [..., width, blocks * G * B]
    return unpack_gates(shape, columns[..., : shape.hidden, :]).transpose(-1, -2)


def pack_transposed(shape: Shape, weight_hh: Tensor) -> Tensor:
    """``[..., G * H, H]`` as ``[..., blocks * width * G, B]``: for every block of h, one row per gate of all."""
    columns = _pack_columns(shape, weight_hh).unflatten(-2, (shape.blocks, shape.lanes))
    return columns.transpose(-1, -2).flatten(-3, -2)


def _pack_columns(shape: Shape, weight_hh: Tensor) -> Tensor:
    """``[..., G * H, H]`` as ``[..., width, blocks * G * B]``."""
    columns = pack_gates(shape, weight_hh.transpose(-1, -2))
    return columns if shape.as_given else pad(columns, (0, 0, 0, shape.width - shape.hidden))
