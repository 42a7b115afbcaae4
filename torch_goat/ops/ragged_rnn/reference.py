import itertools

import torch
from torch import Tensor

from torch_goat.ops.ragged_rnn.cells import TORCH_MODULES, RNNWeights


def reference(kind: str, z: Tensor, source: Tensor, weight: Tensor | None, ptr: Tensor, weights: RNNWeights) -> Tensor:
    """The oracle: for every node and head, build the sequence and hand it to PyTorch's own RNN."""
    heads, directions, _, channels = weights.weight_ih.shape
    hidden = weights.weight_hh.size(-1)
    rnn = TORCH_MODULES[kind](channels, hidden, bidirectional=directions == 2, device="meta")
    if weight is None:
        weight = z.new_ones(source.shape)
    bounds = ptr.tolist()

    # A zero that depends on everything: runs that are all empty have gradients, of zeros, as those of the kernels have.
    zero = torch.stack([value[:0].sum() for value in (z, *weights)]).sum()
    rows = []
    for start, end in itertools.pairwise(bounds):
        for head in range(heads):
            if start == end:
                rows.append(zero.expand(directions * hidden))
                continue
            neighbors = z[source[head, start:end], head]  # [n, C]
            sequence = weight[head, start:end].to(z.dtype).unsqueeze(-1) * neighbors
            _, state = torch.func.functional_call(rnn, weights.of_torch(head), (sequence,))
            final = state[0] if kind == "lstm" else state  # [D, H]
            rows.append(final.flatten())
    if not rows:
        return z.new_zeros(0, heads, directions * hidden)
    return torch.stack(rows).view(-1, heads, directions * hidden)
