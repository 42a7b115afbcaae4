import torch
from torch_geometric.data import Data

from torch_goat.training import fit


class Constant(torch.nn.Module):
    """Learns one score per class and ignores the graph: its results can be worked out."""

    def __init__(self) -> None:
        super().__init__()
        self.score = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.score.expand(x.size(0), -1)


def data() -> Data:
    parts = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])
    graph = Data(x=torch.zeros(9, 1), edge_index=torch.empty(2, 0, dtype=torch.long))
    graph.y = torch.tensor([1, 1, 1, 1, 0, 1, 1, 1, 0])
    graph.train_mask, graph.val_mask, graph.test_mask = (parts == part for part in range(3))
    return graph


def test_reads_the_test_nodes_where_validation_was_best() -> None:
    seen = []
    # Training pulls towards class 1, where half of the validation nodes are not: every step makes their loss worse.
    result = fit(Constant(), data(), epochs=5, learning_rate=0.1, progress=lambda *args: seen.append(args))
    assert result.best_epoch == 1
    assert result.test_accuracy == 0.75
    assert seen == [(epoch, 0.5) for epoch in range(1, 6)]
    assert result.seconds > 0
