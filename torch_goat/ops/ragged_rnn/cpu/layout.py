"""The layout of the states of a few segments in vectors and in memory, with loads and stores.

The H units of one direction are cut into blocks of B = 4, 8 or 16, padded with zeros, and P segments advance together.
A vector of units is ``[P, B]``, a vector of gates ``[G, P, B]``: each gate fills whole registers for every B, and P
chains of dependent steps are in flight at once, which hides the latency of a step (some 200 cycles).

A row of gates in memory is ``[blocks, G, B]``, a row of scratch holds one step, ``[blocks, P, B]`` or
``[blocks, G, P, B]``. Padded units stay at zero through every cell, and so do their gradients.
"""

# mypy: allow-untyped-defs

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox

from torch_goat.ops.ragged_rnn.cpu.packing import Shape
from torch_goat.ops.ragged_rnn.cpu.simd import Argument, Code, Vector, operation


class Cell(types.Type):
    """The type of a cell: all that is known of it at compile time."""

    def __init__(self, shape):
        element = types.float32 if shape.element == "float32" else types.float64
        # Code for one segment at a time is the same for any number of blocks.
        self.kind, self.one_block = shape.kind, shape.blocks == 1 and shape.segments > 1
        self.num_gates, self.segments, self.lanes = shape.gates, shape.segments, shape.lanes  # G, P, B
        self.units = Vector(element, self.segments * self.lanes)
        self.gates = Vector(element, self.num_gates * self.units.lanes)
        self.row = Vector(element, self.num_gates * self.lanes)  # the gates of one segment
        # Gates apart, for loops: LLVM carries a vector of 3 gates, whose lanes are no power of 2, lane by lane.
        self.parts = types.UniTuple(self.units, self.num_gates)
        self.tile = types.UniTuple(self.parts, 2)  # rows of a small matrix, meant to stay in registers
        super().__init__(f"Cell({self.kind}, {element}, {self.segments}, {self.lanes}, {self.one_block})")


register_model(Cell)(models.OpaqueModel)


@typeof_impl.register(Shape)
def _(shape, context) -> Cell:
    return Cell(shape)


@unbox(Cell)
def _(cell, value, context) -> NativeValue:
    return NativeValue(context.context.get_dummy_value())


def _known(kind_of, value_of=lambda cell: None):
    """A function of a cell with a value that is known at compile time; zeros if that is ``None``."""

    @operation(kind_of)
    def known(code, cell):
        return ir.Constant(code.context.get_value_type(kind_of(cell.type)), value_of(cell.type))

    return known


count_segments = _known(lambda cell: types.intp, lambda cell: cell.segments)
count_lanes = _known(lambda cell: types.intp, lambda cell: cell.lanes)
tile_rows = _known(lambda cell: types.intp, lambda cell: cell.tile.count)
no_units = _known(lambda cell: cell.units)
no_gates = _known(lambda cell: cell.gates)
no_parts = _known(lambda cell: cell.parts)
no_tile = _known(lambda cell: cell.tile)
ones = _known(lambda cell: cell.units, lambda cell: [1.0] * cell.units.lanes)


@operation(lambda cell, weights: types.intp)
def count_blocks(code, cell, weights):
    """The number of blocks in packed weights ``[blocks, width, G * B]``; a constant where there is one."""
    if cell.type.one_block:
        return code.context.get_constant(types.intp, 1)
    return code.builder.extract_value(code.array(weights).shape, 0)


@operation(lambda cell, gates: cell.parts)
def split(code, cell, gates):
    """The vectors of units of the gates."""
    width, firsts = cell.type.units.lanes, range(0, cell.type.gates.lanes, cell.type.units.lanes)
    units = [code.shuffle(gates.value, range(first, first + width)) for first in firsts]
    return cgutils.pack_array(code.builder, units)


# Memory. Arrays are [rows, width] with contiguous rows, and a vector is addressed by its row and its block.


def block_address(code: Code, array: Argument, row: ir.Value, block: Argument, vector: Vector) -> ir.Value:
    return code.address(array, row, code.builder.mul(block.value, ir.Constant(block.value.type, vector.lanes)))


def _loader(vector_of):
    @operation(lambda cell, array, row, block: vector_of(cell))
    def load(code, cell, array, row, block):
        vector = vector_of(cell.type)
        return code.load(block_address(code, array, row.value, block, vector), vector)

    return load


load_units = _loader(lambda cell: cell.units)
load_gates = _loader(lambda cell: cell.gates)


@operation(lambda array, row, block, vector: types.none)
def store(code, array, row, block, vector):
    code.store(vector.value, block_address(code, array, row.value, block, vector.type), vector.type)


def add_to(code: Code, address: ir.Value, share: ir.Value, vector: Vector) -> None:
    code.store(code.builder.fadd(code.load(address, vector), share), address, vector)


def _gate_address(code: Code, address: ir.Value, gate: int, one: Vector) -> ir.Value:
    """Where a gate is in a row of gates ``[G, B]``."""
    return code.builder.gep(address, [ir.Constant(ir.IntType(64), gate * one.lanes * one.element.bitwidth // 8)])


def load_for_all(code: Code, address: ir.Value, cell: Cell) -> ir.Value:
    """A row of weights ``[G, B]``, the same for every segment: ``[G, P, B]``."""
    one = Vector(cell.units.element, cell.lanes)
    # Gate by gate: a load that broadcasts is as fast as a plain one.
    gates = [code.load(_gate_address(code, address, gate, one), one) for gate in range(cell.num_gates)]
    return code.concatenate([code.shuffle(gate, list(range(one.lanes)) * cell.segments) for gate in gates])


@operation(lambda cell, array, block: cell.gates)
def load_bias(code, cell, array, block):
    """A block of a bias ``[1, G * width]``, the same for every segment."""
    first = ir.Constant(block.value.type, 0)
    return load_for_all(code, block_address(code, array, first, block, cell.type.row), cell.type)


def _at_places(code: Code, array: Argument, at: Argument, cell: Argument) -> list[ir.Value]:
    """``array[at[segment]]`` of every segment."""
    data, where = code.array(array).data, code.array(at).data
    numbers = []
    for segment in range(cell.type.segments):
        place = code.builder.load(code.builder.gep(where, [ir.Constant(ir.IntType(64), segment)]))
        numbers.append(code.builder.load(code.builder.gep(data, [place])))
    return numbers


@operation(lambda cell, table, source, at, block: cell.gates)
def gather(code, cell, table, source, at, block):
    """A block of the gates in the row ``source[at[segment]]`` of every segment."""
    one = Vector(cell.type.units.element, cell.type.lanes)
    rows = [block_address(code, table, row, block, cell.type.row) for row in _at_places(code, source, at, cell)]
    gates = range(cell.type.num_gates)
    return code.concatenate([code.load(_gate_address(code, row, gate, one), one) for gate in gates for row in rows])


@operation(lambda cell, table, source, at, block, gates: types.none)
def scatter(code, cell, table, source, at, block, gates):
    """Adds a block of gates to the row ``source[at[segment]]`` of each segment in turn, since rows may coincide."""
    kind, one = cell.type, Vector(cell.type.units.element, cell.type.lanes)
    for segment, row in enumerate(_at_places(code, source, at, cell)):
        address = block_address(code, table, row, block, kind.row)
        for gate in range(kind.num_gates):  # aligned parts of the vector, which are cheap to take
            first = (gate * kind.segments + segment) * kind.lanes
            part = code.shuffle(gates.value, range(first, first + kind.lanes))
            add_to(code, _gate_address(code, address, gate, one), part, one)


@operation(lambda cell, table, source, at: types.none)
def prefetch(code, cell, table, source, at):
    """Prefetches the rows that the segments read at ``at``."""
    row_of_gates = cell.type.row
    for row in _at_places(code, source, at, cell):
        for column in range(0, row_of_gates.lanes, 64 * 8 // row_of_gates.element.bitwidth):
            code.prefetch(code.address(table, row, ir.Constant(row.type, column)))


@operation(lambda cell, scale, at: cell.gates)
def load_scale(code, cell, scale, at):
    """``scale[at[segment]]`` in all gates of every segment."""
    segments = range(cell.type.segments)
    numbers = ir.Constant(Vector(cell.type.units.element, len(segments)).to_llvm(), ir.Undefined)
    for segment, number in enumerate(_at_places(code, scale, at, cell)):
        numbers = code.builder.insert_element(numbers, number, ir.Constant(ir.IntType(32), segment))
    lanes = [segment for segment in segments for _ in range(cell.type.lanes)]
    return code.shuffle(numbers, lanes * cell.type.num_gates)


@operation(lambda cell, array, gates: types.none)
def store_totals(code, cell, array, gates):
    """``array[segment]`` becomes the sum over the gates of every segment."""
    width, lanes, segments = cell.type.units.lanes, cell.type.lanes, cell.type.segments
    total = code.shuffle(gates.value, range(width))
    for gate in range(1, cell.type.num_gates):
        total = code.builder.fadd(total, code.shuffle(gates.value, range(gate * width, (gate + 1) * width)))
    while lanes > 1:  # the lanes of a segment in pairs, without leaving their register
        lanes //= 2
        total = code.builder.fadd(total, code.shuffle(total, [lane ^ lanes for lane in range(width)]))
    total = code.shuffle(total, range(0, width, cell.type.lanes))
    code.store(total, code.array(array).data, Vector(cell.type.units.element, segments))
