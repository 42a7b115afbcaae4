"""The loops of minGRU and minLSTM over all segments, for some blocks of units of one head and direction.

A step is h' = h + z (n - h). The final state is the sum of w n over all steps, where the weight w of a step is its z
times the product P of 1 - z over the steps after it. The backward reads a segment from its end, with P and with what
the steps before have contributed to the final state, R: no state but the final one is needed. R is a difference, whose
rounding would be all that is left once P has vanished: from there on nothing flows back, and the loop ends.
"""

# mypy: allow-untyped-defs

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import overload

from torch_goat.ops.ragged_rnn.cpu.layout import load_units, no_units, ones, store
from torch_goat.ops.ragged_rnn.cpu.simd import Vector, multiply_add, operation, sigmoid
from torch_goat.ops.ragged_rnn.cpu.sweep import Compiled


class Packed(NamedTuple):
    """The inputs of all heads and directions."""

    table: np.ndarray  # [K, S, D, G * width]
    source: np.ndarray  # [K, E]
    scale: np.ndarray  # [K, E]
    ptr: np.ndarray  # [T + 1]
    bias: np.ndarray  # [K, D, G * width]


class Outputs(NamedTuple):
    """All gradients."""

    table: np.ndarray  # [K, S, D, G * width]
    scale: np.ndarray  # [parts, D, K, E]
    bias: np.ndarray  # [K, D, G * width], in float64


# A cell has one vector of B units per gate; together they are the `parts` of a block, [G, width] in memory.


def _each(code, cell, values):
    """A tuple with one value per gate."""
    return cgutils.pack_array(code.builder, list(values))


def _part(code, parts, gate):
    return code.builder.extract_value(parts.value, gate)


def _addresses(code, cell, array, row, block):
    """Where the parts of a block are in a row."""
    kind, lanes = row.value.type, cell.type.lanes
    total = code.builder.extract_value(code.array(array).shape, array.type.ndim - 1)
    width = code.builder.sdiv(total, ir.Constant(kind, cell.type.num_gates))
    first = code.builder.mul(block.value, ir.Constant(kind, lanes))
    for gate in range(cell.type.num_gates):
        column = code.builder.add(code.builder.mul(width, ir.Constant(kind, gate)), first)
        yield code.address(array, row.value, column)


def _parts_of(cell, *_):
    return types.UniTuple(cell.units, cell.num_gates)


@operation(_parts_of)
def load_parts(code, cell, array, row, block):
    return _each(code, cell, (code.load(one, cell.type.units) for one in _addresses(code, cell, array, row, block)))


@operation(_parts_of)
def no_parts(code, cell):
    return ir.Constant(code.context.get_value_type(_parts_of(cell.type)), None)


@operation(_parts_of)
def scale_parts(code, cell, parts, scale, bias):
    """``scale * parts + bias``, where ``scale`` is one number."""
    filled = code.fill(cell.type.units, scale.value)
    gates = range(cell.type.num_gates)
    return _each(code, cell, (code.multiply_add(_part(code, parts, g), filled, _part(code, bias, g)) for g in gates))


@operation(_parts_of)
def add_parts(code, cell, parts, others):
    gates = range(cell.type.num_gates)
    return _each(code, cell, (code.builder.fadd(_part(code, parts, g), _part(code, others, g)) for g in gates))


@operation(lambda cell, array, row, block, parts, scale: types.none)
def add_to_row(code, cell, array, row, block, parts, scale):
    """``array[row] += scale * parts``."""
    filled = code.fill(cell.type.units, scale.value)
    for gate, address in enumerate(_addresses(code, cell, array, row, block)):
        before = code.load(address, cell.type.units)
        code.store(code.multiply_add(_part(code, parts, gate), filled, before), address, cell.type.units)


@operation(lambda cell, array, row, block, parts: types.none)
def add_to_sums(code, cell, array, row, block, parts):
    """``array[row] += parts``, where ``array`` is float64."""
    wide = Vector(types.float64, cell.type.lanes)
    for gate, address in enumerate(_addresses(code, cell, array, row, block)):
        part = _part(code, parts, gate)
        part = part if part.type == wide.to_llvm() else code.builder.fpext(part, wide.to_llvm())
        code.store(code.builder.fadd(code.load(address, wide), part), address, wide)


@operation(lambda cell, parts, others: cell.units.element)
def dot(code, cell, parts, others):
    """The sum of all products."""
    total = code.builder.fmul(_part(code, parts, 0), _part(code, others, 0))
    for gate in range(1, cell.type.num_gates):
        total = code.multiply_add(_part(code, parts, gate), _part(code, others, gate), total)
    return code.total(total)


@operation(lambda keep, value: value)
def unless_vanished(code, keep, value):
    """``value`` where ``keep`` is large enough to matter next to 1, otherwise zero."""
    least = keep.type.constant(2.0**-24 if keep.type.element.bitwidth == 32 else 2.0**-53)
    return code.builder.select(code.builder.fcmp_ordered("<", keep.value, least), value.type.constant(0.0), value.value)


@operation(lambda value: types.boolean)
def any_left(code, value):
    """Whether any element is not zero."""
    lanes = value.type.lanes
    nonzero = code.builder.fcmp_unordered("!=", value.value, value.type.constant(0.0))
    return code.builder.icmp_unsigned(
        "!=", code.builder.bitcast(nonzero, ir.IntType(lanes)), ir.Constant(ir.IntType(lanes), 0)
    )


@operation(lambda i, f: types.UniTuple(i, 2))
def shift_up(code, i, f):
    """Two preactivations, both raised by the same amount if both are below -40.

    The logistic function is exponential there: the ratio of both does not change, and none of them underflows first.
    """
    builder, low = code.builder, i.type.constant(-40.0)
    larger = builder.select(builder.fcmp_ordered("<", i.value, f.value), f.value, i.value)
    amount = builder.fsub(low, larger)
    amount = builder.select(builder.fcmp_ordered("<", amount, i.type.constant(0.0)), i.type.constant(0.0), amount)
    return cgutils.pack_array(builder, [builder.fadd(i.value, amount), builder.fadd(f.value, amount)])


@operation(lambda a, b: a)
def divide(code, a, b):
    return code.builder.fdiv(a.value, b.value, flags=("arcp",))


def activate(cell, parts):
    """The gate z of a step and, in a minLSTM, the gates i and f that it is made of."""


@overload(activate, jit_options={"forceinline": True})
def _(cell, parts):
    def of_gru(cell, parts):
        return (sigmoid(parts[0]),)

    def of_lstm(cell, parts):
        i, f = shift_up(parts[0], parts[1])
        i, f = sigmoid(i), sigmoid(f)
        return divide(i, i + f), i, f

    return {"mingru": of_gru, "minlstm": of_lstm}[cell.kind]


def gradients(cell, gates, through, grad_new):
    """Those of the parts, from that of the argument of z (in a minLSTM, a difference of two softplus) and of n."""


@overload(gradients, jit_options={"forceinline": True})
def _(cell, gates, through, grad_new):
    def of_gru(cell, gates, through, grad_new):
        return through, grad_new

    def of_lstm(cell, gates, through, grad_new):
        return through - through * gates[1], through * gates[2] - through, grad_new

    return {"mingru": of_gru, "minlstm": of_lstm}[cell.kind]


@Compiled
def forward(cell, inputs, final, tasks, begin, end):
    """Tasks ``begin`` to ``end``: the final states ``[T, K, D, width]`` of all segments."""
    for task in range(begin, end):
        _forward(cell, inputs, final, tasks[task])


@njit
def _forward(cell, inputs, final, task):
    head, direction = task.head, task.direction
    table, source, scale = inputs.table[head, :, direction], inputs.source[head], inputs.scale[head]
    biases, states = inputs.bias[head], final[:, head, direction]
    for target in range(inputs.ptr.size - 1):
        start, length = inputs.ptr[target], inputs.ptr[target + 1] - inputs.ptr[target]
        stride = 1 - 2 * direction
        first = start + direction * (length - 1)
        for block in range(task.first, task.last):
            bias, h = load_parts(cell, biases, direction, block), no_units(cell)
            for step in range(length):
                place = first + stride * step
                parts = scale_parts(cell, load_parts(cell, table, source[place], block), scale[place], bias)
                h = multiply_add(activate(cell, parts)[0], parts[-1] - h, h)
            store(states, target, block, h)


@Compiled
def backward(cell, inputs, final, grad, outputs, tasks, begin, end):
    """Tasks ``begin`` to ``end``: from the gradients ``[T, K, D, width]`` of all final states to ``outputs``."""
    for task in range(begin, end):
        _backward(cell, inputs, final, grad, outputs, tasks[task])


@njit
def _backward(cell, inputs, final, grad, outputs, task):
    head, direction = task.head, task.direction
    table, source, scale = inputs.table[head, :, direction], inputs.source[head], inputs.scale[head]
    biases, states, flows = inputs.bias[head], final[:, head, direction], grad[:, head, direction]
    grad_table, grad_bias = outputs.table[head, :, direction], outputs.bias[head]
    grad_scale = outputs.scale[task.part, direction, head]
    for target in range(inputs.ptr.size - 1):
        start, length = inputs.ptr[target], inputs.ptr[target + 1] - inputs.ptr[target]
        stride = 2 * direction - 1
        first = start + (1 - direction) * (length - 1)
        for block in range(task.first, task.last):
            bias, sums = load_parts(cell, biases, direction, block), no_parts(cell)
            flow, left = load_units(cell, flows, target, block), load_units(cell, states, target, block)  # left: R
            keep = ones(cell)  # P
            for step in range(length):
                place = first + stride * step
                row = load_parts(cell, table, source[place], block)
                parts = scale_parts(cell, row, scale[place], bias)
                gates, new = activate(cell, parts), parts[-1]
                weight = keep * gates[0]
                left, keep = left - weight * new, keep - weight
                left, keep = unless_vanished(keep, left), unless_vanished(keep, keep)
                through = flow * gates[0] * (keep * new - left)
                grads = gradients(cell, gates, through, flow * weight)
                sums = add_parts(cell, sums, grads)
                add_to_row(cell, grad_table, source[place], block, grads, scale[place])
                grad_scale[place] += dot(cell, grads, row)
                if not any_left(keep):
                    break
            add_to_sums(cell, grad_bias, direction, block, sums)
