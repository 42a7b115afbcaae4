"""Neighbours in the order of timestamps: was a customer's last purchase more expensive than the one before?"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.nn import GOATConv


def make_graph(num_customers: int, num_products: int = 500, purchases: int = 6) -> Data:
    """Edges from products to the customers who bought them, with the time of each purchase in seconds since 1970."""
    price = torch.rand(num_products)
    product = torch.stack([torch.randperm(num_products)[:purchases] for _ in range(num_customers)])  # [C, P]
    customer = num_products + torch.arange(num_customers).repeat_interleave(purchases)
    time = torch.randint(1_700_000_000, 1_800_000_000, product.shape)  # integers are compared exactly
    last, before = price[product.gather(1, time.argsort(dim=1, descending=True)[:, :2])].unbind(dim=1)  # [C]
    return Data(
        x=torch.cat([price - 0.5, torch.zeros(num_customers)]).view(-1, 1),
        edge_index=torch.stack([product.view(-1), customer]),
        time=time.view(-1),
        y=(last > before).long(),
        customers=slice(num_products, None),
    )


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GOATConv(1, 32)
        self.out = torch.nn.Linear(32, 2)

    def forward(self, data: Data, order_by: Tensor | None) -> Tensor:
        return self.out(self.conv(data.x, data.edge_index, order_by=order_by)[data.customers])  # [C, 2]


def train(data: Data, order_by: Tensor | None, epochs: int) -> float:
    """Returns the accuracy on the second half of the customers."""
    torch.manual_seed(0)
    model, half = Model(), data.y.numel() // 2
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(epochs):
        optimizer.zero_grad()
        F.cross_entropy(model(data, order_by)[:half], data.y[:half]).backward()
        optimizer.step()
    correct = model.eval()(data, order_by).argmax(dim=1) == data.y
    return correct[half:].float().mean().item()


def main(num_customers: int = 2000, epochs: int = 100) -> tuple[float, float]:
    torch.manual_seed(0)
    data = make_graph(num_customers)
    given, learned = train(data, data.time, epochs), train(data, None, epochs)
    print(f"test accuracy: {given:.3f} with neighbours in the order of time, {learned:.3f} with a learned order")
    return given, learned


if __name__ == "__main__":
    main()
