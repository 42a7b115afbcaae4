"""Vectors for numba: a type that is one LLVM vector, and the operations that the kernels need.

LLVM's vectoriser does not reliably vectorise loops as short as a hidden state. A vector type is explicit, and LLVM
splits it into registers of the machine's width.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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


# The logistic function and tanh, in one expression that is accurate relative to the result. With e^x = s (1 + p), where
# s = 2^n and p is the Taylor polynomial of e^r - 1 at the remainder |r| <= ln(2) / 2,
#     sigmoid(x) = (s p + s) / (s p + s + 1),    tanh(x / 2) = (s p + (s - 1)) / (s p + s + 1),
# and neither numerator cancels: for small x, s = 1 and the second is p ~ x. They differ in one constant, so that gates
# of both sorts can share a vector.


class _Precision(NamedTuple):
    largest: float  # exp of it is finite, and 2^n normal for both signs
    mantissa: int  # bits
    bias: int  # of the exponent
    ln2: tuple[float, float]  # ln(2) in two parts, the first so short that its product with n is exact
    degree: int  # of the polynomial


_SINGLE = _Precision(87.0, 23, 127, (0.693359375, math.log(2) - 0.693359375), 7)
_DOUBLE = _Precision(708.0, 52, 1023, (0.693147180369123816490, 1.90821492927058770002e-10), 13)


def _activated(builder: ir.IRBuilder, x: ir.Value, vector: Vector, is_tanh: Sequence[bool]) -> ir.Value:
    bits = vector.element.bitwidth
    precision = _SINGLE if bits == 32 else _DOUBLE

    def number(value: float) -> ir.Constant:
        return constant(vector, [value] * vector.lanes)

    if any(is_tanh):
        x = builder.fmul(x, constant(vector, [2.0 if tanh else 1.0 for tanh in is_tanh]))
    # In this order of the operands, a comparison with NaN leaves the NaN.
    high, low = number(precision.largest), number(-precision.largest)
    x = builder.select(builder.fcmp_ordered("<", high, x), high, x)
    x = builder.select(builder.fcmp_ordered(">", low, x), low, x)

    # Adding a number whose last bit is worth 1 rounds to an integer, and leaves n + bias in the last bits.
    magic = number(1.5 * 2**precision.mantissa + precision.bias)
    shifted = multiply_add_of(builder, x, number(1 / math.log(2)), magic)
    n = builder.fsub(shifted, magic)
    integers = ir.VectorType(ir.IntType(bits), vector.lanes)
    exponent = builder.shl(
        builder.bitcast(shifted, integers), ir.Constant(integers, [precision.mantissa] * vector.lanes)
    )
    s = builder.bitcast(exponent, vector.to_llvm())

    r = x
    for ln2 in precision.ln2:
        r = multiply_add_of(builder, n, number(-ln2), r)
    p = number(1 / math.factorial(precision.degree))
    for power in range(precision.degree - 1, 1, -1):
        p = multiply_add_of(builder, p, r, number(1 / math.factorial(power)))
    p = multiply_add_of(builder, builder.fmul(r, r), p, r)

    offset = constant(vector, [-1.0 if tanh else 0.0 for tanh in is_tanh])
    numerator = multiply_add_of(builder, s, p, builder.fadd(s, offset))
    denominator = multiply_add_of(builder, s, p, builder.fadd(s, number(1.0)))
    # "arcp" allows an estimated reciprocal with a Newton step, which is accurate enough and far faster than a division.
    return builder.fdiv(numerator, denominator, flags=("arcp", "ninf"))


def _activation(name: str, sorts: Sequence[bool]) -> Any:
    """A function of vectors with one part per entry of ``sorts``: tanh where it is true, else the logistic function."""

    def typed(typing: Any, x: Any) -> Any:
        is_tanh = [tanh for tanh in sorts for _ in range(x.lanes // len(sorts))]

        def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
            return _activated(builder, args[0], x, is_tanh)

        return x(x), emit

    typed.__name__ = typed.__qualname__ = name
    return intrinsic(typed)


sigmoid = _activation("sigmoid", [False])
tanh = _activation("tanh", [True])
activate_lstm = _activation("activate_lstm", [False, False, True, False])  # i f g o
