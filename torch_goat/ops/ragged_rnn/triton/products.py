"""Products with the recurrent matrices of wide cells in Triton, on tensor cores, and the gradients of the matrices.

A product in float32 takes three of TF32 unless PyTorch's settings allow one: both factors are split into a number that
tensor cores read without loss and a rest.
"""

# Triton compiles a branch that returns only if the other one does, too, and does not unpack tuples.
# ruff: noqa: RET505, RUF005
# mypy: allow-untyped-defs, disable-error-code=assignment

import torch
import triton
import triton.language as tl
from torch import Tensor

from torch_goat.ops.launches import cdiv, next_power_of_2, on_device


@triton.jit
def round_to_tf32(x):
    """The nearest number that the tensor cores read without loss."""
    return ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def load_chunks(matrix, CHUNKS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A matrix ``[CHUNKS * ROWS, COLUMNS]`` in chunks of rows."""
    at = matrix + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    chunks = ()
    for chunk in tl.static_range(CHUNKS):
        chunks = chunks + (tl.load(at + chunk * ROWS * COLUMNS),)
    return chunks


@triton.jit
def multiply_add(x, high, low, total, PRECISION: tl.constexpr):
    """``total + x @ matrix``; in ``tf32x3`` the matrix is ``high + low``, and what is left out is below 2^-22."""
    if PRECISION == "tf32x3":
        rounded = round_to_tf32(x)
        total = tl.dot(x - rounded, high, total, input_precision="tf32")
        total = tl.dot(rounded, low, total, input_precision="tf32")
        return tl.dot(rounded, high, total, input_precision="tf32")
    else:
        return tl.dot(x, high, total, input_precision=PRECISION, out_dtype=total.dtype)


@triton.jit
def take_apart(x, PARTS: tl.constexpr, SEGMENTS: tl.constexpr, UNITS: tl.constexpr):
    """``[SEGMENTS, UNITS * PARTS]`` by part, ``[SEGMENTS, UNITS]`` each."""
    if PARTS == 4:
        even, odd = tl.split(tl.reshape(x, [SEGMENTS, UNITS, 2, 2]))
        first, third = tl.split(even)
        second, fourth = tl.split(odd)
        return first, second, third, fourth
    else:
        return (x,)


@triton.jit
def put_together(parts, PARTS: tl.constexpr, SEGMENTS: tl.constexpr, UNITS: tl.constexpr):
    """The inverse of :func:`take_apart`; a fourth part that is missing is zero."""
    if PARTS == 4:
        fourth = tl.zeros_like(parts[0])
        if len(parts) == 4:
            fourth = parts[3]
        joined = tl.join(tl.join(parts[0], parts[2]), tl.join(parts[1], fourth))
        return tl.reshape(joined, [SEGMENTS, UNITS * 4])
    else:
        return parts[0]


@triton.jit(do_not_specialize=["num_weights"])
def matrix_kernel(
    weight_hh,
    high,
    low,
    num_weights,
    GATES: tl.constexpr,
    HIDDEN: tl.constexpr,
    UNITS: tl.constexpr,
    SLICES: tl.constexpr,
    PARTS: tl.constexpr,
    WIDTH: tl.constexpr,
    BACK: tl.constexpr,
    BY_GATE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The recurrent matrices ``[K * D, G * H, H]`` as programs read them, padded with zeros.

    ``high`` and ``low`` are ``[K * D, SLICES, WIDTH, UNITS * PARTS]``. For the backward, the last two are exchanged or,
    if ``BY_GATE``, they are ``[GATES * UNITS, WIDTH]``.
    """
    COLUMNS: tl.constexpr = UNITS * (GATES if BY_GATE else PARTS)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    within = at % (COLUMNS * WIDTH)
    if BACK:
        column = within // WIDTH
        unit = within % WIDTH
    else:
        unit = within // COLUMNS
        column = within % COLUMNS
    slice = at // (COLUMNS * WIDTH)
    if BY_GATE:
        own = (slice % SLICES) * UNITS + column % UNITS
        gate = column // UNITS
    else:
        own = (slice % SLICES) * UNITS + column // PARTS
        gate = column % PARTS
    inside = (gate < GATES) & (own < HIDDEN) & (unit < HIDDEN) & (at < num_weights)
    row = (slice // SLICES) * (GATES * HIDDEN) + gate * HIDDEN + own
    value = tl.load(weight_hh + row * HIDDEN + unit, inside, 0.0)
    if PRECISION == "tf32x3":
        rounded = round_to_tf32(value)
        tl.store(high + at, rounded, at < num_weights)
        tl.store(low + at, value - rounded, at < num_weights)
    else:
        tl.store(high + at, value, at < num_weights)


@triton.jit(do_not_specialize=["num_rows", "piece_size"])
def outer_kernel(
    left,
    right,
    sums,
    num_rows,
    piece_size,
    left_batch,
    left_row,
    right_batch,
    right_row,
    SPLIT: tl.constexpr,
    GAP: tl.constexpr,
    WIDTH: tl.constexpr,
    HEIGHT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PLACES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A block of ``left^T right`` of one batch, summed over one piece of the rows of both.

    ``sums`` is ``[pieces, batches, HEIGHT, WIDTH]``. From column ``SPLIT`` of ``left`` on, ``GAP`` columns are left
    out.
    """
    ACROSS: tl.constexpr = (WIDTH + COLUMNS - 1) // COLUMNS
    piece = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    down = (tl.program_id(2) // ACROSS) * ROWS + tl.arange(0, ROWS)[None, :]
    column = (tl.program_id(2) % ACROSS) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    left += batch * left_batch + tl.where(down < SPLIT, down, down + GAP)
    right += batch * right_batch + column

    product = tl.zeros([ROWS, COLUMNS], sums.dtype.element_ty)
    end = tl.minimum((piece + 1) * piece_size, num_rows)
    for start in range(piece * piece_size, end, PLACES):
        row = (start + tl.arange(0, PLACES))[:, None].to(tl.int64)
        present = row < end
        x = tl.load(left + row * left_row, present & (down < HEIGHT), 0.0)
        y = tl.load(right + row * right_row, present & (column < WIDTH), 0.0)
        product = tl.dot(tl.trans(x), y, product, input_precision=PRECISION, out_dtype=product.dtype)

    down = tl.trans(down)
    at = (piece * tl.num_programs(1) + batch) * HEIGHT + down
    tl.store(sums + at * WIDTH + column, product, (down < HEIGHT) & (column < WIDTH))


def precision(dtype: torch.dtype) -> str:
    """How a product of this type is computed: three products of TF32 are as exact as one in float32."""
    if dtype == torch.float64:
        return "ieee"
    matmul = torch.backends.cuda.matmul
    # From PyTorch 2.9 on, reading the old flag fails if the new one was set.
    tf32 = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    return "tf32" if tf32 else "tf32x3"


def sum_of_outer_products(left: Tensor, right: Tensor, split: int | None = None) -> Tensor:
    """``left^T right`` of tall matrices ``[B, N, height]`` and ``[B, N, width]``, in a fixed order.

    cuBLAS is slow for batches of small results, since it does not divide the sum over N. With ``split``, only the
    columns of ``left`` before it and the last ``width`` ones are used.
    """
    batches, num_rows, width = right.shape
    height = left.size(-1) if split is None else split + width
    rows, columns = (min(128, max(16, next_power_of_2(size))) for size in (height, width))
    if left.dtype == torch.float64:
        rows, columns = min(rows, 64), min(columns, 64)
    blocks = cdiv(height, rows) * cdiv(width, columns)
    # Enough pieces to fill the device, each with at least 256 rows.
    pieces = max(1, min(cdiv(512, batches * blocks), num_rows // 256))
    sums = left.new_empty(pieces, batches, height, width)
    with on_device(left):
        outer_kernel[(pieces, batches, blocks)](
            *(left, right, sums, num_rows, cdiv(num_rows, pieces)),
            *(*left.stride()[:2], *right.stride()[:2]),
            SPLIT=height if split is None else split,
            GAP=left.size(-1) - height,
            WIDTH=width,
            HEIGHT=height,
            ROWS=rows,
            COLUMNS=columns,
            PLACES=32,
            PRECISION=precision(left.dtype),
            num_warps=8 if rows * columns > 2048 else 4,
        )
    return sums.sum(dim=0) if pieces > 1 else sums[0]
