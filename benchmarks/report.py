"""The time and the size of a report, and how fast its viewer answers.

    python benchmarks/report.py --data DATA --out build/bench

Trains GOAT with 8 heads on Computers for a few epochs, writes its report with the contributions of 200 nodes that are
drawn at random, and, where Chromium and Playwright are installed, opens it and asks the viewer for the node with the
most neighbours, once for every head. Writes ``report.html``, ``report.json`` and ``report.md`` into ``--out``.
"""

import argparse
import json
import shutil
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from layer import environment

from torch_goat import datasets
from torch_goat.models import ModelOptions
from torch_goat.report import report
from torch_goat.training import Experiment, TrainingOptions, train

MODEL = ModelOptions(name="goat", hidden_channels=8, heads=8, head_pooling="sum", last="gcn")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
ANSWER = """(hub) => {
  const search = document.getElementById("search");
  const times = [];
  for (const head of document.querySelectorAll("#heads input")) {
    head.click();
    search.value = hub;
    const start = performance.now();
    search.dispatchEvent(new Event("input"));
    search.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
    document.body.getBoundingClientRect();  // with layout
    times.push(performance.now() - start);
  }
  return times;
}"""


def viewer_times(page: Path, hub: int) -> dict[str, float]:
    """Milliseconds from a finished search to a laid out table, and until the page is ready; nothing if no browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {}
    chromium = shutil.which("chromium")
    if chromium is None:
        return {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = browser.new_page()
        start = time.perf_counter()
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector("#viewer[data-ready]")
        ready = 1e3 * (time.perf_counter() - start)
        times = tab.evaluate(ANSWER, str(hub))
        browser.close()
    return {"ready_ms": ready, "answer_ms": median(times), "slowest_answer_ms": max(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="computers")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=200, help="how many have contributions")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--data", help="the folder of raw data files (default: TORCH_GOAT_DATA)")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where the results are written")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    data = datasets.load(arguments.dataset, data_dir=arguments.data)
    degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    chosen = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))[: arguments.nodes].tolist()
    training = TrainingOptions(epochs=arguments.epochs, patience=0, record_orderings=(0, arguments.epochs))
    with TemporaryDirectory() as folder:
        train(
            Experiment(arguments.dataset, model=MODEL, training=training), folder, device="cpu", data_dir=arguments.data
        )
        start = time.perf_counter()
        html = report(folder, nodes=[str(node) for node in chosen], data_dir=arguments.data)
        seconds = time.perf_counter() - start
    page = arguments.out / "report.html"
    page.write_text(html, encoding="utf-8")
    row = {
        "dataset": arguments.dataset,
        "nodes": data.num_nodes,
        "contributions of": len(chosen),
        "seconds": seconds,
        "megabytes": page.stat().st_size / 1e6,
        "neighbours of the hub": int(degree.max()),
        **viewer_times(page, int(degree.argmax())),
    }
    about = environment(torch.device("cpu"))
    (arguments.out / "report.json").write_text(json.dumps({"environment": about, "rows": [row]}, indent=1) + "\n")
    lines = [
        "# A report",
        "",
        ", ".join(f"{key} {value}" for key, value in about.items()) + ".",
        "",
        "| | |",
        "|---|---:|",
    ]
    lines += [f"| {key} | {f'{value:.1f}' if isinstance(value, float) else value} |" for key, value in row.items()]
    (arguments.out / "report.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
