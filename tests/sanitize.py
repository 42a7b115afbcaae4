"""Every Triton kernel once on a small graph, to be run under NVIDIA's sanitizer on a GPU:

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python -m tests.sanitize

``--tool racecheck``, ``initcheck`` and ``synccheck`` work as well. Prints what was run.
"""

import torch

from torch_goat.nn import GOATConv
from torch_goat.ops.ragged_rnn.interface import GATES, SCANS
from torch_goat.ops.ragged_rnn.triton import portions

NODES, EDGES = 40, 160
# Units per direction: in the registers of one warp, of one program, and shared by several programs.
WIDTHS = {"recurrent": [3, 16, 33, 256], "scan": [3, 40]}
# Options of the layer, and whether gradients come in portions, as on a large graph.
VARIANTS = [
    ({}, False),
    ({}, True),
    ({"order_noise": 0.3}, False),
    ({"attention": "gatv2", "bidirectional": False}, False),
]


def main() -> None:
    torch.manual_seed(0)
    hub = torch.stack([torch.arange(NODES), torch.zeros(NODES).long()])
    edge_index = torch.cat([torch.randint(NODES, (2, EDGES)), hub], dim=1).cuda()
    x = torch.randn(NODES, 5).round().cuda()  # equal rows: ties
    for rnn in GATES:
        for hidden in WIDTHS["scan" if rnn in SCANS else "recurrent"]:
            for options, divided in VARIANTS:
                portions.LARGE = portions.LARGE_IF_WIDE = 0 if divided else 2**31
                conv = GOATConv(5, 2 * hidden, heads=2, rnn=rnn, **options).cuda()
                conv(x, edge_index).square().sum().backward()
                torch.cuda.synchronize()
                print(rnn, hidden, options, divided, flush=True)


if __name__ == "__main__":
    main()
