"""The products of the recurrence and of its gradient, one block of them at a time.

The loops over lanes are unrolled here, those over blocks are the caller's.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from torch_goat.ops.ragged_rnn.cpu.layout import Cell, address_of, block_address, load_for_all, load_from, store_to
from torch_goat.ops.ragged_rnn.cpu.simd import Vector, constant, intrinsic, multiply_add_of, shuffled


def _of_unit(builder: ir.IRBuilder, units: ir.Value, cell: Cell, unit: int, times: int) -> ir.Value:
    """One unit of every segment repeated over its lanes, ``times`` over."""
    lanes = [segment * cell.lanes + unit for segment in range(cell.segments) for _ in range(cell.lanes)]
    return shuffled(builder, units, lanes * times)


@intrinsic
def add_product(typing: Any, cell: Any, gates: Any, weights: Any, first: Any, units: Any) -> Any:
    """``gates + weights[first:first + B].T @ units``, the product of one block."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        _, total, value, start, state = args
        for unit in range(cell.lanes):
            line = builder.add(start, ir.Constant(start.type, unit))
            address = address_of(context, builder, weights, value, line, ir.Constant(start.type, 0))
            weight = load_for_all(builder, address, cell)
            total = multiply_add_of(builder, _of_unit(builder, state, cell, unit, cell.num_gates), weight, total)
        return total

    return cell.gates(cell, gates, weights, types.intp, units), emit


@intrinsic
def add_transposed(typing: Any, cell: Any, units: Any, weights: Any, first: Any, gates: Any) -> Any:
    """``units + weights[first:first + G * B].T @ gates``, the product of one block."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        _, total, value, start, gate = args
        width, line = cell.units.lanes, Vector(cell.units.element, cell.lanes)
        sums = [total, *[constant(cell.units, [0.0] * width)] * (cell.num_gates - 1)]  # a chain of additions per gate
        for index in range(cell.num_gates):
            part = shuffled(builder, gate, range(index * width, (index + 1) * width))
            for unit in range(cell.lanes):
                row = builder.add(start, ir.Constant(start.type, index * cell.lanes + unit))
                address = address_of(context, builder, weights, value, row, ir.Constant(start.type, 0))
                weight = shuffled(builder, load_from(builder, address, line), list(range(cell.lanes)) * cell.segments)
                sums[index] = multiply_add_of(builder, _of_unit(builder, part, cell, unit, 1), weight, sums[index])
        total = sums[0]
        for other in sums[1:]:
            total = builder.fadd(total, other)
        return total

    return cell.units(cell, units, weights, types.intp, gates), emit


@intrinsic
def add_outer(typing: Any, cell: Any, tile: Any, h: Any, row: Any, first: Any, gates: Any) -> Any:
    """``tile[u] + h[row, :, first + u] * gates``, for every row u of the tile."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        _, result, value, at, start, gate = args
        # The units of a tile lie in one block; they are read from there, for the other segments are B lanes further on.
        vector = Vector(cell.units.element, cell.units.lanes - cell.lanes + cell.tile.rows)
        units = load_from(builder, address_of(context, builder, h, value, at, start), vector)
        for unit in range(cell.tile.rows):
            total = multiply_add_of(
                builder, _of_unit(builder, units, cell, unit, cell.num_gates), gate, builder.extract_value(result, unit)
            )
            result = builder.insert_value(result, total, unit)
        return result

    return cell.tile(cell, tile, h, types.intp, types.intp, gates), emit


def _over_runs(builder: ir.IRBuilder, gates: ir.Value, cell: Cell) -> ir.Value:
    """The sum over the segments, ``[G, B]``."""
    total = shuffled(builder, gates, cell.lanes_of(0))
    for segment in range(1, cell.segments):
        total = builder.fadd(total, shuffled(builder, gates, cell.lanes_of(segment)))
    return total


@intrinsic
def add_tile(typing: Any, cell: Any, array: Any, first: Any, tile: Any) -> Any:
    """Adds the rows of a tile, summed over the segments, to ``array[first:]`` ``[rows, G * B]``."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        _, value, start, rows = args
        for row in range(cell.tile.rows):
            line = builder.add(start, ir.Constant(start.type, row))
            address = address_of(context, builder, array, value, line, ir.Constant(start.type, 0))
            share = _over_runs(builder, builder.extract_value(rows, row), cell)
            store_to(builder, builder.fadd(load_from(builder, address, cell.row), share), address, cell.row)
        return context.get_dummy_value()

    return types.none(cell, array, types.intp, tile), emit


@intrinsic
def add_bias(typing: Any, cell: Any, array: Any, row: Any, block: Any, gates: Any) -> Any:
    """Adds gates, summed over the segments, to a block of ``array[row]`` ``[G * width]``."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        address = block_address(context, builder, array, args[1], args[2], args[3], cell.row)
        share = _over_runs(builder, args[4], cell)
        store_to(builder, builder.fadd(load_from(builder, address, cell.row), share), address, cell.row)
        return context.get_dummy_value()

    return types.none(cell, array, types.intp, types.intp, gates), emit
