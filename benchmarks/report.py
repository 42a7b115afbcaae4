"""The time and size of a report, and the response time of its viewer.

    python benchmarks/report.py --data DATA --out build/bench

Trains GOAT with 8 heads on Computers for some epochs and writes its report with the contributions of 200 random nodes.
If Chromium and Playwright are installed, it opens the report and asks the viewer for the node with the most neighbours
and for another head, five times per head. Writes the run, ``report.html``, ``report.json`` and ``report.md`` into
``--out``; a run that is done is not repeated.
"""

import argparse
import json
import re
import shutil
import time
from pathlib import Path
from statistics import median

import torch
from layer import environment, heading

from torch_goat.app.report import report
from torch_goat.data import datasets
from torch_goat.experiments import Experiment, TrainingOptions, train
from torch_goat.experiments.models import ModelOptions

MODEL = ModelOptions(name="goat", hidden_channels=8, heads=8, head_pooling="sum", last="gcn")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
ANSWER = """(hub) => {
  const search = document.getElementById("search");
  const heads = Array.from(document.querySelectorAll("#heads input"));
  const timed = (act) => {
    const start = performance.now();
    act();
    document.body.getBoundingClientRect();  // with layout
    return performance.now() - start;
  };
  const find = () => {
    search.value = hub;
    search.dispatchEvent(new Event("input"));
    search.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
  };
  const times = { search: [], head: [] };
  find();
  for (let number = 1; number <= 5 * heads.length; number++) {
    times.head.push(timed(() => heads[number % heads.length].click()));
    times.search.push(timed(find));
  }
  return { ...times, rows: document.querySelectorAll("#neighbors tbody tr").length };
}"""


def viewer_times(page: Path, hub: int) -> dict[str, float]:
    """Milliseconds from a search or a switch of heads to a laid out table, and until the page is ready.

    Nothing if there is no browser.
    """
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
    found = {"neighbours shown": times["rows"], "ready (ms)": ready}
    for what in ("search", "head"):
        found |= {f"{what}, median (ms)": median(times[what]), f"{what}, slowest (ms)": max(times[what])}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="computers")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--nodes", type=int, default=200, help="how many have contributions")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--data", help="the folder of raw data files (default: TORCH_GOAT_DATA)")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where the results are written")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    data = datasets.load(arguments.dataset, data_dir=arguments.data)
    degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    chosen = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))[: arguments.nodes].tolist()
    training = TrainingOptions(epochs=arguments.epochs, patience=0, record_orderings=(0, arguments.epochs))
    experiment = Experiment(arguments.dataset, model=MODEL, training=training)
    folder = arguments.out / f"{arguments.dataset}-run"
    result = train(experiment, folder, device="cpu", data_dir=arguments.data)
    start, worked = time.perf_counter(), time.process_time()
    html = report(folder, nodes=[str(node) for node in chosen], data_dir=arguments.data)
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    page = arguments.out / "report.html"
    page.write_text(html, encoding="utf-8")
    row = {
        "dataset": arguments.dataset,
        "nodes": data.num_nodes,
        "neighbourhoods in the page": int(re.findall(r'"included": (\d+)', html)[0]),
        "contributions of": len(chosen),
        "test accuracy": result.metrics["test"]["accuracy"],
        "seconds": seconds,
        "seconds of a processor": worked,
        "megabytes": page.stat().st_size / 1e6,
        "neighbours of the hub": int(degree.max()),
        **viewer_times(page, int(degree.argmax())),
    }
    about = environment(torch.device("cpu"))
    (arguments.out / "report.json").write_text(json.dumps({"environment": about, "rows": [row]}, indent=1) + "\n")
    lines = [*heading("A report", about), "| | |", "|---|---:|"]
    lines += [f"| {key} | {f'{value:.2f}' if isinstance(value, float) else value} |" for key, value in row.items()]
    (arguments.out / "report.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
