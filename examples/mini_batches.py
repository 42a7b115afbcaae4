"""Mini-batch training with sampled neighbours. The sampler needs neither pyg-lib nor torch-sparse."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.utils import stochastic_blockmodel_graph

from torch_goat.data.loader import neighbor_loader
from torch_goat.nn import GOAT


def make_graph(nodes_per_class: int, num_classes: int = 4) -> Data:
    """Four communities whose members have noisy features in common."""
    y = torch.arange(num_classes).repeat_interleave(nodes_per_class)
    inside, outside = 8 / nodes_per_class, 1 / nodes_per_class
    probabilities = torch.full((num_classes, num_classes), outside).fill_diagonal_(inside)
    edge_index = stochastic_blockmodel_graph([nodes_per_class] * num_classes, probabilities)
    x = F.one_hot(y, num_classes) + torch.randn(y.numel(), num_classes)
    return Data(x=x, edge_index=edge_index, y=y, train_mask=torch.rand(y.numel()) < 0.5)


def main(nodes_per_class: int = 500, epochs: int = 5) -> float:
    torch.manual_seed(0)
    data = make_graph(nodes_per_class)
    model = GOAT(data.num_features, hidden_channels=32, num_layers=2, out_channels=4, heads=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    # At most 10 neighbours of each seed node, and at most 5 neighbours of each of those.
    loader = neighbor_loader(data, [10, 5], input_nodes=data.train_mask, batch_size=128, shuffle=True, seed=0)
    for epoch in range(epochs):
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]  # the seed nodes come first
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss:.3f}")
    model.eval()
    with torch.no_grad():
        correct = model(data.x, data.edge_index).argmax(dim=1) == data.y  # all neighbours of all nodes
    accuracy = correct[~data.train_mask].float().mean().item()
    print(f"test accuracy: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
