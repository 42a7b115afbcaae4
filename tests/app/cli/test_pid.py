import re
from pathlib import Path

import pytest

from tests.app.conftest import Goat
from tests.data.tables.files import write_maximum
from torch_goat.experiments.information import labelled_graph

ROOT = Path(__file__).parents[3]


def test_xor_is_a_bit_of_synergy_and_a_model_captures_it(goat: Goat) -> None:
    out = goat("pid", "xor", "--models", "gin,sage-mean").out
    assert "synergy            1.000 bit" in out
    assert "synergy 1.0 bit of 1.0 bit" in out
    captured = {
        line.split()[0]: float(line.split()[1]) for line in out.splitlines() if line.strip().startswith(("gin", "sage"))
    }
    assert set(captured) == {"gin", "sage-mean"}
    assert captured["gin"] > 0.5  # a network on a sum counts, and parity is in the count
    assert Path("pid-xor.png").stat().st_size > 1000
    err = goat("pid", "xor", "--models", "none", code=2).err
    assert "pid-xor.png already exists" in err


def test_half_synergy_on_a_tree(goat: Goat) -> None:
    out = goat("pid", "synergy-50-tree", "--models", "none", "--chart", "a.svg").out
    assert "redundancy 0.5, synergy 0.5 bit of 1.0 bit" in out
    assert "captured" not in out
    assert Path("a.svg").exists()


def test_real_labels_are_binned_and_a_small_sample_is_said_to_be_small(goat: Goat) -> None:
    out = goat("pid", "betweenness-100", "--target-bins", "4", "--bins", "3", "--groups", "random").out
    assert "neighbours described by their degree" in out
    assert "Warning: the sample is small for its alphabet: 100 samples" in out
    assert "is not significant" in out  # degrees of neighbours say little of betweenness


def test_the_learned_order(goat: Goat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelled_graph, "ORDER_EPOCHS", 2)
    out = goat("pid", "top2", "--groups", "order", "--pool", "max", "--bins", "3").out
    assert "groups order" in out


def test_the_first_command_of_the_page(goat: Goat) -> None:
    (command,) = re.findall(r"```sh\ngoat pid (examples.*)\n```", (ROOT / "docs" / "information.md").read_text())
    Path("examples").symlink_to(ROOT / "examples")
    out = goat("pid", *command.split()).out
    assert "240 nodes, groups features" in out
    assert Path("pid-village-joins.png").exists()


@pytest.fixture
def tables(goat: Goat) -> list[str]:
    """Tables whose hubs join if one of two leaves is old and not both are; two hubs say nothing of it."""
    nodes, edges = ["id,age,joins"], ["source,target"]
    for number in range(80):
        first, second = number % 2, number // 2 % 2
        label = "" if number < 2 else "yes" if first != second else "no"
        nodes += [f"h{number},50,{label}", f"y{number},{10.5 + first},", f"o{number},{90.5 + second},"]
        edges += [f"h{number},y{number}", f"h{number},o{number}"]
    Path("nodes.csv").write_text("\n".join(nodes))
    Path("edges.csv").write_text("\n".join(edges))
    return ["nodes.csv", "edges.csv", "--target", "joins"]


def test_a_graph_of_ones_own(goat: Goat, tables: list[str]) -> None:
    out = goat("pid", *tables, "--bins", "4", "--chart", "a.png", "--models", "gin").out
    assert "240 nodes, 160 undirected edges" in out
    assert "162 nodes have no 'joins'" in out
    assert "78 nodes, groups features" in out  # those with a label
    assert "2 x 2 x 2 symbols" in out
    synergy = next(line.split() for line in out.splitlines() if line.split()[:1] == ["synergy"])
    assert float(synergy[1]) == pytest.approx(1, abs=0.1)
    assert "Captured by models on the test nodes" in out
    assert Path("a.png").stat().st_size > 1000


def test_each_target_and_each_kind_of_groups_has_a_chart_of_its_own(goat: Goat, tables: list[str]) -> None:
    Path("nodes.csv").write_text(Path("nodes.csv").read_text().replace("joins", "joins/left %"))
    for options in (["--target", "joins/left %"], ["--target", "age"], ["--target", "age", "--groups", "random"]):
        goat("pid", *tables[:2], *options, "--bins", "2")
    ends = ("-joins-left-.png", "-age.png", "-age-random.png")
    assert all(len(list(Path().glob(f"pid-*{end}"))) == 1 for end in ends)


def test_a_graph_whose_neighbours_tell_nothing(goat: Goat, tables: list[str]) -> None:
    Path("edges.csv").write_text("source,target\n")
    err = goat("pid", *tables, code=2).err
    assert "choose other groups or a graph with more edges." in err


@pytest.fixture
def maximum(goat: Goat, tmp_path: Path) -> list[str]:
    write_maximum(tmp_path)
    return ["nodes.csv", "edges.csv", "--target", "label", "--directed"]


def test_a_label_computed_from_the_largest_value_of_the_neighbours_is_found(goat: Goat, maximum: list[str]) -> None:
    out = goat("pid", *maximum, "--drop", "year").out
    assert "The most informative of these is the maximum of 'x' of the neighbours" in out
    bits = float(next(line.split()[3] for line in out.splitlines() if "maximum of x" in line))
    assert bits > 0.9  # of 1 bit
    assert "Not measured: combinations of several columns" in out


def test_pid_reads_tables_as_train_does(goat: Goat, maximum: list[str]) -> None:
    options = ["--edge-features", "--order-by", "w", "--time", "year", "--groups", "order", "--bins", "2"]
    Path("edges.csv").write_text(Path("edges.csv").read_text().replace(",w\n", ",w,copies\n").replace("\nn", ",1\nn"))
    Path("edges.csv").write_text(Path("edges.csv").read_text().replace("copies,1", "copies") + ",1")
    out = goat("pid", *maximum, *options, "--models", "gin", "--chart", "a.png").out
    assert "Split: time 'year' (training to 2, validation to 3, test from 4)" in out
    assert "GOAT reads neighbours in decreasing order of 'w'" in out
    assert "groups order" in out
    assert "Captured by models" in out
