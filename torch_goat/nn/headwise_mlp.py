import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch_geometric.nn.inits import uniform, zeros

from torch_goat.ops.checks import check_count


class HeadwiseMLP(Module):
    r"""A separate MLP for every head of a layer, with one hidden layer and ReLU.

    A loss on the output trains every head to predict by itself. With ``order_noise``, each order is then credited with
    the prediction of its own head, and the head that predicts best has the most useful order.

    Args:
        heads: The number of heads.
        in_channels: The size of one head's output.
        hidden_channels: The size of the hidden layer.
        out_channels: The size of the output, such as the number of classes.

    Shapes:
        - **input:** concatenated heads :math:`(|\mathcal{V}|, H F_{in})`
        - **output:** :math:`(|\mathcal{V}|, H, F_{out})`
    """

    def __init__(self, heads: int, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.heads, self.in_channels = check_count("heads", heads), check_count("in_channels", in_channels)
        self.hidden_channels = check_count("hidden_channels", hidden_channels)
        self.out_channels = check_count("out_channels", out_channels)
        self.weight1 = Parameter(torch.empty(heads, in_channels, hidden_channels))
        self.bias1 = Parameter(torch.empty(heads, hidden_channels))
        self.weight2 = Parameter(torch.empty(heads, hidden_channels, out_channels))
        self.bias2 = Parameter(torch.empty(heads, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        uniform(self.in_channels, self.weight1)
        uniform(self.hidden_channels, self.weight2)
        zeros(self.bias1)
        zeros(self.bias2)

    def forward(self, x: Tensor) -> Tensor:
        width = self.heads * self.in_channels
        if x.dim() != 2 or x.size(1) != width:
            raise ValueError(
                f"x must have shape [nodes, heads * in_channels] = [nodes, {width}], got {list(x.shape)}; the layer "
                f"before must concatenate its {self.heads} heads."
            )
        x = x.reshape(-1, self.heads, self.in_channels).transpose(0, 1)  # [H, N, F_in]
        x = torch.baddbmm(self.bias1.unsqueeze(1), x, self.weight1).relu()
        return torch.baddbmm(self.bias2.unsqueeze(1), x, self.weight2).transpose(0, 1)  # [N, H, F_out]

    def __repr__(self) -> str:
        sizes = f"{self.in_channels}, {self.hidden_channels}, {self.out_channels}"
        return f"{type(self).__name__}(heads={self.heads}, {sizes})"
