"""A folder with the tables of a graph and, in ``graph.toml``, how to read them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torch_goat import settings
from torch_goat.data.tables.options import Tables, Task
from torch_goat.data.tables.source import TableError
from torch_goat.files import write_atomic
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

GRAPH: Final = "graph.toml"
_SUFFIXES: Final = (".csv", ".tsv", ".txt", ".parquet")


def find_tables(nodes: str, edges: str = "") -> dict[str, Any]:
    """The files of a graph, or of a folder, and the settings of its ``graph.toml``, as values for :class:`Tables`."""
    folder = Path(nodes)
    if not folder.is_dir():
        return {"nodes": nodes, "edges": edges}
    if edges:
        raise TableError(f"{nodes} is a folder that contains the edges; leave out {edges}.")
    values: dict[str, Any] = {}
    if (folder / GRAPH).is_file():
        values = settings.to_table(settings.read(Tables, folder / GRAPH))
        files = [values["nodes"], values["edges"]]
        if any(Path(file).name != file for file in files if file):
            raise TableError(f"{folder / GRAPH}: nodes and edges must be names of files in the folder, got {files}.")
    else:
        files = [_find(folder, name) for name in ("nodes", "edges")]
    found = [str(folder / file) if file else "" for file in files]
    return values | {"nodes": found[0], "edges": found[1]}


def _find(folder: Path, name: str) -> str:
    for suffix in _SUFFIXES:
        if (folder / f"{name}{suffix}").is_file():
            return f"{name}{suffix}"
    raise TableError(f"{folder} has no {name}.csv; name the two files, or a folder that goat datasets export wrote.")


def write_tables(data: "Data", folder: Path, *, force: bool = False) -> None:
    """Writes a graph with masks as ``nodes.csv``, ``edges.csv`` and ``graph.toml``.

    Args:
        data: The graph, with ``x``, ``y``, ``edge_index`` and masks.
        folder: The folder, created if necessary.
        force: Whether to overwrite existing files.
    """
    import pandas as pd
    from torch_geometric.utils import contains_self_loops, is_undirected

    task: Task = "regression" if data.y.is_floating_point() else "classification"
    undirected = not contains_self_loops(data.edge_index) and is_undirected(data.edge_index)
    tables = Tables(
        nodes="nodes.csv", edges="edges.csv", target="label", task=task, directed=not undirected, split_column="split"
    )
    for path in (folder / tables.nodes, folder / tables.edges, folder / GRAPH):
        if path.exists() and not force:
            raise SettingsError(f"{path} already exists; choose another folder or overwrite it with --force.")
    nodes = pd.DataFrame(_plain(data.x).numpy(), columns=[f"x{number}" for number in range(data.x.size(1))])
    nodes.insert(0, "id", range(data.num_nodes))
    nodes["label"] = _plain(data.y.view(data.num_nodes)).numpy()
    if task == "classification":
        nodes["label"] = nodes["label"].astype("Int64").mask(nodes["label"] < 0)  # empty: unknown
    split = pd.Series("", index=nodes.index)
    for part in ("train", "val", "test"):
        split[data[f"{part}_mask"].numpy()] = part
    nodes["split"] = split
    source, target = data.edge_index
    if undirected:
        source, target = data.edge_index[:, source < target]
    edges = pd.DataFrame({"source": source.numpy(), "target": target.numpy()})
    for name, frame in ((tables.nodes, nodes), (tables.edges, edges)):
        write_atomic(folder / name, frame.to_csv(index=False, lineterminator="\n"))
    write_atomic(folder / GRAPH, settings.dumps(tables))


def _plain(values: "Tensor") -> "Tensor":
    """Whole numbers without a decimal point."""
    return values.long() if bool((values == values.round()).all()) else values
