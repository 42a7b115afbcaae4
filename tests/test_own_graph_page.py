"""The way of a new user: the commands of the page, and those that they print, exactly as they stand."""

import re
import shlex
import shutil
from pathlib import Path

from tests.cli.conftest import Goat
from tests.cli.conftest import goat as goat  # the fixture

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "own-graph.md").read_text()


def commands(text: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in text.splitlines() if line.strip().startswith("goat ")]


def test_the_commands_of_the_page_and_those_they_print_work(goat: Goat, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (train,), rest = (commands(block) for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL))
    trained = goat(*train)
    assert trained.code == 0, trained.err
    printed = commands(trained.out.split("Next:")[1])
    assert [command[0] for command in printed] == [command[0] for command in rest] == ["predict", "explain", "report"]
    for command in printed:
        ended = goat(*command)
        assert ended.code == 0, ended.err
    lines = Path("predictions.csv").read_text().splitlines()
    assert len(lines) == len((tmp_path / "examples/village/nodes.csv").read_text().splitlines())
    assert Path("report.html").read_text().lstrip().lower().startswith("<!doctype html>")
    for command in rest:
        ended = goat(*command, *(["--force"] if command[0] != "explain" else []))
        assert ended.code == 0, ended.err

    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(example, {})
    assert Path("village.pt2").exists()
