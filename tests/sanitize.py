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
LARGE = portions.LARGE  # bytes of gradients that are divided into portions
# Options of the layer, and from how many bytes on gradients come in portions.
VARIANTS = [
    ({}, LARGE),
    ({}, 0),
    ({"order_noise": 0.3}, LARGE),
    ({"attention": "gatv2", "bidirectional": False}, LARGE),
]


def main() -> None:
    torch.manual_seed(0)
    hub = torch.stack([torch.arange(NODES), torch.zeros(NODES).long()])
    edge_index = torch.cat([torch.randint(NODES, (2, EDGES)), hub], dim=1).cuda()
    x = torch.randn(NODES, 5).round().cuda()  # equal rows: ties
    for rnn in GATES:
        for hidden in WIDTHS["scan" if rnn in SCANS else "recurrent"]:
            for options, portions.LARGE in VARIANTS:
                conv = GOATConv(5, 2 * hidden, heads=2, rnn=rnn, **options).cuda()
                conv(x, edge_index).square().sum().backward()
                torch.cuda.synchronize()
                print(rnn, hidden, options, portions.LARGE, flush=True)


if __name__ == "__main__":
    main()
