"""Attacks run folders and backends: ``python -m tests.attack --seconds 600``, or ``make attack``.

Files of runs are damaged, training is killed, folders are hostile, and all backends read random graphs. Every problem
must be noticed or have no effect. Exit code 1: something was not, or the time was too short.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from tests.backends import AVAILABLE, device_of
from tests.compare import with_gradients
from tests.data.tables.files import write
from tests.experiments.test_run_folder import READ
from tests.experiments.training.test_resume import outcome
from tests.processes import server
from torch_goat.app.cli import app
from torch_goat.experiments import Run, RunError
from torch_goat.experiments.training import train as run_module
from torch_goat.nn import GOATConv

CHECKPOINT = "checkpoint.safetensors"
NESTED = {".toml": b"x = " + b"[" * 500_000, ".json": b'{"a":' * 100_000, ".csv": b'"' * 1_000_000}
WRONG = {
    ".toml": b".".join([b"a"] * 200_000) + b" = 1",
    ".json": b'{"metrics": {"val": {"accuracy": "x"}}, "epochs": "x"}',
    ".csv": b"epoch,seconds\nx,\0\n",
}
HANG = 120.0  # seconds after which a command counts as hanging
Attack = Iterator[str]  # a problem, or nothing, after each attempt


def _goat(arguments: list[str], place: Path) -> None:
    """The life of a process that runs ``goat``, with a checkpoint after each epoch."""
    torch.set_num_threads(1)
    run_module.CHECKPOINT_SECONDS = 0.0
    with (
        open(place / "out.txt", "w") as out,
        open(place / "err.txt", "w") as err,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        app.run(arguments)


class Lab:
    """A folder with tables, a finished run on them and a stopped one, and everything that must stay as it is."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place, self.draw = place, random.Random(seed)
        self.context = server()
        self.context.set_forkserver_preload(["torch_goat.app.cli.app", "tests.experiments.training.test_resume"])
        write(place)
        self.train = ["train", str(place / "nodes.csv"), str(place / "edges.csv"), "--target", "label"]
        self.train += ["--model", "goat", "--device", "cpu", "--set", "backend=torch", "--set", "epochs=30"]
        self.train += ["--set", "record_orderings=[0, 20]", "--out"]
        self.done, self.cut, self.outside = place / "done", place / "cut", place / "outside"
        code, _, said = self.goat(*self.train, str(self.done))
        assert code == 0, said
        self.expected = outcome(self.done)
        while not (self.cut / CHECKPOINT).exists():
            shutil.rmtree(self.cut, ignore_errors=True)
            self.kill(self.cut)
        self.outside.mkdir()
        for name in (*READ, CHECKPOINT, ".lock", "error.txt"):
            path = self.outside / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("precious")
        (self.outside / "orderings/.epoch-0-layer-1.safetensors.abcdefgh.part").write_text("precious")
        self.kept = self.contents()

    def contents(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.outside.rglob("*") if path.is_file()}

    def copy(self, run: Path, name: str) -> Path:
        shutil.rmtree(self.place / name, ignore_errors=True)
        return Path(shutil.copytree(run, self.place / name))

    def start(self, *arguments: str) -> BaseProcess:
        process = self.context.Process(target=_goat, args=(list(arguments), self.place))
        process.start()
        return process

    def goat(self, *arguments: str) -> tuple[int | None, str, str]:
        """The exit code, output and errors of a command; the code of one that hangs is ``None``."""
        process = self.start(*arguments)
        process.join(HANG)
        code = process.exitcode
        process.kill()
        process.join()
        out, err = ((self.place / name).read_text(errors="replace") for name in ("out.txt", "err.txt"))
        return code, out, err

    def kill(self, folder: Path) -> bool:
        """Starts training, kills it at a random moment, and returns whether it was still running."""
        process = self.start(*self.train, str(folder))
        while process.is_alive() and not (folder / ".lock").exists():
            time.sleep(0.001)
        process.join(self.draw.uniform(0, 0.3))
        process.kill()
        process.join()
        return process.exitcode == -signal.SIGKILL


def corruptions(lab: Lab) -> Attack:
    """Damages a file: what reads it must name it."""
    names = [*READ, CHECKPOINT]
    for number in range(100):
        name = names[number % len(names)]
        folder = lab.copy(lab.cut if name == CHECKPOINT else lab.done, "corrupted")
        content = bytearray((folder / name).read_bytes())
        for place in lab.draw.sample(range(len(content)), lab.draw.randint(1, 4)):
            content[place] ^= lab.draw.randrange(1, 256)
        (folder / name).write_bytes(content)
        said = ""
        if name == CHECKPOINT:
            _, _, said = lab.goat(*lab.train, str(folder))
        else:
            try:
                READ[name](Run(folder))
            except RunError as error:
                said = f"{error}\n"
        noticed = f"damaged ({name}: " in said or f"/{name} is not a checkpoint" in said
        yield "" if noticed and said.count("\n") == 1 else f"damage to {name} gave {said!r}"


def kills(lab: Lab) -> Attack:
    """Kills training at random moments: the next attempt must come to the same result."""
    count = 0
    while count < 60:
        folder = lab.place / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        for _ in range(5):
            if not lab.kill(folder):
                break
            count += 1
            yield ""
        code, _, said = lab.goat(*lab.train, str(folder))
        if code != 0 or outcome(folder) != lab.expected:
            yield f"training after kills ended with {code}, or another result: {said[-300:]!r}"


def hostile_folders(lab: Lab) -> Attack:
    """Folders of someone else: each is a line of ``goat runs``, and training in them writes nothing elsewhere."""
    runs, names = lab.place / "runs", [*READ, "digests.json", ".lock", "error.txt", CHECKPOINT]
    kinds = ("link", "loop", "pipe", "folder", "huge", "endless", "nested", "wrong")
    shutil.copytree(lab.done, runs / "valid")
    chosen = [(kind, name) for kind in kinds for name in names]
    chosen = [("link", "orderings"), ("link", "ordering-run"), *lab.draw.sample(chosen, 38)]
    for number, (kind, name) in enumerate(chosen):
        unfinished = name in (".lock", "error.txt", CHECKPOINT) or number % 2
        path = Path(shutil.copytree(lab.cut if unfinished else lab.done, runs / str(number))) / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        if kind in ("link", "loop", "endless"):
            path.symlink_to({"link": lab.outside / name, "loop": path, "endless": Path("/dev/zero")}[kind])
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.write_bytes((NESTED if kind == "nested" else WRONG).get(path.suffix, b"x" * 100_000))
            os.truncate(path, 1 << 40 if kind == "huge" else path.stat().st_size)
    code, out, said = lab.goat("runs", str(runs), "--format", "json")
    listed = {Path(row["folder"]).name: row["state"] for row in json.loads(out)} if code == 0 else {}
    for number, (kind, name) in enumerate(chosen):
        known = (kind, name) == ("folder", "config.toml") or str(number) in listed  # without a config it is no run
        if not known or listed.get("valid") != "done":
            yield f"goat runs did not list all folders with a {kind} as {name} ({code}): {said[-300:]!r}"
            continue
        code, _, said = lab.goat(*lab.train, str(runs / str(number)))
        changed = lab.contents() != lab.kept
        last = said.strip().rpartition("\n")[2]  # after notes and progress
        sentence = code == 0 or (code == 1 and last.startswith("goat: ") and "--debug" not in last)
        yield "" if sentence and not changed else f"training in a folder with a {kind} as {name} gave {code}: {said!r}"


def random_graphs(lab: Lab) -> Attack:
    """Values and gradients of a layer on a random graph, by every backend."""
    for number in range(200):
        torch.manual_seed(lab.draw.randrange(2**32))
        nodes, interpreted = lab.draw.randint(1, 40), number % 20 == 0 and not torch.cuda.is_available()
        edges = torch.randint(nodes, (2, lab.draw.randint(0, 5 * nodes)))
        edges[1, : lab.draw.randint(0, edges.size(1))] = 0  # a hub
        options = {
            "rnn": lab.draw.choice(["lstm", "gru", "rnn", "mingru", "minlstm"]),
            "bidirectional": lab.draw.random() < 0.5,
        }
        options |= {"heads": lab.draw.randint(1, 3), "scaling": lab.draw.choice(["softmax", "size"])}
        options["add_self_loops"] = lab.draw.random() < 0.5
        width = lab.draw.randint(1, 9)
        conv = GOATConv(4, width, backend="reference", **options).double()
        x = torch.randn(nodes, 4, dtype=torch.double)
        if lab.draw.random() < 0.3:
            x = x.round()  # ties
        expected = _results(conv, "reference", x, edges)
        wrong = []
        for backend in AVAILABLE:
            if backend != "triton" or torch.cuda.is_available() or interpreted:  # which takes a thousand times longer
                found = _results(conv, backend, x, edges)
                try:
                    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)  # gradients may cancel
                except AssertionError:
                    wrong.append(backend)
        yield f"{wrong} differ from the reference: {options}, {width}, {edges.tolist()}" if wrong else ""


def _results(conv: GOATConv, backend: str, x: torch.Tensor, edges: torch.Tensor) -> dict[str, torch.Tensor]:
    device = device_of(backend)
    conv.to(device).rnn.backend = backend
    x = x.to(device, copy=True).requires_grad_()
    found = with_gradients(conv, conv(x, edges.to(device)), x)
    return {name: value.cpu() for name, value in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="time limit")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    start, problems, counts = time.monotonic(), [], []
    with tempfile.TemporaryDirectory() as place:
        lab = Lab(Path(place), given.seed)
        for attack in (corruptions, kills, hostile_folders, random_graphs):
            name, count = attack.__name__.replace("_", " "), 0
            for problem in attack(lab):
                if time.monotonic() - start > given.seconds:
                    problems.append(f"{given.seconds:.0f} seconds were not enough for all {name}")
                    break
                count += 1
                if problem:
                    problems.append(problem)
                    print(f"{name}: {problem}", flush=True)
            counts.append(f"{count} {name}")
            print(f"{time.monotonic() - start:6.0f} s: {counts[-1]}, {len(problems)} problems so far", flush=True)
    print(f"{', '.join(counts)}: {f'{len(problems)} problems' if problems else 'no problem'}.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
