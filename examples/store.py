"""Trains GOAT on a graph that a PostgreSQL server serves, batch by batch.

    python examples/store.py postgresql://user@host/name --dataset cora

The graph is put onto the server if it is not there yet. From then on this process knows the numbers of the training
nodes and, for sampling, the edges; the features of each batch come from the server. The password, if there is one, is
best left to ``PGPASSWORD`` or ``~/.pgpass``.
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.data import TensorAttr

from torch_goat.data import datasets
from torch_goat.data.loader import neighbor_loader
from torch_goat.data.stores import PostgresFeatureStore, PostgresGraphStore
from torch_goat.experiments.models import ModelOptions, build
from torch_goat.experiments.models.layers import Sampled


def upload(name: str, features: PostgresFeatureStore, graph: PostgresGraphStore) -> None:
    """Puts a dataset onto the server, unless something is there already."""
    if features.get_all_tensor_attrs() or graph.get_all_edge_attrs():
        return
    data = datasets.load(name)
    for key in ("x", "y", "train_mask"):
        features.put_tensor(data[key], TensorAttr(None, key, None))
    source, target = data.edge_index
    size = (data.num_nodes, data.num_nodes)
    graph.put_edge_index((source, target), edge_type=None, layout="coo", size=size)


def train(features: PostgresFeatureStore, graph: PostgresGraphStore, epochs: int, workers: int = 0) -> list[float]:
    """Trains, and gives the mean loss of every epoch."""
    labels = features.get_tensor(TensorAttr(None, "y", None))
    train_mask = features.get_tensor(TensorAttr(None, "train_mask", None))
    width = features.get_tensor_size(TensorAttr(None, "x"))[1]
    torch.manual_seed(0)
    network = build(ModelOptions("goat", heads=8), width, int(labels.max()) + 1)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.005, weight_decay=5e-4)
    options = {"input_nodes": train_mask, "batch_size": 64, "shuffle": True, "num_workers": workers}
    loader = neighbor_loader((features, graph), [15, 10], **options)
    losses = []
    for epoch in range(epochs):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            sampled = Sampled(batch.n_id, None, batch.num_sampled_nodes, batch.num_sampled_edges)
            out = network(batch.x, batch.edge_index, sampled=sampled)
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.batch_size
        losses.append(total / int(train_mask.sum()))
        print(f"epoch {epoch + 1}: loss {losses[-1]:.4f}", flush=True)
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="the address of the database")
    parser.add_argument("--dataset", default="cora", help="a name that goat datasets lists")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2, help="processes that make batches")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds that the server may take to answer")
    arguments = parser.parse_args()
    features = PostgresFeatureStore(arguments.address, arguments.timeout)
    graph = PostgresGraphStore(arguments.address, arguments.timeout)
    upload(arguments.dataset, features, graph)
    train(features, graph, arguments.epochs, arguments.workers)


if __name__ == "__main__":
    main()
