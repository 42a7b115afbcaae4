import itertools

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.interface import GATES, SCANS, TORCH_MODULES, RNNWeights


def reference(kind: str, z: Tensor, places: Places, weight: Tensor | None, weights: RNNWeights) -> Tensor:
    """Eq. 3 as written: builds the sequence of every node and head and runs PyTorch's own RNN, or a scan, on it."""
    heads, directions, width, channels = weights.weight_ih.shape
    hidden = width // GATES[kind]
    rnn = None
    if kind not in SCANS:
        rnn = TORCH_MODULES[kind](channels, hidden, bidirectional=directions == 2, device="meta")
    source = places.source
    weight = z.new_ones(source.shape) if weight is None else weight
    # A zero that depends on everything, so that empty segments alone have gradients (of zeros), too.
    zero = torch.stack([value[:0].sum() for value in (z, *weights) if value is not None]).sum()
    rows = []
    for start, end in itertools.pairwise(places.ptr.tolist()):
        for head in range(heads):
            if start == end:
                rows.append(zero.expand(directions * hidden))
                continue
            neighbors = z[source[head, start:end], head]  # [n, C]
            sequence = weight[head, start:end].to(z.dtype).unsqueeze(-1) * neighbors
            if rnn is None:
                both = zip(weights.weight_ih[head], weights.bias_ih[head], (sequence, sequence.flip(0)), strict=False)
                rows.append(torch.cat([_scan(kind, F.linear(inputs, *of)) for *of, inputs in both]))
                continue
            _, state = torch.func.functional_call(rnn, weights.of_torch(head), (sequence,))
            rows.append((state[0] if kind == "lstm" else state).flatten())  # [D * H]
    if not rows:
        return z.new_zeros(0, heads, directions * hidden)
    return torch.stack(rows).view(-1, heads, directions * hidden)


def _scan(kind: str, gates: Tensor) -> Tensor:
    """The final state of a minGRU or minLSTM that reads the gates ``[n, G * H]``."""
    *given, new = gates.to(torch.promote_types(gates.dtype, torch.float32)).chunk(GATES[kind], dim=-1)
    z = torch.sigmoid(given[0] if kind == "mingru" else F.softplus(-given[1]) - F.softplus(-given[0]))
    h = torch.zeros_like(new[0])
    for z_t, new_t in zip(z, new, strict=True):
        h = (1 - z_t) * h + z_t * new_t
    return h.to(gates.dtype)
