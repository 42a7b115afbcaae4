"""Takes screenshots of a report for the documentation, in light and dark colours and on a phone.

    goat train examples/village/nodes.csv examples/village/edges.csv --target joins --minutes 0 \\
        --set epochs=60 --out runs
    goat report runs
    python docs/screenshots.py report.html --node H238

Writes ``report-light.png``, ``report-dark.png`` and ``report-phone.png`` into ``docs/images``; needs Chromium and the
extra ``browser``.
"""

import argparse
import shutil
import sys
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDE = {"width": 1080, "height": 1180}
# The browser context and the section shown, or the top of the page.
SHOTS = {
    "light": ({"viewport": WIDE, "color_scheme": "light"}, ""),
    "dark": ({"viewport": WIDE, "color_scheme": "dark"}, "viewer"),
    "phone": ({"viewport": {"width": 390, "height": 844}, "is_mobile": True, "device_scale_factor": 2}, ""),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--node", default="", help="the node to show")
    arguments = parser.parse_args()
    address = arguments.report.resolve().as_uri() + (f"#node={quote(arguments.node)}" if arguments.node else "")
    chromium = shutil.which("chromium") or sys.exit("Chromium is not installed; run make browser.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, (reader, section) in SHOTS.items():
            tab = browser.new_context(reduced_motion="reduce", **reader).new_page()
            tab.goto(address)
            tab.wait_for_selector("#viewer[data-ready]")
            scroll = "id => id ? document.getElementById(id).scrollIntoView({ behavior: 'instant' }) : scrollTo(0, 0)"
            tab.evaluate(scroll, section)
            file = IMAGES / f"report-{name}.png"
            tab.screenshot(path=file)
            Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
