"""Make the documentation's pictures: the live card of the front page, and the README's sample.

    make demo && python docs/make_pictures.py demo    # needs playwright and Chromium, as tests do

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
NAMES = "turquoise sign"
"""Words of the chosen text of the preference that is shown."""
WIDTH = 1240
MARGIN = 20
SCRIPT = DOCS.parent / "tasks" / "report" / "report.js"
PICTURE = re.compile(r"data:image/png;base64,([\w+/=]{100000,})")


def encode_jpeg(match: re.Match[str]) -> str:
    """Return a page's PNG data URL as JPEG."""
    data = base64.b64decode(match[1])
    sink = io.BytesIO()
    Image.open(io.BytesIO(data)).convert("RGB").save(sink, "JPEG", quality=88)
    encoded = base64.b64encode(sink.getvalue()).decode()
    return f"data:image/jpeg;base64,{encoded}"


def write_card(dataset: str, path: Path) -> None:
    """Write the page of the preference that is shown."""
    preferences = pw.open(dataset)["preferences"]
    rows = preferences.rows(without=["images"])
    index = next(index for index, row in enumerate(rows) if NAMES in row.chosen)
    page = PICTURE.sub(encode_jpeg, preferences[index].show().page)
    page = page.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'")
    script = f"<script>\n{SCRIPT.read_text()}</script>\n"
    path.write_text(page.replace("</body>", f"{script}</body>"))


def photograph_card(card: Path, path: Path) -> None:
    """Write a picture of the card's preference."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        viewport = {"width": WIDTH, "height": 800}
        page = browser.new_page(viewport=viewport, device_scale_factor=1.25)
        page.goto(card.resolve().as_uri())
        box = page.locator(".split").first.bounding_box()
        assert box, "the card shows a preference"
        clip = {
            "x": box["x"] - MARGIN,
            "y": box["y"] - MARGIN,
            "width": box["width"] + 2 * MARGIN,
            "height": box["height"] + 2 * MARGIN,
        }
        page.screenshot(path=path, clip=clip, full_page=True)
        browser.close()


def main(dataset: str) -> None:
    """Write both."""
    card = DOCS / "card.html"
    write_card(dataset, card)
    photograph_card(card, DOCS / "sample.png")


if __name__ == "__main__":
    main(sys.argv[1])
