import torch
from torch import Tensor


def kendall_tau(first: Tensor, second: Tensor, ptr: Tensor) -> Tensor:
    """Kendall's rank correlation of two orders of the same tokens, per target and head.

    Args:
        first: Tokens in order ``[K, E]``.
        second: The same tokens in another order ``[K, E]``.
        ptr: The segments of the targets ``[T + 1]``.

    Returns:
        ``[T, K]`` in -1 .. 1: 1 where both agree, -1 where one is the reverse of the other, NaN for fewer than two
        tokens.
    """
    heads, num_tokens = first.shape
    length = ptr.diff()  # [T]
    # The place of each token of `first` in `second`: two orders agree where it increases.
    place = torch.arange(num_tokens, device=ptr.device).expand(heads, -1)
    last = int(torch.stack([first.max(), second.max()]).max()) if num_tokens else -1  # more where some were left out
    value = first.new_empty(heads, last + 1).scatter_(1, second, place).gather(1, first)
    target = torch.repeat_interleave(length, output_size=num_tokens)
    value = value - ptr[target]  # [K, E], 0 .. length - 1 within a segment
    segment = target + torch.arange(heads, device=ptr.device).view(-1, 1) * length.numel()  # [K, E]
    longest = int(length.max()) if length.numel() > 0 else 0
    discordant = _inversions(value.flatten(), segment.flatten(), heads * length.numel(), longest.bit_length())
    pairs = ((length * (length - 1)).double() / 2).view(-1, 1)  # [T, 1]
    return 1 - 2 * discordant.view(heads, -1).t() / torch.where(pairs > 0, pairs, torch.nan)


def _inversions(value: Tensor, segment: Tensor, num_segments: int, bits: int) -> Tensor:
    """Pairs of falling values within each segment ``[num_segments]``, found bit by bit from the highest.

    Values that agree in the bits above are a group. In it, every one before a zero is an inversion that the present
    bit decides; then the group is split in two and the next bit decides the rest.
    """
    count = torch.zeros(num_segments, dtype=torch.long, device=value.device)
    for bit in reversed(range(bits)):
        ones = value >> bit & 1
        before = ones.cumsum(0) - ones  # ones before each place, from the beginning of everything
        group = (segment << bits) + (value >> (bit + 1))
        new = torch.ones_like(group, dtype=torch.bool)
        new[1:] = group[1:] != group[:-1]
        at_start = before[new][new.cumsum(0) - 1]
        count.scatter_add_(0, segment, (1 - ones) * (before - at_start))
        order = torch.argsort((group << 1) + ones, stable=True)
        value, segment = value[order], segment[order]
    return count
