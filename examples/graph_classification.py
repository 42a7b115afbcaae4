"""Graph classification in mini-batches: does a random graph contain more triangles than the median graph?"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_add_pool
from torch_geometric.utils import erdos_renyi_graph, to_dense_adj

from torch_goat.nn import GOAT


def make_graphs(num_graphs: int) -> list[Data]:
    graphs, triangles = [], []
    for _ in range(num_graphs):
        edge_index = erdos_renyi_graph(num_nodes=15, edge_prob=float(torch.empty(()).uniform_(0.2, 0.4)))
        adj = to_dense_adj(edge_index, max_num_nodes=15)[0]  # [15, 15]
        triangles.append(torch.trace(adj @ adj @ adj) / 6)
        graphs.append(Data(x=adj.sum(dim=1, keepdim=True) / 15, edge_index=edge_index))
    median = torch.stack(triangles).median()
    for graph, count in zip(graphs, triangles, strict=True):
        graph.y = (count > median).long().view(1)
    return graphs


def main(num_graphs: int = 500, epochs: int = 20) -> float:
    torch.manual_seed(0)
    graphs = make_graphs(num_graphs)
    split = int(0.8 * num_graphs)
    train_loader = DataLoader(graphs[:split], batch_size=32, shuffle=True)
    test_loader = DataLoader(graphs[split:], batch_size=128)
    model = GOAT(in_channels=1, hidden_channels=32, num_layers=2, out_channels=2, heads=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)

    def logits(batch: Data) -> Tensor:
        out = model(batch.x, batch.edge_index)  # [num_nodes, 2]
        return global_add_pool(out, batch.batch)  # [num_graphs, 2]

    for epoch in range(epochs):
        for batch in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(logits(batch), batch.y)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss:.3f}")
    model.eval()
    with torch.no_grad():
        correct = sum(int((logits(batch).argmax(dim=1) == batch.y).sum()) for batch in test_loader)
    accuracy = correct / (num_graphs - split)
    print(f"test accuracy: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
