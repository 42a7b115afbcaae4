"""Vectors for numba: a type that is one LLVM vector, and the operations that the kernels need.

LLVM's vectoriser does not reliably vectorise loops as short as a hidden state. A vector type is explicit, and LLVM
splits it into registers of the machine's width.
"""

# mypy: allow-untyped-defs

import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model


class Vector(types.Type):
    def __init__(self, element: types.Float, lanes: int) -> None:
        self.element, self.lanes = element, lanes
        super().__init__(name=f"Vector({element}, {lanes})")

    def to_llvm(self) -> ir.VectorType:
        return ir.VectorType(ir.FloatType() if self.element.bitwidth == 32 else ir.DoubleType(), self.lanes)

    def constant(self, value: float | Sequence[float]) -> ir.Constant:
        """One value per lane, or the same in all."""
        return ir.Constant(self.to_llvm(), list(value) if isinstance(value, Sequence) else [value] * self.lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.to_llvm())


class Argument(NamedTuple):
    """An argument of an operation: its type, and its value in the code."""

    type: Any
    value: ir.Value


class Code:
    """Emits the LLVM code of an operation."""

    def __init__(self, context: Any, builder: ir.IRBuilder) -> None:
        self.context, self.builder = context, builder

    def array(self, array: Argument) -> Any:
        """The fields of a NumPy array: ``data``, ``shape``, ``strides``."""
        return self.context.make_array(array.type)(self.context, self.builder, array.value)

    def address(self, array: Argument, row: ir.Value, column: ir.Value) -> ir.Value:
        """The address of an element of an array with contiguous rows."""
        fields = self.array(array)
        size = ir.Constant(row.type, self.context.get_abi_sizeof(self.context.get_data_type(array.type.dtype)))
        start = self.builder.mul(row, self.builder.extract_value(fields.strides, 0))
        offset = self.builder.add(start, self.builder.mul(column, size))
        return self.builder.gep(self.builder.bitcast(fields.data, ir.IntType(8).as_pointer()), [offset], inbounds=True)

    def load(self, address: ir.Value, vector: Vector) -> ir.Value:
        pointer = self.builder.bitcast(address, vector.to_llvm().as_pointer())
        return self.builder.load(pointer, align=vector.element.bitwidth // 8)

    def store(self, value: ir.Value, address: ir.Value, vector: Vector) -> None:
        pointer = self.builder.bitcast(address, vector.to_llvm().as_pointer())
        self.builder.store(value, pointer, align=vector.element.bitwidth // 8)

    def shuffle(self, vector: ir.Value, lanes: Sequence[int]) -> ir.Value:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
        return self.builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)

    def concatenate(self, vectors: Sequence[ir.Value]) -> ir.Value:
        if len(vectors) == 1:
            return vectors[0]
        half = 1 << (len(vectors) - 1).bit_length() - 1  # in pairs, so that whole registers stay whole
        first, second = self.concatenate(vectors[:half]), self.concatenate(vectors[half:])
        have, lanes = first.type.count, second.type.count
        if lanes < have:  # a shuffle takes two operands of one width
            second = self.shuffle(second, [*range(lanes), *[0] * (have - lanes)])
        mask = ir.Constant(ir.VectorType(ir.IntType(32), have + lanes), list(range(have + lanes)))
        return self.builder.shuffle_vector(first, second, mask)

    def fill(self, vector: Vector, number: ir.Value) -> ir.Value:
        """A number in all lanes."""
        first = ir.Constant(ir.IntType(32), 0)
        return self.shuffle(self.builder.insert_element(vector.constant(0.0), number, first), [0] * vector.lanes)

    def total(self, value: ir.Value) -> ir.Value:
        """The sum over the lanes, half by half."""
        lanes = value.type.count
        while lanes > 1:
            lanes //= 2
            value = self.builder.fadd(self.shuffle(value, range(lanes)), self.shuffle(value, range(lanes, 2 * lanes)))
        return self.builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    def prefetch(self, address: ir.Value) -> None:
        """Asks for a line of memory that will be read: the processor does not look ahead to rows at random."""
        pointer, integer = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, integer, integer, integer])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(integer, flag) for flag in (0, 3, 1))
        self.builder.call(function, [address, read, keep, data])

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        name = f"llvm.fmuladd.v{a.type.count}{'f32' if isinstance(a.type.element, ir.FloatType) else 'f64'}"
        kind = ir.FunctionType(a.type, [a.type] * 3)
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [a, b, c])


def operation(result_of: Callable) -> Callable[[Callable], Any]:
    """Makes a numba intrinsic of a function that emits its code.

    The function takes a :class:`Code` and one :class:`Argument` per argument of the intrinsic; ``result_of`` gives the
    type of the result from the types of these.
    """

    def decorate(emit: Callable) -> Any:
        def typed(typing, *kinds):
            def lower(context, builder, sig, args):
                result = emit(Code(context, builder), *map(Argument, kinds, args))
                return context.get_dummy_value() if result is None else result

            given = (types.intp if isinstance(kind, types.Integer) else kind for kind in kinds)
            return result_of(*kinds)(*given), lower

        typed.__signature__ = inspect.signature(emit)  # type: ignore[attr-defined]
        typed.__name__ = typed.__qualname__ = emit.__name__
        return intrinsic(typed)

    return decorate


# `+ - *` of two vectors.
for _function, _name in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):

    @infer_global(_function)
    class _(AbstractTemplate):
        def generic(self, args: tuple, kws: dict) -> Any:
            vectors = len(args) == 2 and isinstance(args[0], Vector) and args[0] == args[1]
            return signature(args[0], *args) if vectors else None

    @lower_builtin(_function, Vector, Vector)
    def _lower(context, builder, sig, args, name=_name):
        return getattr(builder, name)(*args)


@operation(lambda a, b, c: a)
def multiply_add(code: Code, a: Argument, b: Argument, c: Argument) -> ir.Value:
    """``a * b + c``, rounded once where the machine can."""
    return code.multiply_add(a.value, b.value, c.value)


@operation(lambda vectors: Vector(vectors.dtype.element, vectors.dtype.lanes * vectors.count))
def join(code: Code, vectors: Argument) -> ir.Value:
    """Vectors of one width, one after the other."""
    return code.concatenate([code.builder.extract_value(vectors.value, at) for at in range(vectors.type.count)])


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


def _activated(code: Code, x: ir.Value, vector: Vector, is_tanh: Sequence[bool]) -> ir.Value:
    bits, number, builder = vector.element.bitwidth, vector.constant, code.builder
    precision = _SINGLE if bits == 32 else _DOUBLE
    if any(is_tanh):
        x = builder.fmul(x, number([2.0 if tanh else 1.0 for tanh in is_tanh]))
    # In this order of the operands, a comparison with NaN leaves the NaN.
    high, low = number(precision.largest), number(-precision.largest)
    x = builder.select(builder.fcmp_ordered("<", high, x), high, x)
    x = builder.select(builder.fcmp_ordered(">", low, x), low, x)

    # Adding a number whose last bit is worth 1 rounds to an integer, and leaves n + bias in the last bits.
    magic = number(1.5 * 2**precision.mantissa + precision.bias)
    shifted = code.multiply_add(x, number(1 / math.log(2)), magic)
    n = builder.fsub(shifted, magic)
    integers = ir.VectorType(ir.IntType(bits), vector.lanes)
    mantissa = ir.Constant(integers, [precision.mantissa] * vector.lanes)
    s = builder.bitcast(builder.shl(builder.bitcast(shifted, integers), mantissa), vector.to_llvm())

    r = x
    for ln2 in precision.ln2:
        r = code.multiply_add(n, number(-ln2), r)
    p = number(1 / math.factorial(precision.degree))
    for power in range(precision.degree - 1, 1, -1):
        p = code.multiply_add(p, r, number(1 / math.factorial(power)))
    p = code.multiply_add(builder.fmul(r, r), p, r)

    offset = number([-1.0 if tanh else 0.0 for tanh in is_tanh])
    numerator = code.multiply_add(s, p, builder.fadd(s, offset))
    denominator = code.multiply_add(s, p, builder.fadd(s, number(1.0)))
    # "arcp" allows an estimated reciprocal with a Newton step, which is accurate enough and far faster than a division.
    return builder.fdiv(numerator, denominator, flags=("arcp", "ninf"))


def _activation(*sorts: bool) -> Any:
    """A function of vectors with one part per entry of ``sorts``: tanh where it is true, else the logistic function."""

    @operation(lambda x: x)
    def activate(code: Code, x: Argument) -> ir.Value:
        is_tanh = [tanh for tanh in sorts for _ in range(x.type.lanes // len(sorts))]
        return _activated(code, x.value, x.type, is_tanh)

    return activate


sigmoid = _activation(False)
tanh = _activation(True)
activate_lstm = _activation(False, False, True, False)  # i f g o


@operation(lambda x: x)
def flush(code: Code, x: Argument) -> ir.Value:
    """Replaces tiny values by zero: a gradient that vanishes along a segment becomes subnormal, which is slow."""
    tiny, builder = 2.0**-100 if x.type.element.bitwidth == 32 else 2.0**-900, code.builder
    high, low, zero = (x.type.constant(value) for value in (tiny, -tiny, 0.0))
    small = builder.and_(builder.fcmp_ordered("<", x.value, high), builder.fcmp_ordered(">", x.value, low))
    return builder.select(small, zero, x.value)
