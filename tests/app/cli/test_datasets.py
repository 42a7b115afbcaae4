from pathlib import Path

import pytest

from tests.app.cli.conftest import Goat
from torch_goat.data.datasets import DATASETS


def test_every_dataset_is_listed_with_its_sizes(goat: Goat) -> None:
    ended = goat("datasets")
    assert ended.code == 0
    rows = {line.split()[0]: line for line in ended.out.splitlines() if line.strip(" ─")}
    assert len({len(line) for line in ended.out.splitlines()}) == 1  # aligned
    for name, known in DATASETS.items():
        assert rows[name].split()[1:5] == [known.task, str(known.nodes), str(known.edges), str(known.features)]
        assert rows[name].rstrip().endswith("to download" if known.files else "generated")
        for split, count in known.splits.items():
            assert f"{split} ({count})" in rows[name]


def test_files_that_are_there_are_seen(goat: Goat, tmp_path: Path) -> None:
    for file in DATASETS["disease-nc"].files:
        (tmp_path / "data" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / file).touch()
    rows = {line.split()[0]: line for line in goat("datasets", "--data-dir", "data").out.splitlines() if line.strip()}
    assert rows["disease-nc"].rstrip().endswith("on disk")
    assert rows["disease-lp"].rstrip().endswith("to download")


def test_a_dataset_is_shown_with_its_files(goat: Goat, tmp_path: Path) -> None:
    (tmp_path / "data/LINQS/cora").mkdir(parents=True)
    (tmp_path / "data/LINQS/cora/cora.cites").touch()
    ended = goat("datasets", "cora-content", "--data-dir", "data")
    lines = {line.split()[0]: line.split()[1:] for line in ended.out.splitlines() if line.strip(" ─")}
    assert ended.code == 0
    assert lines["paper"] == ["1", "140", "300", "1000", "yes"]
    assert lines["LINQS/cora/cora.content"][0] == "no"
    assert lines["LINQS/cora/cora.cites"][0] == "yes"
    assert lines["LINQS/cora/cora.cites"][1].startswith("https://")
    assert f"Files are searched in data, then {tmp_path}/cache/raw" in ended.out
    assert DATASETS["cora-content"].note in ended.out


def test_a_generated_dataset_has_no_files(goat: Goat) -> None:
    ended = goat("datasets", "top2")
    assert ended.code == 0
    assert "generated" in ended.out
    assert "https://" not in ended.out


@pytest.mark.parametrize("name", [[], ["top2"]])
@pytest.mark.parametrize("option", [["--split", "paper"], ["--index", "0"], ["--force"]])
def test_options_of_an_export_are_refused_elsewhere(goat: Goat, name: list[str], option: list[str]) -> None:
    ended = goat("datasets", *name, *option)
    beside = " ".join(["goat datasets", *name])
    assert ended == (2, "", f"goat: {option[0]} cannot be combined with {beside}; leave it out.\n")


def test_an_unknown_dataset_is_refused(goat: Goat) -> None:
    ended = goat("datasets", "top-2")
    assert ended.code == 2
    assert ended.err == "goat: there is no dataset 'top-2'; did you mean 'top2'?\n"
