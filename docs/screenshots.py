"""Takes screenshots of a report for the documentation, in light and dark colours and on a phone.

    python docs/screenshots.py report.html

Writes ``report-light.png``, ``report-dark.png`` and ``report-phone.png`` into ``docs/images``; needs Chromium and the
extra ``browser``.
"""

import argparse
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDE = {"width": 1080, "height": 1180}
# The browser context and the section shown.
SHOTS = {
    "light": ({"viewport": WIDE, "color_scheme": "light"}, "data"),
    "dark": ({"viewport": WIDE, "color_scheme": "dark"}, "predictions"),
    "phone": ({"viewport": {"width": 390, "height": 844}, "is_mobile": True, "device_scale_factor": 2}, "heads"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    page = parser.parse_args().report.resolve()
    chromium = shutil.which("chromium") or sys.exit("Chromium is not installed; run make browser.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, (reader, section) in SHOTS.items():
            tab = browser.new_context(**reader).new_page()
            tab.goto(page.as_uri())
            tab.wait_for_selector("#viewer[data-ready]")
            if section != "data":
                tab.evaluate("id => document.getElementById(id).scrollIntoView({ behavior: 'instant' })", section)
            file = IMAGES / f"report-{name}.png"
            tab.screenshot(path=file)
            Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
