"""A heterogeneous graph: users rate items, and GOAT predicts each user's group from the items they rated."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv
from torch_geometric.transforms import ToUndirected

from torch_goat.nn import GOATConv


def make_graph(num_users: int, num_items: int = 50, ratings: int = 8) -> HeteroData:
    """Users of group 1 prefer items with large features."""
    data = HeteroData()
    data["item"].x = torch.rand(num_items, 4)
    data["user"].x = torch.ones(num_users, 1)
    data["user"].y = torch.randint(0, 2, (num_users,))
    preference = torch.where(data["user"].y.bool(), 3.0, -3.0)[:, None] * data["item"].x[:, 0]  # [users, items]
    rated = torch.multinomial(preference.softmax(dim=1), ratings)  # [users, ratings]
    users = torch.arange(num_users).repeat_interleave(ratings)
    data["user", "rates", "item"].edge_index = torch.stack([users, rated.flatten()])
    return ToUndirected()(data)  # adds ("item", "rev_rates", "user")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # Source and target are different node types: self loops are impossible, and -1 infers their widths.
        edge_types = [("user", "rates", "item"), ("item", "rev_rates", "user")]
        self.conv = HeteroConv({kind: GOATConv((-1, -1), 16, add_self_loops=False) for kind in edge_types})
        self.lin = torch.nn.Linear(16, 2)

    def forward(self, data: HeteroData) -> Tensor:
        return self.lin(self.conv(data.x_dict, data.edge_index_dict)["user"].relu())


def main(num_users: int = 400, epochs: int = 50) -> float:
    torch.manual_seed(0)
    data = make_graph(num_users)
    train_mask = torch.rand(num_users) < 0.6
    model = Net()
    model(data)  # initializes the lazy layers
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data)[train_mask], data["user"].y[train_mask])
        loss.backward()
        optimizer.step()
    accuracy = (model(data).argmax(dim=1) == data["user"].y)[~train_mask].float().mean().item()
    print(f"loss {loss:.3f}, test accuracy: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
