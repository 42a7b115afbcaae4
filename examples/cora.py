"""Node classification on Cora: python examples/cora.py [FOLDER OF PLANETOID]"""

import sys

import torch
import torch.nn.functional as F
from torch_geometric.datasets import Planetoid
from torch_geometric.transforms import NormalizeFeatures

from torch_goat.nn import GOAT


def main(root: str = "data/Planetoid", epochs: int = 100) -> float:
    torch.manual_seed(0)
    data = Planetoid(root, "Cora", transform=NormalizeFeatures())[0]
    num_classes = int(data.y.max()) + 1
    model = GOAT(data.num_features, 64, num_layers=2, out_channels=num_classes, heads=8, dropout=0.6, scaling="size")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    best_val = best_test = 0.0
    for epoch in range(epochs):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()

        model.eval()
        with torch.no_grad():
            correct = (model(data.x, data.edge_index).argmax(dim=1) == data.y).float()
        val, test = correct[data.val_mask].mean().item(), correct[data.test_mask].mean().item()
        if val > best_val:  # the validation nodes choose the epoch
            best_val, best_test = val, test
        print(f"epoch {epoch + 1}: loss {loss:.3f}, validation accuracy {val:.3f}")
    print(f"test accuracy at the best validation accuracy: {best_test:.3f}")
    return best_test


if __name__ == "__main__":
    main(*sys.argv[1:2])
