"""Look at written pages in Debian's Chromium, as a reader would who opens them from disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
]
INSIST = "PAIRWRIGHT_REQUIRE_BROWSER"


@dataclass
class Watched:
    """Errors of a page."""

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def from_elsewhere(self) -> list[str]:
        return [url for url in self.requests if not url.startswith("file://")]


def require_chromium() -> None:
    """Skip without the browser, unless it must be there."""
    if not CHROMIUM.exists():
        if os.environ.get(INSIST) == "1":
            pytest.fail(f"{CHROMIUM} is missing and {INSIST}=1: apt-get install chromium")
        pytest.skip(f"{CHROMIUM} is missing (apt-get install chromium)")


@contextmanager
def open_chromium() -> Iterator:
    """Start the browser."""
    require_chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(browser, path: Path, **options) -> Iterator[tuple]:
    """Open a file; yield the page and what it does."""
    context = browser.new_context(**options)
    page, watched = context.new_page(), Watched()
    page.set_default_timeout(20_000)
    page.on("console", lambda message: watched.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: watched.complaints.append(str(error)))
    page.on("requestfailed", lambda request: watched.complaints.append(f"failed: {request.url}"))
    page.on("request", lambda request: watched.requests.append(request.url))
    try:
        page.goto(path.absolute().as_uri())
        yield page, watched
    finally:
        context.close()


def broken_images(page) -> list[str]:
    """Load every picture, also those further down, and return those that show nothing."""
    return page.evaluate("""async () => {
        const images = [...document.images];
        for (const image of images) image.loading = "eager";
        await Promise.all(images.map((image) => image.decode().catch(() => null)));
        return images.filter((image) => !image.complete || image.naturalWidth === 0).map((image) => image.src);
    }""")


def shown_in(frame) -> str:
    """Return the file that a reader sees in a frame."""
    return frame.evaluate("""(frame) => {
        const seen = getComputedStyle(frame.querySelector(".other")).opacity === "1" ? ".other" : ".own";
        return frame.querySelector(seen).src;
    }""")


def overflows(page) -> bool:
    """Return whether the page is wider than its window; a phone's window grows with its content."""
    width = page.evaluate("Math.max(document.documentElement.scrollWidth, window.innerWidth)")
    return width > page.viewport_size["width"]
