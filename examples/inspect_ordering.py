"""Trains GOAT on a generated task, inspects the learned ordering, and trains a second model with it frozen."""

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.utils import erdos_renyi_graph, scatter

from torch_goat.nn import GOAT, Ordering


def make_graph(num_nodes: int = 400) -> Data:
    """A random graph in which a node's label tells whether its largest neighbour feature exceeds the median."""
    x = torch.rand(num_nodes, 1)
    edge_index = erdos_renyi_graph(num_nodes, edge_prob=8 / num_nodes)
    largest = scatter(x[edge_index[0], 0], edge_index[1], dim_size=num_nodes, reduce="max")
    train_mask = torch.rand(num_nodes) < 0.6
    return Data(x=x, edge_index=edge_index, y=(largest > largest.median()).long(), train_mask=train_mask)


def train(data: Data, epochs: int, orderings: list[Ordering] | None = None) -> tuple[GOAT, float]:
    """Returns the trained model and its test accuracy. Layers read neighbours in the given orderings, if any."""
    torch.manual_seed(0)
    model = GOAT(data.num_features, hidden_channels=16, num_layers=1, out_channels=2, heads=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index, orderings=orderings)
        loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
    correct = model(data.x, data.edge_index, orderings=orderings).argmax(dim=1) == data.y
    return model, correct[~data.train_mask].float().mean().item()


def main(epochs: int = 100) -> tuple[Ordering, Ordering]:
    torch.manual_seed(0)
    data = make_graph()
    model, accuracy = train(data, epochs)
    _, (ordering,) = model(data.x, data.edge_index, return_orderings=True)  # one per layer
    print(f"learned ordering: test accuracy {accuracy:.3f}")
    print("neighbours of node 0 in the order head 0 reads them:", ordering.neighbors(0, head=0).tolist())
    print("their coefficients:", [round(weight, 3) for weight in ordering.weights(0, head=0).tolist()])

    with tempfile.TemporaryDirectory() as folder:
        ordering.save(Path(folder) / "ordering.safetensors")
        loaded = Ordering.load(Path(folder) / "ordering.safetensors")
    _, accuracy = train(data, epochs, [loaded])
    print(f"the same ordering, frozen: test accuracy {accuracy:.3f}")
    return ordering, loaded


if __name__ == "__main__":
    main()
