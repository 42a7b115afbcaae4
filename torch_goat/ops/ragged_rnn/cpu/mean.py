"""The weighted sum over segments on the CPU. Tasks are blocks of columns, as in :mod:`.scan`."""

from typing import Any

from torch import Tensor

from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.cpu.packing import Shape, pad_units
from torch_goat.ops.ragged_rnn.cpu.scan import split_blocks, units_in_blocks
from torch_goat.ops.threads import run_all


def weighted_sum(z: Tensor, places: Places, weight: Tensor) -> Tensor:
    """:func:`torch_goat.ops.weighted_mean`; states and weights have the same dtype, float32 or float64."""
    from torch_goat.ops.ragged_rnn.cpu import mean_loops

    shape = _shape(z)
    tasks, _ = split_blocks(shape, z.size(1), 1)
    out = z.new_empty(places.segments.num_segments, z.size(1), shape.width)
    arguments = (_packed(shape, z, places, weight), out.numpy(), tasks)
    steps = places.source.numel() * shape.blocks
    run_all(lambda begin, end: mean_loops.forward(shape, *arguments, begin, end), tasks.size, steps)
    return out if shape.as_given else out[..., : shape.hidden].contiguous()


def weighted_sum_backward(grad: Tensor, z: Tensor, weight: Tensor, places: Places) -> tuple[Tensor, Tensor]:
    """The gradients of ``z`` and ``weight``."""
    from torch_goat.ops.ragged_rnn.cpu import mean_loops

    shape = _shape(z)
    tasks, parts = split_blocks(shape, z.size(1), 1)
    table = z.new_zeros(z.size(0), z.size(1), shape.width)
    scale = weight.new_zeros(parts, *weight.shape)
    arguments = (
        _packed(shape, z, places, weight),
        pad_units(shape, grad).contiguous().numpy(),
        table.numpy(),
        scale.numpy(),
        tasks,
    )
    steps = places.source.numel() * shape.blocks
    run_all(lambda begin, end: mean_loops.backward(shape, *arguments, begin, end), tasks.size, steps)
    return table if shape.as_given else table[..., : shape.hidden].contiguous(), scale.sum(dim=0)


def _shape(z: Tensor) -> Shape:
    return units_in_blocks("mean", str(z.dtype).removeprefix("torch."), 1, z.size(-1))


def _packed(shape: Shape, z: Tensor, places: Places, weight: Tensor) -> Any:
    from torch_goat.ops.ragged_rnn.cpu.mean_loops import Packed

    values = (pad_units(shape, z), places.source, weight, places.ptr)
    return Packed(*[value.detach().contiguous().numpy() for value in values])
