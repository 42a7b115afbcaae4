"""Whether trainings with different seeds learn the same order, with and without ``order_noise``.

    python benchmarks/agreement.py --data-dir DATA --out build/agreement

Trains three seeds on the first graph or split of each dataset, with the settings that the searches in ``results`` found
for GOAT with and without ``order_noise``, and compares the orders of the first layer between each two seeds: Kendall's
tau, after matching the heads on other nodes. Finished runs are kept. Writes ``agreement.json`` and ``agreement.md``
into ``--out``.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from measure import environment, heading, write_results
from runs import add_options, run_until_stopped
from standing import recipe_of

from torch_goat.app.explain import stability
from torch_goat.app.explain.removals import forward
from torch_goat.experiments import Experiment, PlannedRun, Run, finished

SEEDS = 3
ROWS = {  # of each table: GOAT without and with order_noise
    "order": ("goat", "goat-noise"),
    "table1": ("goat-lstm", "goat-noise"),
    "heterophilous": ("goat", "goat-noise"),
}
CASES = {
    "order": ("alternations-8000", "alternations-20000", "median-20000"),
    "table1": ("betweenness-100", "effective-size-100"),
    "heterophilous": ("cornell", "texas", "wisconsin"),
}


def plan(out: Path, cases: Sequence[str]) -> Iterator[tuple[str, bool, list[PlannedRun]]]:
    """The runs of each dataset, without and with ``order_noise``, whose settings have been searched."""
    for table, columns in CASES.items():
        recipe = recipe_of(table)
        for column in columns:
            data = recipe.columns[column]
            for row in ROWS[table]:
                if column in cases and recipe.settled(row, column):
                    model, training = recipe.options(row, column)
                    place = out / column / row
                    yield (
                        column,
                        model.order_noise > 0,
                        [
                            PlannedRun(
                                place / str(seed), Experiment(data.dataset, data.split, 0, seed, model, training)
                            )
                            for seed in range(SEEDS)
                        ],
                    )


def measure(runs: Sequence[PlannedRun], data_dir: str | None) -> dict[str, Any] | None:
    """The agreement between each two seeds, and their metric on test nodes; ``None`` if a run is not finished."""
    results = [finished(run.experiment, run.folder) for run in runs]
    done = [result for result in results if result is not None]
    if len(done) < SEEDS:
        return None
    data = Run(runs[0].folder).graph(data_dir).data
    found = []
    for one, other in combinations((Run(run.folder) for run in runs), 2):
        _, orderings = forward(one.network, data)
        found += [pair for pair in stability(one, data, orderings, [other]).seeds if pair.layer == 1]
    metric = next(iter(done[0].metrics["test"]))
    return {
        "best": mean(pair.best for pair in found),
        "mean": mean(pair.mean for pair in found),
        "pairs": len(found),
        metric: mean(result.metrics["test"][metric] for result in done),
    }


def markdown(rows: Sequence[dict[str, Any]], about: dict[str, str | int]) -> str:
    lines = heading("Agreement of orders between seeds", about)
    lines += ["| dataset | order | best head | all heads | pairs of seeds |", "|---|---|---:|---:|---:|"]
    for row in rows:
        order = "learned" if row["order_noise"] else "by-product"
        lines.append(f"| {row['dataset']} | {order} | {row['best']:.2f} | {row['mean']:.2f} | {row['pairs']} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(name for names in CASES.values() for name in names))
    parser.add_argument("--out", type=Path, default=Path("build/agreement"))
    add_options(parser)
    arguments = parser.parse_args()
    planned = list(plan(arguments.out, arguments.cases.split(",")))
    run_until_stopped([run for *_, runs in planned for run in runs], arguments)
    rows = []
    for dataset, noise, runs in planned:
        if (found := measure(runs, arguments.data_dir)) is not None:
            rows.append({"dataset": dataset, "order_noise": noise, **found})
    about = environment(torch.device("cuda" if torch.cuda.is_available() and arguments.device != "cpu" else "cpu"))
    write_results(arguments.out, "agreement", {"environment": about, "rows": rows}, markdown(rows, about))


if __name__ == "__main__":
    main()
