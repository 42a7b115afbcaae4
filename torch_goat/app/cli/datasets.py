import shlex
from pathlib import Path
from typing import Annotated

import typer

from torch_goat.app.cli.console import Aligned, console, say
from torch_goat.app.cli.options import DataDir, Force, check_known, check_unused
from torch_goat.data import datasets as library
from torch_goat.data.datasets import DATASETS, Dataset
from torch_goat.data.datasets.cache import cache_folder
from torch_goat.data.datasets.dataset import Real
from torch_goat.data.datasets.raw import RawFile, data_folder, find
from torch_goat.data.tables import write_tables
from torch_goat.settings import SettingsError


def datasets(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="[NAME|export]", help="A dataset to show in detail, or export.")] = "",
    dataset: Annotated[str, typer.Argument(metavar="[NAME]", help="With export: the dataset.")] = "",
    folder: Annotated[Path | None, typer.Argument(metavar="[FOLDER]", help="With export: the output folder.")] = None,
    split: Annotated[str, typer.Option(help="With export: the split protocol; by default the dataset's own.")] = "",
    index: Annotated[int, typer.Option(help="With export: which graph or split, from 0.")] = 0,
    force: Force = False,
    data_dir: DataDir = None,
) -> None:
    """List the datasets, or show one: its size, its splits, and where its files are stored and downloaded from.

    With export, write a dataset as tables (nodes.csv, edges.csv and graph.toml) for goat train.

    Example: goat datasets cora; goat datasets export cora tables/cora
    """
    if name == "export":
        return _export(dataset, folder, split, index, force, data_dir)
    check_unused(context, f"goat datasets {name}".strip(), but=("data_dir",))
    if dataset:
        raise SettingsError(
            f"unexpected argument {dataset}; to write a dataset as tables: goat datasets export NAME FOLDER."
        )
    if not name:
        return _list(data_dir)
    check_known("dataset", name, DATASETS)
    return _show(DATASETS[name], data_dir)


def _export(dataset: str, folder: Path | None, split: str, index: int, force: bool, data_dir: DataDir) -> None:
    if not dataset or folder is None:
        raise SettingsError("name a dataset and a folder: goat datasets export NAME FOLDER.")
    data = library.load(dataset, split=split, index=index, data_dir=data_dir, normalized=False)
    write_tables(data, folder, force=force)
    say(f"{dataset} is in {folder}: nodes.csv, edges.csv, and graph.toml with the settings for reading them. Next:")
    say(f"  goat train {shlex.quote(str(folder))}")


def _list(data_dir: DataDir) -> None:
    rows = []
    for known in DATASETS.values():
        sizes = [known.nodes, known.edges, known.features]
        splits = ", ".join(f"{split} ({count})" for split, count in known.splits.items())
        rows.append(
            [known.name, known.task, *map(str, sizes), str(known.classes or ""), splits, _where(known, data_dir)]
        )
    columns = ["dataset", "task", "nodes", "edges", "features", "classes", "splits (count)", "data"]
    console().print(Aligned(columns, rows))


def _where(known: Dataset, data_dir: DataDir) -> str:
    if not isinstance(known, Real):
        return "generated"
    return "on disk" if known.available(data_dir) else "to download"


def _show(known: Dataset, data_dir: DataDir) -> None:
    out = console()
    facts = {
        "task": known.task,
        "metric": known.metric,
        "nodes": f"{known.nodes}",
        "edges": f"{known.edges}" + (f" ({known.edge_columns} columns of edge_index)" if known.edge_columns else ""),
        "features": f"{known.features}",
        "classes": f"{known.classes or '-'}",
        "data": _where(known, data_dir),
    }
    out.print(Aligned([known.name, ""], facts.items()))
    rows = []
    for name, split in known.protocols.items():
        default = "yes" if name == known.default_split else ""
        rows.append([name, str(split.count), *map(str, split.sizes), default])
    out.print(Aligned(["split", "count", "train", "val", "test", "default"], rows))
    if isinstance(known, Real):
        _show_files(known, data_dir)
    if known.note:
        say(known.note)


def _show_files(known: Real, data_dir: DataDir) -> None:
    folder = data_folder(data_dir)
    files: dict[str, RawFile] = {file.path: file for file in known.raw}
    for split in known.protocols.values():
        files |= {file.path: file for file in split.files}
    rows = [[path, "yes" if find(file, folder) else "no", file.url] for path, file in files.items()]
    console().print(Aligned(["file", "exists", "source"], rows))
    places = f"{folder or '--data-dir or TORCH_GOAT_DATA (not set)'}, then {cache_folder() / 'raw'}"
    say(f"Files are searched for in {places}; downloads are stored in the latter.")
