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
from torch_goat.ops.ragged_rnn.cpu.simd import Tile, Vector, concatenated, constant, intrinsic, shuffled


class Cell(types.Type):
    """The type of a cell: all that is known of it at compile time."""

    def __init__(self, shape):
        element = types.float32 if shape.element == "float32" else types.float64
        self.kind, self.one_block = shape.kind, shape.blocks == 1
        self.num_gates, self.segments, self.lanes = shape.gates, shape.segments, shape.lanes  # G, P, B
        self.units = Vector(element, self.segments * self.lanes)
        self.gates = Vector(element, self.num_gates * self.units.lanes)
        self.row = Vector(element, self.num_gates * self.lanes)  # the gates of one segment
        self.tile = Tile(self.gates, 2)
        super().__init__(f"Cell({self.kind}, {element}, {self.segments}, {self.lanes}, {self.one_block})")

    def lanes_of(self, segment):
        """Where in a vector of gates those of one segment are."""
        return [
            (gate * self.segments + segment) * self.lanes + lane
            for gate in range(self.num_gates)
            for lane in range(self.lanes)
        ]


register_model(Cell)(models.OpaqueModel)


@typeof_impl.register(Shape)
def _(shape, context) -> Cell:
    return Cell(shape)


@unbox(Cell)
def _(cell, value, context) -> NativeValue:
    return NativeValue(context.context.get_dummy_value())


def _constant(name, kind_of, value_of=lambda cell: None):
    """A function of a cell with a value that is known at compile time; zeros if that is ``None``."""

    def typed(typing, cell):
        def emit(context, builder, sig, args):
            return ir.Constant(context.get_value_type(kind_of(cell)), value_of(cell))

        return kind_of(cell)(cell), emit

    typed.__name__ = typed.__qualname__ = name
    return intrinsic(typed)


count_segments = _constant("count_segments", lambda cell: types.intp, lambda cell: cell.segments)
count_lanes = _constant("count_lanes", lambda cell: types.intp, lambda cell: cell.lanes)
tile_rows = _constant("tile_rows", lambda cell: types.intp, lambda cell: cell.tile.rows)
no_units = _constant("no_units", lambda cell: cell.units)
no_gates = _constant("no_gates", lambda cell: cell.gates)
no_tile = _constant("no_tile", lambda cell: cell.tile)


@intrinsic
def count_blocks(typing, cell, weights):
    """The number of blocks in packed weights ``[blocks, width, G * B]``; a constant where there is one."""

    def emit(context, builder, sig, args):
        if cell.one_block:
            return context.get_constant(types.intp, 1)
        return builder.extract_value(context.make_array(weights)(context, builder, args[1]).shape, 0)

    return types.intp(cell, weights), emit


# Memory. Arrays are [rows, width] with contiguous rows, and a vector is addressed by its row and its block.


def address_of(context, builder, array, value, row, column: ir.Value):
    fields = context.make_array(array)(context, builder, value)
    size = ir.Constant(row.type, context.get_abi_sizeof(context.get_data_type(array.dtype)))
    offset = builder.add(builder.mul(row, builder.extract_value(fields.strides, 0)), builder.mul(column, size))
    return builder.gep(builder.bitcast(fields.data, ir.IntType(8).as_pointer()), [offset], inbounds=True)


def block_address(context, builder, array, value, row, block, vector):
    column = builder.mul(block, ir.Constant(block.type, vector.lanes))
    return address_of(context, builder, array, value, row, column)


def load_from(builder, address, vector):
    pointer = builder.bitcast(address, vector.to_llvm().as_pointer())
    return builder.load(pointer, align=vector.element.bitwidth // 8)


def store_to(builder, value, address, vector):
    pointer = builder.bitcast(address, vector.to_llvm().as_pointer())
    builder.store(value, pointer, align=vector.element.bitwidth // 8)


def _loader(name, vector_of):
    def typed(typing, cell, array, row, block):
        vector = vector_of(cell)

        def emit(context, builder, sig, args):
            return load_from(builder, block_address(context, builder, array, args[1], args[2], args[3], vector), vector)

        return vector(cell, array, types.intp, types.intp), emit

    typed.__name__ = typed.__qualname__ = name
    return intrinsic(typed)


load_units = _loader("load_units", lambda cell: cell.units)
load_gates = _loader("load_gates", lambda cell: cell.gates)


@intrinsic
def store(typing, array, row, block, vector):
    def emit(context, builder, sig, args):
        store_to(builder, args[3], block_address(context, builder, array, args[0], args[1], args[2], vector), vector)
        return context.get_dummy_value()

    return types.none(array, types.intp, types.intp, vector), emit


def load_for_all(builder, address, cell):
    """A row of weights ``[G, B]``, the same for every segment: ``[G, P, B]``."""
    one = Vector(cell.units.element, cell.lanes)
    size = one.lanes * one.element.bitwidth // 8
    # Gate by gate: a load that broadcasts is as fast as a plain one.
    gates = [
        load_from(builder, builder.gep(address, [ir.Constant(ir.IntType(64), gate * size)]), one)
        for gate in range(cell.num_gates)
    ]
    return concatenated(builder, [shuffled(builder, gate, list(range(one.lanes)) * cell.segments) for gate in gates])


@intrinsic
def load_bias(typing, cell, array, block):
    """A block of a bias ``[1, G * width]``, the same for every segment."""

    def emit(context, builder, sig, args):
        first = ir.Constant(args[2].type, 0)
        address = block_address(context, builder, array, args[1], first, args[2], cell.row)
        return load_for_all(builder, address, cell)

    return cell.gates(cell, array, types.intp), emit


def _at_places(context, builder, array, value, at, places, segments):
    """``array[at[segment]]`` of every segment."""
    data = context.make_array(array)(context, builder, value).data
    where = context.make_array(at)(context, builder, places).data
    numbers = []
    for segment in range(segments):
        place = builder.load(builder.gep(where, [ir.Constant(ir.IntType(64), segment)]))
        numbers.append(builder.load(builder.gep(data, [place])))
    return numbers


@intrinsic
def gather(typing, cell, table, source, at, block):
    """A block of the gates in the row ``source[at[segment]]`` of every segment."""

    def emit(context, builder, sig, args):
        rows = [
            load_from(builder, block_address(context, builder, table, args[1], row, args[4], cell.row), cell.row)
            for row in _at_places(context, builder, source, args[2], at, args[3], cell.segments)
        ]
        lanes = [
            (segment * cell.num_gates + gate) * cell.lanes + lane
            for gate in range(cell.num_gates)
            for segment in range(cell.segments)
            for lane in range(cell.lanes)
        ]
        return shuffled(builder, concatenated(builder, rows), lanes)

    return cell.gates(cell, table, source, at, types.intp), emit


@intrinsic
def scatter(typing, cell, table, source, at, block, gates):
    """Adds a block of gates to the row ``source[at[segment]]`` of each segment in turn, since rows may coincide."""

    def emit(context, builder, sig, args):
        for segment, row in enumerate(_at_places(context, builder, source, args[2], at, args[3], cell.segments)):
            address = block_address(context, builder, table, args[1], row, args[4], cell.row)
            share = shuffled(builder, args[5], cell.lanes_of(segment))
            store_to(builder, builder.fadd(load_from(builder, address, cell.row), share), address, cell.row)
        return context.get_dummy_value()

    return types.none(cell, table, source, at, types.intp, gates), emit


@intrinsic
def prefetch(typing, cell, table, source, at):
    """Prefetches the rows that the segments read at ``at``: the processor does not look ahead to the next step."""

    def emit(context, builder, sig, args):
        pointer, integer = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, integer, integer, integer])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(integer, flag) for flag in (0, 3, 1))
        for row in _at_places(context, builder, source, args[2], at, args[3], cell.segments):
            for column in range(0, cell.row.lanes, 64 * 8 // cell.row.element.bitwidth):
                address = address_of(context, builder, table, args[1], row, ir.Constant(row.type, column))
                builder.call(function, [address, read, keep, data])
        return context.get_dummy_value()

    return types.none(cell, table, source, at), emit


@intrinsic
def load_scale(typing, cell, scale, at):
    """``scale[at[segment]]`` in all gates of every segment."""
    vector = Vector(cell.units.element, cell.segments)

    def emit(context, builder, sig, args):
        numbers = ir.Constant(vector.to_llvm(), ir.Undefined)
        for segment, number in enumerate(_at_places(context, builder, scale, args[1], at, args[2], cell.segments)):
            numbers = builder.insert_element(numbers, number, ir.Constant(ir.IntType(32), segment))
        lanes = [segment for _ in range(cell.num_gates) for segment in range(cell.segments) for _ in range(cell.lanes)]
        return shuffled(builder, numbers, lanes)

    return cell.gates(cell, scale, at), emit


@intrinsic
def store_totals(typing, cell, array, gates):
    """``array[segment]`` becomes the sum over the gates of every segment."""

    def emit(context, builder, sig, args):
        width = cell.units.lanes
        total = shuffled(builder, args[2], range(width))
        for gate in range(1, cell.num_gates):
            total = builder.fadd(total, shuffled(builder, args[2], range(gate * width, (gate + 1) * width)))
        lanes = cell.lanes
        while lanes > 1:
            lanes //= 2
            first = [segment * 2 * lanes + lane for segment in range(cell.segments) for lane in range(lanes)]
            total = builder.fadd(
                shuffled(builder, total, first), shuffled(builder, total, [lane + lanes for lane in first])
            )
        vector = Vector(cell.units.element, cell.segments)
        data = context.make_array(array)(context, builder, args[1]).data
        store_to(builder, total, data, vector)
        return context.get_dummy_value()

    return types.none(cell, array, gates), emit


@intrinsic
def flush(typing, x):
    """Replaces tiny values by zero: a gradient that vanishes along a segment becomes subnormal, which is slow."""
    tiny = 2.0**-100 if x.element.bitwidth == 32 else 2.0**-900

    def emit(context, builder, sig, args):
        high, low, zero = (constant(x, [value] * x.lanes) for value in (tiny, -tiny, 0.0))
        small = builder.and_(builder.fcmp_ordered("<", args[0], high), builder.fcmp_ordered(">", args[0], low))
        return builder.select(small, zero, args[0])

    return x(x), emit
