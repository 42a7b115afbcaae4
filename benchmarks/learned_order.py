"""Whether GOAT learns the order in which neighbours must be read, on tasks with a hidden key.

    python benchmarks/learned_order.py --tasks median-20000,run-20000 --seeds 10 --processes 10 --out build/bench

One GOAT layer (16 heads of width 8, no self loops) and a small MLP, on one graph per seed. The rows:

- *order given*: neighbours are read in the order of the hidden key (``order_by``).
- *order_noise*: the order of the scores, with ``order_noise`` falling from 0.3 to 0.1 and a loss of every head by
  itself.
- *two stages*: that layer finds the order, then a new one reads it: the head that predicts validation nodes best by
  itself gives the order of all heads (``order_by``).

Accuracies are those of test nodes at the best validation epoch. tau is Kendall's, of the key's order and that of a
head: the best one, or the one that was chosen. Writes ``learned_order.json`` and ``learned_order.md`` into ``--out``;
results that are there already are kept. With ``--figure``, it only draws these results:

    python benchmarks/learned_order.py --out benchmarks/results/2026-11-18-h200 --figure docs/images/learned-order.png
"""

import argparse
import json
import multiprocessing
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from measure import environment, heading
from torch import Tensor
from torch.nn import Linear, Module, ReLU, Sequential
from tqdm import tqdm

import torch_goat
from torch_goat.data.datasets import order_task
from torch_goat.nn import GOATConv, HeadwiseMLP, Neighborhoods

HEADS, WIDTH, DROPOUT, NOISE = 16, 8, 0.3, (0.3, 0.1)
LEARNING_RATE, FIND, READ, EVERY = 0.005, 900, 700, 20  # the last three in epochs
ROWS = ("order given", "order_noise", "two stages")


class Network(Module):
    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv = GOATConv(in_channels, WIDTH, HEADS, add_self_loops=False, scaling="size")
        self.output = Sequential(Linear(HEADS * WIDTH, 64), ReLU(), Linear(64, num_classes))
        self.by_head = HeadwiseMLP(HEADS, WIDTH, 32, num_classes)

    def forward(self, x: Tensor, hood: Neighborhoods, **order: Any) -> tuple[Tensor, Tensor]:
        """The output ``[N, classes]``, and that of every head by itself ``[N, HEADS, classes]``."""
        h = self.conv(x, hood, **order)
        return self.output(h), self.by_head(h)


class Task(NamedTuple):
    x: Tensor
    hood: Neighborhoods
    y: Tensor
    key: Tensor  # [E], of each edge's source
    train: Tensor  # masks of nodes
    val: Tensor
    test: Tensor

    @classmethod
    def make(cls, name: str, seed: int, device: torch.device) -> "Task":
        task, _, nodes = name.rpartition("-")
        data = order_task(seed, task, int(nodes)).to(device)  # type: ignore[arg-type]
        hood = Neighborhoods.from_edge_index(data.edge_index, data.num_nodes, add_self_loops=False)
        return cls(data.x, hood, data.y, data.edge_key, data.train_mask, data.val_mask, data.test_mask)

    def network(self) -> Network:
        return Network(self.x.size(1), int(self.y.max()) + 1).to(self.x.device)


def fit(
    network: Network,
    task: Task,
    epochs: int,
    noise: tuple[float, float] = (0.0, 0.0),
    dropout: tuple[float, float] = (DROPOUT, 0.0),
    order_by: Tensor | None = None,
) -> tuple[float, float]:
    """Trains with Adam, a cosine schedule, and noise and dropout that fall over the first 70 % of the epochs.

    With noise, the heads learn to predict by themselves as well. Returns the validation and test accuracy of the best
    validation epoch; the network keeps its last weights.
    """
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    y, best = task.y[task.train], (-1.0, 0.0)
    for epoch in range(1, epochs + 1):
        done = min(1.0, (epoch - 1) / (0.7 * epochs))
        network.conv.order_noise = noise[0] + (noise[1] - noise[0]) * done
        network.conv.dropout = dropout[0] + (dropout[1] - dropout[0]) * done
        network.train()
        out, by_head = (values[task.train] for values in network(task.x, task.hood, order_by=order_by))
        loss = F.cross_entropy(out, y)
        if noise[0] > 0:
            loss = loss + F.cross_entropy(by_head.flatten(0, 1), y.repeat_interleave(HEADS))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if epoch % EVERY == 0:
            right = (evaluate(network, task, order_by=order_by)[0].argmax(dim=-1) == task.y).double()
            best = max(best, (float(right[task.val].mean()), float(right[task.test].mean())))
    return best


@torch.no_grad()
def evaluate(network: Network, task: Task, **order: Any) -> tuple[Tensor, Tensor]:
    return network.eval()(task.x, task.hood, **order)


def best_head(network: Network, task: Task) -> int:
    """The head that predicts most validation nodes correctly by itself."""
    right = evaluate(network, task)[1].argmax(dim=-1) == task.y.view(-1, 1)  # [N, HEADS]
    return int(right[task.val].sum(dim=0).argmax())


@torch.no_grad()
def keys_of_heads(network: Network, task: Task) -> Tensor:
    """The coefficients of all edges ``[E, K]``: within a neighbourhood, they are in the order of the scores."""
    return network.eval().conv(task.x, task.hood, return_attention_weights=True)[1][1]


@torch.no_grad()
def kendall(network: Network, task: Task) -> list[float]:
    """The mean of Kendall's tau, of the key's order and that of each head, over the neighbourhoods of test nodes."""
    conv = network.eval().conv
    _, by_score = conv(task.x, task.hood, return_ordering=True)
    _, by_key = conv(task.x, task.hood, order_by=task.key, return_ordering=True)
    return by_score.kendall_tau(by_key)[task.test].mean(dim=0).tolist()


def run(job: tuple[str, int, str, str]) -> list[dict[str, Any]]:
    """The results of one job: the rows of a seed that belong together."""
    name, seed, row, device = job
    torch.set_num_threads(1)
    torch_goat.set_checks(False)  # a check waits for the device
    task = Task.make(name, seed, torch.device(device))
    torch.manual_seed(seed)

    def result(row: str, accuracy: float, tau: float | None) -> dict[str, Any]:
        return {"task": name, "seed": seed, "row": row, "accuracy": accuracy, "tau": tau}

    network = task.network()
    if row == "order given":
        return [result(row, fit(network, task, READ, order_by=task.key)[1], None)]
    accuracy = fit(network, task, FIND, NOISE, (DROPOUT, DROPOUT))[1]
    tau, head = kendall(network, task), best_head(network, task)
    key = keys_of_heads(network, task)[:, head]
    read = fit(task.network(), task, READ, order_by=key)[1]
    return [result(row, accuracy, max(map(abs, tau))), result("two stages", read, abs(tau[head]))]


def markdown(results: list[dict[str, Any]], about: dict[str, str | int]) -> str:
    """The result as a page: accuracies, what share of the given order's they are, and tau."""
    lines = heading("Learning the order of a hidden key", about)
    lines += ["| task | row | accuracy (%) | least | of the order given | Kendall's tau | seeds |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|"]
    for task in dict.fromkeys(result["task"] for result in results):
        of_task = {row: [one for one in results if (one["task"], one["row"]) == (task, row)] for row in ROWS}
        given = mean(one["accuracy"] for one in of_task["order given"])
        for row, ones in of_task.items():
            values = [100 * one["accuracy"] for one in ones]
            if values:
                taus = [one["tau"] for one in ones if one["tau"] is not None]
                spread = stdev(values) if len(values) > 1 else 0.0
                tau = f"{mean(taus):.3f}" if taus else "-"
                share = mean(values) / given / 100
                lines.append(
                    f"| {task} | {row} | {mean(values):.1f} ± {spread:.1f} | {min(values):.1f} | {share:.3f} | {tau} "
                    f"| {len(values)} |"
                )
    return "\n".join(lines) + "\n"


def shares(results: list[dict[str, Any]], task: str, row: str) -> list[float]:
    """The accuracies of a row's runs, relative to the mean accuracy with the order given."""
    of_task = [one for one in results if one["task"] == task]
    given = mean(one["accuracy"] for one in of_task if one["row"] == "order given")
    return [one["accuracy"] / given for one in of_task if one["row"] == row]


def figure(path: Path, results: list[dict[str, Any]]) -> None:
    """Draws the accuracy of every run relative to the order given, and the tau of its best or chosen head."""
    from matplotlib.figure import Figure

    tasks = [*dict.fromkeys(one["task"] for one in results)][::-1]
    drawing = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = drawing.subplots(1, 2, sharey=True)
    for number, (row, color) in enumerate({"order_noise": "tab:orange", "two stages": "tab:blue"}.items()):
        label = {"order_noise": "one training", "two stages": "two stages"}[row]
        for place, task in enumerate(tasks):
            height = place + 0.15 - 0.3 * number
            found = shares(results, task, row)
            tau = [one["tau"] for one in results if (one["task"], one["row"]) == (task, row)]
            for panel, values in ((left, found), (right, tau)):
                heights = [height] * len(values)
                panel.plot(values, heights, "o", color=color, alpha=0.5, label=None if place else label)
    left.axvline(1, color="black", linewidth=0.8)
    left.set_yticks(range(len(tasks)), tasks)
    left.set_xlabel("test accuracy, relative to the order given")
    right.set_xlabel("Kendall's tau of the head's order with the key")
    left.legend(loc="upper left", fontsize=8)
    for panel in (left, right):
        panel.grid(axis="x", linewidth=0.3)
    drawing.savefig(path, dpi=110, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="alternations-8000,alternations-20000,median-20000,run-20000")
    parser.add_argument("--rows", default="order given,order_noise", help="order_noise includes two stages")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1, help="trainings side by side")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where the results are written")
    parser.add_argument("--figure", type=Path, help="where to draw the results that are there")
    arguments = parser.parse_args()
    rows, tasks = arguments.rows.split(","), arguments.tasks.split(",")
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "learned_order.json"
    results = json.loads(path.read_text())["results"] if path.exists() else []
    if arguments.figure is not None:
        figure(arguments.figure, results)
        return
    there = {(one["task"], one["seed"], one["row"]) for one in results}
    names = [(task, seed, row) for seed in range(arguments.seeds) for row in rows for task in tasks]
    jobs = [(*name, arguments.device) for name in names if name not in there]
    about = environment(torch.device(arguments.device))
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for found in tqdm(pool.imap_unordered(run, jobs), total=len(jobs), unit="job"):
            results += found
            results.sort(key=lambda one: (one["task"], ROWS.index(one["row"]), one["seed"]))
            path.write_text(json.dumps({"environment": about, "results": results}, indent=1) + "\n")
    (arguments.out / "learned_order.md").write_text(markdown(results, about))
    print(markdown(results, about))


if __name__ == "__main__":
    main()
