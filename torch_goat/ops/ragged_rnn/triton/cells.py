"""The three recurrent cells in Triton: a step and its derivatives.

Every value of a step is a ``[SEGMENTS, WIDTH]`` tensor, where ``WIDTH`` is the hidden width padded to a power of two;
padded columns are always zero. The parts of a cell are its preactivations: ``i f g o`` of an LSTM, one of a tanh RNN,
and ``r z n`` of a GRU with a fourth, the recurrent share of ``n``, which the reset gate multiplies. ``KIND`` selects
the cell at compile time.
"""

# Triton compiles a branch that returns only if the other one does, too, and does not unpack tuples.
# ruff: noqa: RET505, RUF005, SIM108
# mypy: allow-untyped-defs, disable-error-code=assignment

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp2(x * -1.4426950408889634))


@triton.jit
def tanh(x):
    """Accurate relative to the result: a polynomial near zero in float32, where the exponential formula cancels."""
    far = 1.0 - 2.0 / (1.0 + tl.exp2(x * 2.8853900817779268))
    if x.dtype == tl.float64:
        return far
    else:
        # tanh(x) / x in x * x, fitted on |x| < 0.4 to 2e-9.
        u = x * x
        near = -0.053560004284886054 + u * 0.01873837092066777
        near = -0.3333329803911409 + u * (0.1333119354379682 + u * near)
        return tl.where(tl.abs(x) < 0.4, x + x * (u * near), far)


@triton.jit
def load_matrices(weight_hh, down, across, GATES: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    """Each gate's recurrent matrix by the given strides, ``[WIDTH, 1, WIDTH]``, as the second factor of a product."""
    row = tl.arange(0, WIDTH)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    matrices = ()
    for gate in tl.static_range(GATES):
        matrix = weight_hh + gate * HIDDEN * HIDDEN + row * down + column * across
        matrices = matrices + (tl.load(matrix, mask=(row < HIDDEN) & (column < HIDDEN), other=0.0)[:, None, :],)
    return matrices


@triton.jit
def multiply(x, matrix):
    """``x`` ``[SEGMENTS, WIDTH]`` times a matrix of :func:`load_matrices`.

    The contracted axis comes first: Triton distributes lanes from the last axis on, so this one stays inside a thread,
    and the sum over it needs no exchange.
    """
    return tl.sum(tl.trans(x)[:, :, None] * matrix, axis=0)


@triton.jit
def multiply_each(x, matrices):
    """The product with each gate's matrix."""
    products = ()
    for gate in tl.static_range(len(matrices)):
        products = products + (multiply(x, matrices[gate]),)
    return products


@triton.jit
def load_bias(bias_ih, bias_hh, column, GATES: tl.constexpr, HIDDEN: tl.constexpr):
    """The bias of each part in some columns ``[1, WIDTH]``."""
    parts = ()
    for gate in tl.static_range(GATES):
        of_input = tl.load(bias_ih + gate * HIDDEN + column, column < HIDDEN, 0.0)
        recurrent = tl.load(bias_hh + gate * HIDDEN + column, column < HIDDEN, 0.0)
        if GATES == 3 and gate == 2:
            parts = parts + (of_input, recurrent)
        else:
            parts = parts + (of_input + recurrent,)
    return parts


@triton.jit
def combine(row, scale, bias, shares, GATES: tl.constexpr):
    """The parts of a step before their activations, from those of the input and the recurrent ``shares`` of the gates.

    ``scale`` is ``[SEGMENTS, 1]``.
    """
    parts = ()
    for gate in tl.static_range(GATES):
        of_input = scale * row[gate].to(scale.dtype) + bias[gate]
        if GATES == 3 and gate == 2:
            parts = parts + (of_input, shares[gate] + bias[3])
        else:
            parts = parts + (of_input + shares[gate],)
    return parts


@triton.jit
def advance(parts, h, c, KIND: tl.constexpr):
    """The states after a step; ``c`` is unchanged in cells without it."""
    if KIND == "lstm":
        c = sigmoid(parts[1]) * c + sigmoid(parts[0]) * tanh(parts[2])
        return sigmoid(parts[3]) * tanh(c), c
    elif KIND == "gru":
        r = sigmoid(parts[0])
        z = sigmoid(parts[1])
        n = tanh(parts[2] + r * parts[3])
        return n + z * (h - n), c
    else:
        return tanh(parts[0]), c


@triton.jit
def local_derivatives(parts, h, c, KIND: tl.constexpr):
    """The factors of the chain rule in a step from ``h`` and ``c`` that do not depend on the gradient flowing back."""
    if KIND == "lstm":
        i = sigmoid(parts[0])
        f = sigmoid(parts[1])
        g = tanh(parts[2])
        o = sigmoid(parts[3])
        tanh_c = tanh(f * c + i * g)
        to_c = o * (1.0 - tanh_c * tanh_c)
        return g * i * (1.0 - i), c * f * (1.0 - f), i * (1.0 - g * g), tanh_c * o * (1.0 - o), to_c, f
    elif KIND == "gru":
        r = sigmoid(parts[0])
        z = sigmoid(parts[1])
        n = tanh(parts[2] + r * parts[3])
        to_n = (1.0 - z) * (1.0 - n * n)
        return to_n * parts[3] * r * (1.0 - r), (h - n) * z * (1.0 - z), to_n, to_n * r, z
    else:
        new = tanh(parts[0])
        return (1.0 - new * new,)


@triton.jit
def step_back(grad_h, grad_c, factors, KIND: tl.constexpr):
    """The gradients of a step's parts, and of ``h`` and ``c`` before it without those through the recurrent matrix."""
    if KIND == "lstm":
        grad_c += grad_h * factors[4]
        parts = (grad_c * factors[0], grad_c * factors[1], grad_c * factors[2], grad_h * factors[3])
        return parts, tl.zeros_like(grad_h), grad_c * factors[5]
    elif KIND == "gru":
        parts = (grad_h * factors[0], grad_h * factors[1], grad_h * factors[2], grad_h * factors[3])
        return parts, grad_h * factors[4], grad_c
    else:
        return (grad_h * factors[0],), tl.zeros_like(grad_h), grad_c


@triton.jit
def recurrent_parts(parts, KIND: tl.constexpr):
    """The parts that depend on the recurrent matrix, in the order of its gates."""
    if KIND == "gru":
        return (parts[0], parts[1], parts[3])
    else:
        return parts


@triton.jit
def multiply_all(x, matrices):
    """The sum of :func:`multiply` over the gates."""
    total = multiply(x[0], matrices[0])
    for gate in tl.static_range(1, len(matrices)):
        total += multiply(x[gate], matrices[gate])
    return total
