"""Vectors for numba: a type that is one LLVM vector, and the operations that the kernels need.

LLVM's vectoriser does not reliably vectorise loops as short as a hidden state. A vector type is explicit, and LLVM
splits it into registers of the machine's width.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic as typed_intrinsic
from numba.extending import models, register_model

# Calls of an intrinsic have other arguments than the function that defines it.
intrinsic: Any = typed_intrinsic


class Vector(types.Type):
    def __init__(self, element: types.Float, lanes: int) -> None:
        self.element, self.lanes = element, lanes
        super().__init__(name=f"Vector({element}, {lanes})")

    def to_llvm(self) -> ir.VectorType:
        return ir.VectorType(ir.FloatType() if self.element.bitwidth == 32 else ir.DoubleType(), self.lanes)


class Tile(types.Type):
    """Several vectors side by side: the rows of a small matrix, meant to stay in registers."""

    def __init__(self, row: Vector, rows: int) -> None:
        self.row, self.rows = row, rows
        super().__init__(name=f"Tile({row}, {rows})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.to_llvm())


@register_model(Tile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, manager: Any, tile: Tile) -> None:
        super().__init__(manager, tile, ir.ArrayType(tile.row.to_llvm(), tile.rows))


# Arithmetic: `+ - *` of vectors, or of a vector and a number, which is then repeated in every lane.


def _repeated(context: Any, builder: ir.IRBuilder, value: ir.Value, of: types.Type, vector: Vector) -> ir.Value:
    if isinstance(of, Vector):
        return value
    llvm = vector.to_llvm()
    value = context.cast(builder, value, of, vector.element)
    if isinstance(value, ir.Constant):
        return ir.Constant(llvm, [value.constant] * vector.lanes)
    first = builder.insert_element(ir.Constant(llvm, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return shuffled(builder, first, [0] * vector.lanes)


def constant(vector: Vector, lanes: Sequence[float]) -> ir.Constant:
    return ir.Constant(vector.to_llvm(), list(lanes))


def shuffled(builder: ir.IRBuilder, vector: ir.Value, lanes: Sequence[int]) -> ir.Value:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def _define(operation: Callable, emit: Callable) -> None:
    @infer_global(operation)
    class _(AbstractTemplate):
        def generic(self, args: tuple, kws: dict) -> Any:
            if len(args) == 2 and any(isinstance(arg, Vector) for arg in args):
                vector = next(arg for arg in args if isinstance(arg, Vector))
                if all(arg == vector or isinstance(arg, types.Float) for arg in args):
                    return signature(vector, *args)
            return None

    def lower(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        operands = [_repeated(context, builder, *pair, sig.return_type) for pair in zip(args, sig.args, strict=True)]
        return emit(builder, *operands)

    for pair in [(Vector, Vector), (Vector, types.Float), (types.Float, Vector)]:
        lower_builtin(operation, *pair)(lower)


_define(operator.add, lambda builder, a, b: builder.fadd(a, b))
_define(operator.sub, lambda builder, a, b: builder.fsub(a, b))
_define(operator.mul, lambda builder, a, b: builder.fmul(a, b))


def multiply_add_of(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    suffix = "f32" if isinstance(a.type.element, ir.FloatType) else "f64"
    kind = ir.FunctionType(a.type, [a.type] * 3)
    name = f"llvm.fmuladd.v{a.type.count}{suffix}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [a, b, c])


@intrinsic
def multiply_add(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once where the machine can."""
    vector = next(value for value in (a, b, c) if isinstance(value, Vector))

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        operands = [_repeated(context, builder, *pair, vector) for pair in zip(args, sig.args, strict=True)]
        return multiply_add_of(builder, *operands)

    return vector(a, b, c), emit


# Lanes.


@intrinsic(prefer_literal=True)
def part(typing: Any, vector: Any, index: Any, parts: Any) -> Any:
    """Part ``index`` of a vector cut into ``parts`` equal ones."""
    lanes = vector.lanes // parts.literal_value
    first = index.literal_value * lanes

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        return shuffled(builder, args[0], range(first, first + lanes))

    return Vector(vector.element, lanes)(vector, index, parts), emit


@intrinsic
def join(typing: Any, vectors: Any) -> Any:
    """Vectors of one width, one after the other."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        return concatenated(builder, [builder.extract_value(args[0], index) for index in range(vectors.count)])

    return Vector(vectors.dtype.element, vectors.dtype.lanes * vectors.count)(vectors), emit


def concatenated(builder: ir.IRBuilder, vectors: Sequence[ir.Value]) -> ir.Value:
    joined = vectors[0]
    for vector in vectors[1:]:
        have, lanes = joined.type.count, vector.type.count
        # A shuffle takes two operands of one width, hence the next vector is widened first.
        widened = shuffled(builder, vector, [*range(lanes), *[0] * (have - lanes)])
        mask = ir.Constant(ir.VectorType(ir.IntType(32), have + lanes), list(range(have + lanes)))
        joined = builder.shuffle_vector(joined, widened, mask)
    return joined
