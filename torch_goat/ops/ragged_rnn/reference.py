import itertools

import torch
from torch import Tensor

from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.interface import TORCH_MODULES, RNNWeights


def reference(kind: str, z: Tensor, places: Places, weight: Tensor | None, weights: RNNWeights) -> Tensor:
    """Eq. 3 as written: builds the sequence of every node and head and runs PyTorch's own RNN on it."""
    heads, directions, _, channels = weights.weight_ih.shape
    hidden = weights.weight_hh.size(-1)
    rnn = TORCH_MODULES[kind](channels, hidden, bidirectional=directions == 2, device="meta")
    source = places.source
    weight = z.new_ones(source.shape) if weight is None else weight
    # A zero that depends on everything, so that empty segments alone have gradients (of zeros), too.
    zero = torch.stack([value[:0].sum() for value in (z, *weights)]).sum()
    rows = []
    for start, end in itertools.pairwise(places.ptr.tolist()):
        for head in range(heads):
            if start == end:
                rows.append(zero.expand(directions * hidden))
                continue
            neighbors = z[source[head, start:end], head]  # [n, C]
            sequence = weight[head, start:end].to(z.dtype).unsqueeze(-1) * neighbors
            _, state = torch.func.functional_call(rnn, weights.of_torch(head), (sequence,))
            rows.append((state[0] if kind == "lstm" else state).flatten())  # [D * H]
    if not rows:
        return z.new_zeros(0, heads, directions * hidden)
    return torch.stack(rows).view(-1, heads, directions * hidden)
