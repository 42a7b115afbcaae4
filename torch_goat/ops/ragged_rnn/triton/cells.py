"""The three recurrent cells in Triton: what a step computes, and its derivatives.

Every value of a step is its own ``[RUNS, WIDTH]`` tensor, ``WIDTH`` being the hidden width padded to a power of two;
padded columns hold zeros throughout. The parts of a cell are what it adds up before its activations: ``i f g o`` of an
LSTM, one of a tanh RNN, and ``r z n`` of a GRU with a fourth, the recurrent share of ``n``, which the reset gate
multiplies. The cells are told apart at compile time by ``KIND``.
"""

# Triton compiles a branch that returns only if the other one does, too.
# ruff: noqa: RET505
# mypy: allow-untyped-defs

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp2(x * -1.4426950408889634))


@triton.jit
def tanh(x):
    """As exact relatively as absolutely: near zero, where the exponential formula cancels, a polynomial in float32."""
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
def load_matrix(weight_hh, gate, down, across, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, DOT: tl.constexpr):
    """One gate's recurrent matrix by the given strides, as :func:`multiply` wants its second factor.

    A small one stays in registers for the whole kernel, as ``[WIDTH, 1, WIDTH]``. A large one is read in every step,
    from the caches, through the pointers ``[WIDTH, WIDTH]`` given here.
    """
    row = tl.arange(0, WIDTH)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    pointer = weight_hh + gate * HIDDEN * HIDDEN + row * down + column * across
    if DOT:
        return pointer
    else:
        values = tl.load(pointer, mask=(row < HIDDEN) & (column < HIDDEN), other=0.0)
        return values[:, None, :]


@triton.jit
def load_matrices(
    weight_hh, down, across, KIND: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, DOT: tl.constexpr
):
    first = load_matrix(weight_hh, 0, down, across, HIDDEN, WIDTH, DOT)
    if KIND == "rnn":
        return (first,)
    else:
        second = load_matrix(weight_hh, 1, down, across, HIDDEN, WIDTH, DOT)
        third = load_matrix(weight_hh, 2, down, across, HIDDEN, WIDTH, DOT)
        if KIND == "gru":
            return (first, second, third)
        else:
            return (first, second, third, load_matrix(weight_hh, 3, down, across, HIDDEN, WIDTH, DOT))


@triton.jit
def multiply(x, matrix, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr):
    """``x`` ``[RUNS, WIDTH]`` times a matrix of :func:`load_matrix`.

    The contracted axis of the small product comes first: Triton hands out lanes from the last axis on, so this one
    stays inside a thread, and the sum over it needs no exchange.
    """
    if DOT:
        row = tl.arange(0, WIDTH)[:, None]
        column = tl.arange(0, WIDTH)[None, :]
        values = tl.load(matrix, mask=(row < HIDDEN) & (column < HIDDEN), other=0.0)
        return tl.dot(x, values, input_precision=PRECISION)
    else:
        return tl.sum(tl.trans(x)[:, :, None] * matrix, axis=0)


@triton.jit
def load_bias(bias_ih, bias_hh, KIND: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    """The bias of each part, ``[1, WIDTH]``."""
    column = tl.arange(0, WIDTH)[None, :]
    inside = column < HIDDEN
    first = tl.load(bias_ih + column, inside, 0.0) + tl.load(bias_hh + column, inside, 0.0)
    if KIND == "rnn":
        return (first,)
    else:
        column += HIDDEN
        second = tl.load(bias_ih + column, inside, 0.0) + tl.load(bias_hh + column, inside, 0.0)
        column += HIDDEN
        third = tl.load(bias_ih + column, inside, 0.0)
        third_hh = tl.load(bias_hh + column, inside, 0.0)
        if KIND == "gru":
            return (first, second, third, third_hh)
        else:
            column += HIDDEN
            fourth = tl.load(bias_ih + column, inside, 0.0) + tl.load(bias_hh + column, inside, 0.0)
            return (first, second, third + third_hh, fourth)


@triton.jit
def load_gates(row, column, mask, KIND: tl.constexpr, HIDDEN: tl.constexpr):
    """The gates of the rows that begin at ``row`` ``[RUNS, 1]``."""
    first = tl.load(row + column, mask, 0.0)
    if KIND == "rnn":
        return (first,)
    else:
        second = tl.load(row + column + HIDDEN, mask, 0.0)
        third = tl.load(row + column + 2 * HIDDEN, mask, 0.0)
        if KIND == "gru":
            return (first, second, third)
        else:
            return (first, second, third, tl.load(row + column + 3 * HIDDEN, mask, 0.0))


@triton.jit
def store_parts(row, column, mask, parts, KIND: tl.constexpr, HIDDEN: tl.constexpr, PARTS: tl.constexpr):
    """Stores the first ``PARTS`` parts behind each other."""
    tl.store(row + column, parts[0], mask)
    if KIND != "rnn":
        tl.store(row + column + HIDDEN, parts[1], mask)
        tl.store(row + column + 2 * HIDDEN, parts[2], mask)
        if PARTS == 4:
            tl.store(row + column + 3 * HIDDEN, parts[3], mask)


@triton.jit
def add_up(
    row,
    scale,
    bias,
    h,
    matrices,
    KIND: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    DOT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The parts of a step before their activations; ``scale`` is ``[RUNS, 1]``."""
    first = scale * row[0].to(h.dtype) + bias[0] + multiply(h, matrices[0], HIDDEN, WIDTH, DOT, PRECISION)
    if KIND == "rnn":
        return (first,)
    else:
        second = scale * row[1].to(h.dtype) + bias[1] + multiply(h, matrices[1], HIDDEN, WIDTH, DOT, PRECISION)
        third = scale * row[2].to(h.dtype) + bias[2]
        share = multiply(h, matrices[2], HIDDEN, WIDTH, DOT, PRECISION)
        if KIND == "gru":
            return (first, second, third, share + bias[3])
        else:
            fourth = scale * row[3].to(h.dtype) + bias[3] + multiply(h, matrices[3], HIDDEN, WIDTH, DOT, PRECISION)
            return (first, second, third + share, fourth)


@triton.jit
def advance(parts, h, c, KIND: tl.constexpr):
    """The states after a step; ``c`` passes through the cells that have none."""
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
    """The factors of the chain rule in a step that began in ``h`` and ``c``, which do not depend on what flows back.

    They are all there is to compute ahead of :func:`step_back`, which then is a few products.
    """
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
    """The gradients of a step's parts, and those of ``h`` and ``c`` before it that do not pass the recurrent matrix."""
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
    """Of the parts, those that the recurrent matrix made, in the order of its gates."""
    if KIND == "gru":
        return (parts[0], parts[1], parts[3])
    else:
        return parts


@triton.jit
def multiply_all(
    x,
    matrices,
    KIND: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    DOT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The sum of :func:`multiply` over the gates."""
    total = multiply(x[0], matrices[0], HIDDEN, WIDTH, DOT, PRECISION)
    if KIND != "rnn":
        second = multiply(x[1], matrices[1], HIDDEN, WIDTH, DOT, PRECISION)
        total = (total + second) + multiply(x[2], matrices[2], HIDDEN, WIDTH, DOT, PRECISION)
        if KIND == "lstm":
            total += multiply(x[3], matrices[3], HIDDEN, WIDTH, DOT, PRECISION)
    return total
