r"""The logistic function and tanh of vectors, in one expression that is accurate relative to the result.

With :math:`e^x = s (1 + p)`, where :math:`s = 2^n` and :math:`p` is the Taylor polynomial of :math:`e^r - 1` at the
remainder :math:`|r| \le \ln(2) / 2`,

.. math:: \sigma(x) = \frac{s p + s}{s p + s + 1}, \qquad \tanh(x / 2) = \frac{s p + (s - 1)}{s p + s + 1},

and neither numerator cancels: for small :math:`x`, :math:`s = 1` and the second is :math:`p \approx x`. They differ in
one constant, so that gates of both sorts can share a vector.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from torch_goat.ops.ragged_rnn.cpu.simd import Vector, constant, intrinsic, multiply_add_of


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
