"""Trains GOAT on mini-batches of a graph in a PostgreSQL database.

    python examples/postgres/train.py postgresql://user@host/name --dataset cora

The graph is uploaded if the database is empty. Training then holds only the edges and the training nodes in memory; the
features of each batch are read from the server. Set the password with ``PGPASSWORD`` or ``~/.pgpass``.
"""

import argparse

import torch
import torch.nn.functional as F
from postgres_store import PostgresFeatureStore, PostgresGraphStore
from torch_geometric.data import TensorAttr

from torch_goat.data import datasets
from torch_goat.data.loader import neighbor_loader
from torch_goat.experiments.models import ModelOptions, Network
from torch_goat.experiments.models.layers import Sampled


def upload(name: str, features: PostgresFeatureStore, graph: PostgresGraphStore) -> None:
    """Uploads a dataset, unless the database already has a graph."""
    if features.get_all_tensor_attrs() or graph.get_all_edge_attrs():
        return
    data = datasets.load(name)
    for key in ("x", "y", "train_mask"):
        features.put_tensor(data[key], TensorAttr(None, key, None))
    source, target = data.edge_index
    size = (data.num_nodes, data.num_nodes)
    graph.put_edge_index((source, target), edge_type=None, layout="coo", size=size)


def train(features: PostgresFeatureStore, graph: PostgresGraphStore, epochs: int, workers: int = 0) -> list[float]:
    """Trains the model and returns the mean loss of every epoch."""
    labels = features.get_tensor(TensorAttr(None, "y", None))
    train_mask = features.get_tensor(TensorAttr(None, "train_mask", None))
    width = features.get_tensor_size(TensorAttr(None, "x"))[1]
    torch.manual_seed(0)
    network = Network(ModelOptions("goat", heads=8), width, int(labels.max()) + 1)
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
    parser.add_argument("--dataset", default="cora", help="a name listed by goat datasets")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2, help="processes that load batches")
    parser.add_argument("--timeout", type=float, default=30.0, help="maximum seconds per query")
    arguments = parser.parse_args()
    features = PostgresFeatureStore(arguments.address, arguments.timeout)
    graph = PostgresGraphStore(arguments.address, arguments.timeout)
    upload(arguments.dataset, features, graph)
    train(features, graph, arguments.epochs, arguments.workers)


if __name__ == "__main__":
    main()
