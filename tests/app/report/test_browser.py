"""The report in headless Chromium, opened from the file system."""

import json
import shutil
from collections.abc import Iterator
from math import comb
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch

from tests.app.report.test_report import HOSTILE, hostile_tables
from tests.small_runs import small
from torch_goat.app.report import report
from torch_goat.experiments import NamedGraph, Run

pytestmark = pytest.mark.browser
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
HUB = 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed; make browser does")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed; make browser does where apt may")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


def hub_and_names(self: Run, data_dir: object = None) -> NamedGraph:
    """Node 0 has 3,000 more neighbours; names and classes are hostile."""
    data = small("top2", index=self.experiment.index)
    more = torch.arange(60, 3060)
    data.edge_index = torch.cat([data.edge_index, torch.stack([more, torch.full_like(more, HUB)])], dim=1)
    data.x = torch.cat([data.x, torch.randn(3000, 1, generator=torch.Generator().manual_seed(0))])
    data.y = torch.cat([data.y, torch.zeros(3000, dtype=torch.long)])
    for split in ("train", "val", "test"):
        data[f"{split}_mask"] = torch.cat([data[f"{split}_mask"], torch.zeros(3000, dtype=torch.bool)])
    names = (f"{HOSTILE} {node}" if node < 60 else f"leaf {node}" for node in range(3060))
    return NamedGraph(data, tuple(names), (HOSTILE, "$\\frac{"))


@pytest.fixture(scope="module")
def pages(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages on two seeds, without an order, on two models, on hostile tables, and with hostile names and a hub."""
    folder, compared = tmp_path_factory.mktemp("pages"), runs / "compared"
    (folder / "plain.html").write_text(report(compared / "goat", nodes=["3", "7"]))
    (folder / "gcn.html").write_text(report(compared / "gcn", nodes=["7"]))
    (folder / "compared.html").write_text(report(compared))
    (folder / "tables.html").write_text(report(hostile_tables(folder)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "graph", hub_and_names)
        (folder / "hostile.html").write_text(report(compared / "goat/0", nodes=[f"{HOSTILE} 7"]))
    return folder


@pytest.fixture
def open_page(browser: Any, pages: Path) -> Iterator[Any]:
    """Opens pages; fails if there was an error, a dialog or a request for anything but the page."""
    troubles: list[str] = []
    contexts = []

    def opened(name: str, **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        address = (pages / name).as_uri()
        page.on("request", lambda one: one.url.partition("#")[0] != address and troubles.append(f"request: {one.url}"))
        page.goto(address)
        page.wait_for_selector("#viewer[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


def neighbors(page: Any) -> list[str]:
    """The names in the table of the viewer, in order."""
    names = page.locator("#neighbors tbody tr td:nth-child(2)").all_inner_texts()
    return [name.removesuffix(" (the node itself)") for name in names]


def search(page: Any, text: str) -> None:
    page.fill("#search", text)
    page.press("#search", "Enter")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_an_error(open_page: Any, scheme: str) -> None:
    page = open_page("plain.html", color_scheme=scheme)
    assert page.locator("figure svg").count() == 8
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}[scheme]
    axis = page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
    assert axis != background


def test_search_and_head_switch(open_page: Any, runs: Path) -> None:
    page = open_page("plain.html")
    best = page.locator("h2", has_text="Predictions of").inner_text().partition("seed ")[2][0]
    data = small("top2")
    _, orderings = Run(runs / f"compared/goat/{best}").network(data.x, data.edge_index, return_orderings=True)
    heads = [(ordering, head) for ordering in orderings for head in range(ordering.heads)]
    for node in (11, 30):
        search(page, str(node))
        assert page.inner_text("#node-name") == f"Node {node}"
        for number, (ordering, head) in enumerate(heads):
            page.locator("#heads input").nth(number).check()
            assert neighbors(page) == [str(one) for one in ordering.neighbors(node, head).tolist()]
            weights = [float(text) for text in page.locator("#neighbors td.weight").all_inner_texts()]
            assert weights == pytest.approx(ordering.weights(node, head).tolist(), abs=0.01)


def test_numbers_equal_the_result(open_page: Any, runs: Path) -> None:
    page = open_page("gcn.html")
    result = json.loads((runs / "compared/gcn/result.json").read_text())
    rows = page.locator("#predictions tbody tr").all()
    for row, values in zip(rows, result["metrics"].values(), strict=True):
        shown = [float(text) for text in row.locator("td").all_inner_texts()]
        assert shown == pytest.approx([100 * value for value in values.values()], abs=0.051)
    cost = page.locator("#cost tbody tr").first.locator("td").all_inner_texts()
    assert float(cost[1]) == result["epochs"]
    assert float(cost[2]) == pytest.approx(result["seconds"], abs=0.051)
    assert float(cost[4].replace(",", "")) == pytest.approx(result["peak_memory_bytes"] / 2**20, abs=0.51)


def test_contributions_are_shown_for_chosen_nodes_alone(open_page: Any) -> None:
    page = open_page("plain.html")
    search(page, "7")
    assert page.locator("#neighbors td.effect").count() == len(neighbors(page))
    assert "contribution (log-odds)" in page.inner_text("#neighbors thead")
    search(page, "11")
    assert page.locator("#neighbors td.effect").count() == 0
    assert "not computed for this node" in page.inner_text("#shown")
    page.locator("#explained a", has_text="3").first.click()
    page.wait_for_function("name => document.getElementById('node-name').textContent === name", arg="Node 3")
    assert page.url.endswith("#node=3")


@pytest.mark.parametrize(("name", "text"), [("hostile.html", f"{HOSTILE} 11"), ("plain.html", "11")])
def test_the_address_of_a_node_opens_it(open_page: Any, name: str, text: str) -> None:
    page = open_page(name)
    page.evaluate("address => { location.hash = address; }", f"#node={quote(text)}")
    page.wait_for_function("name => document.getElementById('node-name').textContent === name", arg=f"Node {text}")
    page.reload()
    page.wait_for_selector("#viewer[data-ready]")
    assert page.inner_text("#node-name") == f"Node {text}"
    page.locator("#neighbors a").first.click()
    page.wait_for_function("name => document.getElementById('node-name').textContent !== name", arg=f"Node {text}")
    page.go_back()
    page.wait_for_function("name => document.getElementById('node-name').textContent === name", arg=f"Node {text}")
    page.evaluate("() => { location.hash = '#node=%'; }")  # not an address: nothing changes
    assert page.inner_text("#node-name") == f"Node {text}"


def test_the_drawing_has_the_order_the_contributions_and_the_interactions(open_page: Any) -> None:
    page = open_page("plain.html")
    search(page, "7")
    drawn = neighbors(page)[:16]
    assert page.locator("#drawing svg text:not(.place):not(.value)").all_text_contents() == drawn
    effects = [text for text in page.locator("#neighbors td.effect").all_inner_texts()[:16] if text]
    assert page.locator("#drawing svg .value").all_text_contents() == effects
    assert page.locator("#drawing .synergy, #drawing .redundancy").count() == min(10, comb(len(effects), 2))
    assert "Arcs: interactions" in page.inner_text("#drawing-caption")
    search(page, "11")
    assert page.locator("#drawing .synergy, #drawing .redundancy, #drawing .value").count() == 0


def test_all_heads_are_shown_at_a_glance(open_page: Any) -> None:
    """The position of a neighbour in the column of a head is the one in the list of that head."""
    page = open_page("plain.html")
    search(page, "11")
    rows = [
        row.split() for row in page.locator("#glance tbody tr").evaluate_all("all => all.map(one => one.innerText)")
    ]
    for number in range(page.locator("#heads input").count()):
        page.locator("#heads input").nth(number).check()
        listed = neighbors(page)
        assert [listed[int(row[1 + number]) - 1] for row in rows] == [row[0] for row in rows]


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_the_verdict_is_visible_without_scrolling(open_page: Any, width: int, height: int) -> None:
    page = open_page("compared.html", viewport={"width": width, "height": height})
    for part in ("h1", "#verdict", "#recommendation"):
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= height
        assert box["x"] + box["width"] <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["compared.html", "gcn.html", "hostile.html"])
def test_axe_finds_no_serious_issue(open_page: Any, name: str, scheme: str) -> None:
    axe = Path(__file__).parents[3] / "node_modules/axe-core/axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed; make browser does where npm may")
    page = open_page(name, color_scheme=scheme)
    page.evaluate(axe.read_text())
    found = page.evaluate("axe.run()")["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in serious] == []


def test_without_goat_layers_there_is_no_order_to_switch(open_page: Any) -> None:
    page = open_page("gcn.html")
    search(page, "7")
    data = small("top2")
    assert neighbors(page) == [str(one) for one in sorted(data.edge_index[0, data.edge_index[1] == 7].tolist())]
    assert not page.locator("#heads").is_visible()
    assert "no GOAT layer" in page.inner_text("#shown")


def test_hostile_names_are_text_and_a_hub_shows_its_first_200_neighbours(open_page: Any) -> None:
    page = open_page("hostile.html")
    assert page.inner_text("#node-name") == f"Node {HOSTILE} 7"
    assert all(name.startswith(HOSTILE) for name in neighbors(page))
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert HOSTILE[:20] in page.inner_text("#chart-confusion")
    search(page, "<script>alert(2)</script> 11")
    assert page.inner_text("#node-name") == f"Node {HOSTILE} 11"
    search(page, f"{HOSTILE} {HUB}")
    assert len(neighbors(page)) == 200
    text = page.inner_text("#shown")
    assert "the first 200 are shown" in text
    assert "3,0" in text


def test_values_of_hostile_columns_are_text(open_page: Any) -> None:
    page = open_page("tables.html")
    assert page.locator("img").count() == 0
    assert HOSTILE in page.inner_text("h1")
    shown = page.locator("#neighbors td.values").first.inner_text()
    assert f"{HOSTILE} craft {HOSTILE}" in shown
    assert f"{HOSTILE} land" in page.inner_text("#facts")


def test_everything_works_by_keyboard(open_page: Any) -> None:
    page = open_page("plain.html")
    page.focus("#search")
    page.keyboard.type("1")
    assert page.get_attribute("#search", "aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    second = page.locator("#matches [aria-selected=true]").inner_text()
    page.keyboard.press("Enter")
    assert page.inner_text("#node-name") == f"Node {second}"
    assert page.locator("#matches").is_hidden()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "head"
    before = neighbors(page)
    page.keyboard.press("ArrowRight")
    assert page.locator("#heads input").nth(1).is_checked()
    assert sorted(neighbors(page)) == sorted(before)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "2 nodes with contributions"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "A"
    page.keyboard.press("Enter")
    # The page follows the address of the link in a later event.
    page.wait_for_function("name => document.getElementById('node-name').textContent === name", arg="Node 3")
    page.focus("#search")
    page.keyboard.type("nobody")
    assert "no such node" in page.inner_text("#matches")
    page.keyboard.press("Escape")
    assert page.locator("#matches").is_hidden()


@pytest.mark.parametrize("name", ["plain.html", "hostile.html"])
def test_nothing_is_wider_than_a_phone(open_page: Any, name: str) -> None:
    page = open_page(name, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#neighbors a").first.tap()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_in_print_it_is_light_and_without_controls(open_page: Any) -> None:
    page = open_page("plain.html", color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#search").is_visible()
    assert page.locator("#neighbors").is_visible()
