import sys
from pathlib import Path

import pytest

from torch_goat.experiments.information.charts import bar_chart, curves, stacked_bars

STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("ending", STARTS)
def test_a_bar_chart(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"chart{ending}"
    bar_chart(path, "title", {"synergy": (0.5, 0.4, 0.6), "total": (-0.01, -0.02, 0.0)}, {"gcn": 0.3})
    assert path.read_bytes().startswith(STARTS[ending])
    line = {"name": "gin", "x": [0, 1], "y": [0.5, 1.0], "spread": [0.1, 0.0]}
    curves(path, ["left"], "dial", ["bits"], [[line]], "of a file")
    assert path.read_bytes().startswith(STARTS[ending])


def test_the_names_are_in_the_chart(tmp_path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        bar_chart(tmp_path / "a.svg", "the title", {"synergy": (0.5, 0.4, 0.6)}, {"goat-lstm": 0.3})
        line = {"name": "gin", "x": [0, 1], "y": [0.5, 1.0], "spread": [0.1, 0.0]}
        curves(tmp_path / "b.svg", ["left", "right"], "dial", ["bits"], [[line], [line]], "of a file")
        stacked_bars(tmp_path / "c.svg", "parts", {"cora": {"redundancy": 0.2, "synergy": -0.1}})
    bars, lines, stack = ((tmp_path / f"{name}.svg").read_text() for name in "abc")
    for text in ("the title", "synergy", "goat-lstm", "bits", "captured by"):
        assert text in bars
    for text in ("left", "right", "dial", "bits", "gin", "of a file"):
        assert text in lines
    for text in ("parts", "cora", "redundancy", "synergy", "information about the label (bits)"):
        assert text in stack


def test_an_ending_that_is_no_format(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.png, \.svg or \.pdf"):
        bar_chart(tmp_path / "chart.gif", "title", {}, {})


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"a chart needs matplotlib: pip install 'torch-goat\[information\]'\."):
        bar_chart(tmp_path / "chart.png", "title", {}, {})
