"""The products of the recurrence and of its gradient, one block of them at a time.

The loops over lanes are unrolled here, those over blocks are the caller's.
"""

# mypy: allow-untyped-defs

from llvmlite import ir
from numba.core import cgutils, types

from torch_goat.ops.ragged_rnn.cpu.layout import Cell, add_to, block_address, load_for_all
from torch_goat.ops.ragged_rnn.cpu.simd import Argument, Code, Vector, operation


def _of_unit(code: Code, units: ir.Value, cell: Cell, unit: int, times: int) -> ir.Value:
    """One unit of every segment repeated over its lanes, ``times`` over."""
    lanes = [segment * cell.lanes + unit for segment in range(cell.segments) for _ in range(cell.lanes)]
    return code.shuffle(units, lanes * times)


def _line(code: Code, array: Argument, first: Argument, number: int) -> ir.Value:
    """The address of row ``first + number``."""
    kind = first.value.type
    return code.address(array, code.builder.add(first.value, ir.Constant(kind, number)), ir.Constant(kind, 0))


@operation(lambda cell, gates, weights, first, units: cell.gates)
def add_product(code, cell, gates, weights, first, units):
    """``gates + weights[first:first + B].T @ units``, the product of one block."""
    total = gates.value
    for unit in range(cell.type.lanes):
        weight = load_for_all(code, _line(code, weights, first, unit), cell.type)
        total = code.multiply_add(_of_unit(code, units.value, cell.type, unit, cell.type.num_gates), weight, total)
    return total


@operation(lambda cell, units, weights, first, gates: cell.units)
def add_transposed(code, cell, units, weights, first, gates):
    """``units + weights[first:first + G * B].T @ gates``, the product of one block."""
    kind, width = cell.type, cell.type.units.lanes
    sums = [units.value, *[kind.units.constant(0.0)] * (kind.num_gates - 1)]  # a chain of additions per gate
    for gate in range(kind.num_gates):
        part = code.shuffle(gates.value, range(gate * width, (gate + 1) * width))
        for unit in range(kind.lanes):
            address = _line(code, weights, first, gate * kind.lanes + unit)
            line = code.load(address, Vector(kind.units.element, kind.lanes))
            weight = code.shuffle(line, list(range(kind.lanes)) * kind.segments)
            sums[gate] = code.multiply_add(_of_unit(code, part, kind, unit, 1), weight, sums[gate])
    total = sums[0]
    for other in sums[1:]:
        total = code.builder.fadd(total, other)
    return total


@operation(lambda cell, tile, h, row, first, gates: cell.tile)
def add_outer(code, cell, tile, h, row, first, gates):
    """``tile[u] + h[row, :, first + u] * gates``, for every row u of the tile."""
    kind, result = cell.type, tile.value
    # The units of a tile lie in one block; they are read from there, for the other segments are B lanes further on.
    vector = Vector(kind.units.element, kind.units.lanes - kind.lanes + kind.tile.count)
    units = code.load(code.address(h, row.value, first.value), vector)
    for unit in range(kind.tile.count):
        factor = _of_unit(code, units, kind, unit, 1)
        for gate in range(kind.num_gates):
            part = code.builder.extract_value(gates.value, gate)
            total = code.multiply_add(factor, part, code.builder.extract_value(result, [unit, gate]))
            result = code.builder.insert_value(result, total, [unit, gate])
    return result


@operation(lambda cell, parts, others: cell.parts)
def add_parts(code, cell, parts, others):
    gates = range(cell.type.num_gates)
    pairs = ([code.builder.extract_value(value, gate) for value in (parts.value, others.value)] for gate in gates)
    return cgutils.pack_array(code.builder, [code.builder.fadd(*pair) for pair in pairs])


def _over_segments(code: Code, parts: ir.Value, cell: Cell) -> ir.Value:
    """The sum over the segments, ``[G, B]``."""
    totals = []
    for gate in range(cell.num_gates):
        lanes, total = cell.units.lanes, code.builder.extract_value(parts, gate)
        while lanes > cell.lanes:
            lanes //= 2
            halves = (code.shuffle(total, range(start, start + lanes)) for start in (0, lanes))
            total = code.builder.fadd(*halves)
        totals.append(total)
    return code.concatenate(totals)


@operation(lambda cell, array, first, tile: types.none)
def add_tile(code, cell, array, first, tile):
    """Adds the rows of a tile, summed over the segments, to ``array[first:]`` ``[rows, G * B]``."""
    for row in range(cell.type.tile.count):
        share = _over_segments(code, code.builder.extract_value(tile.value, row), cell.type)
        add_to(code, _line(code, array, first, row), share, cell.type.row)


@operation(lambda cell, array, row, block, parts: types.none)
def add_bias(code, cell, array, row, block, parts):
    """Adds gates, summed over the segments, to a block of ``array[row]`` ``[G * width]``."""
    address = block_address(code, array, row.value, block, cell.type.row)
    add_to(code, address, _over_segments(code, parts.value, cell.type), cell.type.row)
