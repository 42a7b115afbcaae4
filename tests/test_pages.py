"""Pages that cite few numbers, and links between the pages and the repository."""

import pkgutil
import re

import pytest

from tests.pages import ROOT, check_numbers
from torch_goat.experiments.recipes import read_recipe

PAGES = sorted((ROOT / "docs").glob("*.md"))
# Pages whose numbers are checked in tests of their own.
ELSEWHERE = {"results", "training", "learned-order", "model-card", "performance", "minibatches", "report", "own-graph"}
VERSIONS = ["Python 3.11 to 3.13, PyTorch 2.6 or newer and PyG 2.6 or newer", "Before 1.0"]


@pytest.mark.parametrize("page", [path.stem for path in PAGES if path.stem not in ELSEWHERE])
def test_the_numbers_of_other_pages(page: str) -> None:
    _, training = read_recipe("table2").options("gat", "cora")
    model, _ = read_recipe("table2").options("goat-paper", "cora")
    claims = {
        "stability": VERSIONS,
        "information": [
            "the p-value is above 0.05",
            "with 4, at most 62.5 % of its predictions are correct",
        ],  # test_information_results
        "experiments": [f"learning rate {training.learning_rate}", f"dropout {model.dropout}"],
    }
    check_numbers(f"docs/{page}.md", claims.get(page, []))


def test_versions_are_those_of_the_package() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert all(text in project for text in ('">=3.11,<3.14"', '"torch>=2.6"', '"torch-geometric>=2.6"'))


def test_files_that_the_pages_name_exist() -> None:
    named = set()
    for page in (*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        named |= set(re.findall(r"\b(?:benchmarks|examples|torch_goat|tests|docs)/[\w./-]*\w", page.read_text()))
    assert len(named) > 20
    assert not {name for name in named if not (ROOT / name).exists()}


def test_the_new_addresses_of_the_changelog_exist() -> None:
    lines = [line.split(" | ") for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if " | " in line]
    names = [name for _, new in lines for name in re.findall(r"`(torch_goat[\w.]+)`", new)]
    assert len(names) > 30
    assert all(pkgutil.resolve_name(name) for name in names)


def test_no_file_names_a_package_registry() -> None:
    hosts = re.compile(r"(?:pypi|pythonhosted|anaconda)\.(?:org|com)")
    for path in ROOT.rglob("*"):
        hidden = [part for part in path.relative_to(ROOT).parts if part.startswith(".") and part != ".github"]
        if path.suffix in (".py", ".md", ".toml", ".txt", ".yml", ".yaml") and not hidden and "build" not in path.parts:
            assert not hosts.search(path.read_text(encoding="utf-8", errors="replace")), path
