from pathlib import Path

from tests.app.conftest import Goat
from torch_goat.data.datasets import DATASETS


def test_every_dataset_is_listed_with_its_sizes(goat: Goat) -> None:
    ended = goat("datasets")
    rows = {line.split()[0]: line for line in ended.out.splitlines() if line.strip(" ─")}
    assert len({len(line) for line in ended.out.splitlines()}) == 1  # aligned
    for name, known in DATASETS.items():
        assert rows[name].split()[1:5] == [known.task, str(known.nodes), str(known.edges), str(known.features)]
        assert rows[name].rstrip().endswith("to download" if known.raw else "generated")
        for split, count in known.splits.items():
            assert f"{split} ({count})" in rows[name]


def test_files_that_are_there_are_seen(goat: Goat) -> None:
    for file in DATASETS["disease-nc"].raw:
        Path("data", file.path).parent.mkdir(parents=True, exist_ok=True)
        Path("data", file.path).touch()
    rows = {line.split()[0]: line for line in goat("datasets", "--data-dir", "data").out.splitlines() if line.strip()}
    assert rows["disease-nc"].rstrip().endswith("on disk")
    assert rows["disease-lp"].rstrip().endswith("to download")


def test_a_dataset_is_shown_with_its_files(goat: Goat, tmp_path: Path) -> None:
    Path("data/LINQS/cora").mkdir(parents=True)
    Path("data/LINQS/cora/cora.cites").touch()
    ended = goat("datasets", "cora-content", "--data-dir", "data")
    lines = {line.split()[0]: line.split()[1:] for line in ended.out.splitlines() if line.strip(" ─")}
    assert lines["paper"] == ["1", "140", "300", "1000", "yes"]
    assert lines["LINQS/cora/cora.content"][0] == "no"
    assert lines["LINQS/cora/cora.cites"][0] == "yes"
    assert lines["LINQS/cora/cora.cites"][1].startswith("https://")
    assert f"Files are searched for in data, then {tmp_path}/cache/raw" in ended.out
    assert DATASETS["cora-content"].note in ended.out
    generated = goat("datasets", "top2").out
    assert "generated" in generated
    assert "https://" not in generated
