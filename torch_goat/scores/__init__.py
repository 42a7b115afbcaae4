"""Attention scores over the closed neighbourhood (Eq. 1) and their softmax (the coefficients of Eq. 3)."""

from torch_goat.scores.attention import ATTENTIONS, EdgeAttention, GATAttention, GATv2Attention, build_attention
from torch_goat.scores.coefficients import coefficients
from torch_goat.scores.runs import reduce_runs, run_offsets, run_sizes, sum_runs
from torch_goat.scores.take import take

__all__ = [
    "ATTENTIONS",
    "EdgeAttention",
    "GATAttention",
    "GATv2Attention",
    "build_attention",
    "coefficients",
    "reduce_runs",
    "run_offsets",
    "run_sizes",
    "sum_runs",
    "take",
]
