"""Checks and times the Triton kernel of the ragged RNN on the current GPU: ``python benchmarks/kernel_triton.py``.

Structures of the size of Cora, Amazon Computers and ogbn-arxiv; LSTM, 8 heads of 2 x 8 channels.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from torch_goat.sequence.kernels import KERNELS
from torch_goat.sequence.kernels.fused_triton import launch

HEADS, DIRECTIONS = 8, 2
STRUCTURES = {"cora": (2708, 13_264, 169), "computers": (13_752, 505_474, 2993), "arxiv": (169_343, 2_484_941, 13_162)}


def build(name: str, kind: str, hidden: int) -> list[Tensor]:
    """Random inputs of the kernel. Lengths follow a power law with the given sum and largest; so do the sources."""
    targets, places, largest = STRUCTURES[name]
    random = torch.Generator("cuda").manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.rand(shape, generator=random, device="cuda", dtype=torch.float32)

    rank = torch.arange(1, targets + 1, device="cuda").double()
    low, high = 0.0, 3.0
    for _ in range(60):  # the exponent that gives the wanted sum
        exponent = (low + high) / 2
        total = (largest * rank**-exponent).clamp_min(1).round().sum().item()
        low, high = (exponent, high) if total > places else (low, exponent)
    lengths = (largest * rank**-exponent).clamp_min(1).round().long()
    shuffle = torch.randperm(targets, generator=random, device="cuda")
    ptr = torch.cat([lengths.new_zeros(1), lengths[shuffle].cumsum(0)])
    # A node is a source as often as it is a target, as in an undirected graph.
    node = torch.repeat_interleave(torch.arange(targets, device="cuda"), lengths[shuffle])
    source = torch.stack([node[torch.randperm(node.numel(), generator=random, device="cuda")] for _ in range(HEADS)])

    gates = {"lstm": 4, "gru": 3, "rnn": 1}[kind]
    bound = 2 / hidden**0.5
    projected = draw(HEADS, targets, DIRECTIONS, gates * hidden) - 0.5
    recurrent = [(draw(HEADS, DIRECTIONS, gates * hidden, *more) - 0.5) * bound for more in ((hidden,), (), ())]
    weight, grad = draw(HEADS, node.numel()), draw(targets, HEADS, DIRECTIONS * hidden) - 0.5
    return [grad, projected, source, weight, ptr, *recurrent]


def both(kernel: str, kind: str, inputs: list[Tensor]) -> list[Tensor]:
    grad, *given = inputs
    out, saved = KERNELS[kernel].forward(kind, *given, True)
    return [out, *KERNELS[kernel].backward(kind, grad, *given, saved)]


def check(kind: str, hidden: int) -> None:
    """Prints the error of each result against the plain PyTorch kernel in float64."""
    inputs = build("cora", kind, hidden)
    values, again = both("triton", kind, inputs), both("triton", kind, inputs)
    exact = both("torch", kind, [value.double() if value.is_floating_point() else value for value in inputs])
    errors = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(values, exact, strict=True)]
    equal = all(torch.equal(a, b) for a, b in zip(values, again, strict=True))
    print(f"{kind:4} H={hidden:3}  bit-equal {equal!s:5}  errors", *(f"{error:.0e}" for error in errors), flush=True)


def milliseconds(function: Callable[[], object], repeats: int) -> float:
    for _ in range(3):
        function()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        function()
        event.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in itertools.pairwise(events))[repeats // 2]


def measure(name: str, kind: str, inputs: list[Tensor], options: dict[str, object], repeats: int) -> None:
    launch.OVERRIDES.clear()
    launch.OVERRIDES.update(options)
    grad, *given = inputs
    kernel = KERNELS["triton"]
    try:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
        _, saved = kernel.forward(kind, *given, True)
        kernel.backward(kind, grad, *given, saved)
        peak = torch.cuda.max_memory_allocated() - base
        only = milliseconds(lambda: kernel.forward(kind, *given, False), repeats)
        forward = milliseconds(lambda: kernel.forward(kind, *given, True), repeats)
        backward = milliseconds(lambda: kernel.backward(kind, grad, *given, saved), repeats)
        by_source = milliseconds(lambda: _by_source(kind, inputs, saved), repeats)
    except Exception as error:  # a configuration that does not compile is a line of the table, not its end
        print(f"{name:10} {options}: {type(error).__name__} {str(error)[:200]}", flush=True)
        return
    states = 4 * HEADS * DIRECTIONS * given[1].size(1) * given[4].size(-1)  # bytes of one [K, D, E, H]
    times = f"{only:8.3f} {forward:8.3f} {backward:8.3f} {by_source:8.3f}"
    chosen = " ".join(f"{key}={value}" for key, value in options.items()) or "as chosen"
    print(f"{name:10} {times} {peak / 2**20:8.0f} {peak / states:6.1f}  {chosen}", flush=True)


def _by_source(kind: str, inputs: list[Tensor], saved: list[Tensor]) -> object:
    _, projected, source, weight, ptr, weight_hh, *_ = inputs
    heads, _, directions, _ = projected.shape
    hidden, states = weight_hh.size(-1), saved[1]
    chosen = launch.sizes(hidden, heads, directions, ptr.numel() - 1, backward=True)
    group = -(-heads // chosen.groups)
    gradients = states.new_empty(group, *states.shape[2:-1], launch.num_parts(kind, chosen.dot) * hidden)
    by_source = launch.SumBySource(weight, projected, source, weight_hh.dtype, chosen)
    for first in range(0, heads, group):
        by_source.add(gradients, first, min(group, heads - first))
    return by_source.finish()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--structures", nargs="*", default=list(STRUCTURES))
    arguments.add_argument("--kind", default="lstm")
    arguments.add_argument("--hidden", type=int, default=8)
    arguments.add_argument("--repeats", type=int, default=11)
    arguments.add_argument("--no-check", action="store_true")
    arguments.add_argument("--options", nargs="*", default=[], help="only these, each as name=value,name=value")
    given = arguments.parse_args()
    start = time.time()
    if not given.no_check:
        for kind, hidden in (("lstm", 8), ("gru", 8), ("rnn", 8), ("lstm", 5), ("lstm", 16), ("gru", 32)):
            check(kind, hidden)
        print(f"checked in {time.time() - start:.0f} s, mostly compiling", flush=True)

    if given.options:
        tried = [dict(pair.split("=") for pair in one.split(",")) for one in given.options]
        tried = [{key: int(value) for key, value in one.items()} for one in tried]
    else:
        # runs * padded hidden width = 32 * warps keeps one value per thread.
        both_ways = [
            {"runs": 8, "warps": 2},
            {"runs": 16, "warps": 4},
            {"runs": 8, "warps": 1},
            {"single": 256},
            {"single": 1024},
            {"single": 4096},
        ]
        tried = [{}, *({**one, **{f"backward_{key}": value for key, value in one.items()}} for one in both_ways)]
        tried += [
            {"backward_chunk": 16},
            {"backward_chunk": 64},
            {"backward_chunks": 4},
            {"backward_chunks": 16, "backward_source_warps": 2},
            {"backward_groups": 1},
            {"backward_groups": 4},
            {"backward_single": 64},
        ]
    print(f"{'ms':10} {'no save':>8} {'forward':>8} {'backward':>8} {'(source)':>8} {'peak MiB':>8} {'/KDEH':>6}")
    for name in given.structures:
        inputs = build(name, given.kind, given.hidden)
        for options in tried:
            measure(name, given.kind, inputs, options, given.repeats)
    print(f"{time.time() - start:.0f} s in all", file=sys.stderr)


if __name__ == "__main__":
    main()
