"""Make the documentation's pictures from the demo: the live card of the front page, and the README's picture of it.

    make demo && python docs/make_pictures.py demo          # needs playwright and Chromium, as the tests do

Writes ``docs/card.html`` and ``docs/sample.png``.
"""

import base64
import io
import re
import sys
from pathlib import Path

from PIL import Image

import pairwright as pw

DOCS = Path(__file__).parent
BEGINS = "The words on the turquoise sign reading '96' have changed"
"""Chosen text of the preference that is shown."""
WIDTH, MARGIN = 1240, 20
SCRIPT = DOCS.parent / "tasks" / "report" / "report.js"
PICTURE = re.compile(r"data:image/png;base64,([\w+/=]{100000,})")


def as_jpeg(found: re.Match[str]) -> str:
    """Return a large picture of a page as JPEG."""
    sink = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGB").save(sink, "JPEG", quality=88)
    return f"data:image/jpeg;base64,{base64.b64encode(sink.getvalue()).decode()}"


def main(dataset: str) -> None:
    """Write both."""
    from playwright.sync_api import sync_playwright

    preferences = pw.open(dataset)["preferences"]
    places = (
        place
        for place, row in enumerate(preferences.rows(without=["images"]))
        if row.chosen.startswith(BEGINS)
    )
    card = DOCS / "card.html"
    page = PICTURE.sub(as_jpeg, preferences[next(places)].show().page)
    page = page.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'")
    card.write_text(page.replace("</body>", f"<script>\n{SCRIPT.read_text()}</script>\n</body>"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        shown = browser.new_page(viewport={"width": WIDTH, "height": 800}, device_scale_factor=1.25)
        shown.goto(card.resolve().as_uri())
        box = shown.locator(".split").first.bounding_box()
        assert box, "the card shows a preference"
        x, y, width, height = (box[name] for name in ("x", "y", "width", "height"))
        clip = {
            "x": x - MARGIN,
            "y": y - MARGIN,
            "width": width + 2 * MARGIN,
            "height": height + 2 * MARGIN,
        }
        shown.screenshot(path=DOCS / "sample.png", clip=clip, full_page=True)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
