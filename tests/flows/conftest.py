"""Two real builds, small, for the tests of what is made of them; built once."""

import shutil
from pathlib import Path

import pytest

from tests.fixtures.build_once import build_once
from tests.fixtures.builds import build_here
from tests.fixtures.photographs import write_photographs
from tests.fixtures.prefect_server import prefect_server

SMALL = [
    "scenes.worlds=3",
    "scenes.width=96",
    "scenes.height=72",
    "scenes.samples_per_pixel=2",
    "run.workers=1",
]
WIDE = ["mining.min_best_similarity=0", "mining.min_similarity=0", "mining.max_similarity=1"]
"""Lets pairs of different worlds pass too, so that there are many."""


def build(out: Path, source: str | None, *, until: str = "", settings=()) -> Path:
    assert build_here(out, source, until=until, settings=settings).is_complete
    return out


def with_images_of(rendered: Path, out: Path) -> Path:
    """Begin a dataset that has the images of another, so that no scene is rendered again."""
    shutil.copytree(rendered / "tables/images", out / "tables/images")
    return out


@pytest.fixture(scope="session")
def rendered(tmp_path_factory):
    """Return a dataset of rendered scenes, the whole line."""

    def render(out):
        build(out, None, settings=[*SMALL, *WIDE])

    return build_once(tmp_path_factory, "demo", render)


@pytest.fixture
def copy(rendered, tmp_path):
    """Return a copy of it, which a test may change."""
    return Path(
        shutil.copytree(
            rendered, tmp_path / "demo", ignore=shutil.ignore_patterns("work", "report")
        )
    )


@pytest.fixture(scope="module")
def dataset(rendered, tmp_path_factory):
    """Return a copy of it, which the tests of a file may change."""
    return Path(shutil.copytree(rendered, tmp_path_factory.mktemp("copy") / "demo"))


@pytest.fixture(scope="session")
def mined(tmp_path_factory):
    """Return a dataset of photographs that stopped at mining."""

    def mine(folder):
        source = folder / "in"
        write_photographs(source)
        build(folder / "out", str(source), until="mining", settings=["run.workers=1"])

    return build_once(tmp_path_factory, "photographs", mine) / "out"


@pytest.fixture(scope="session")
def prefect(tmp_path_factory):
    """Return a running Prefect server on loopback."""
    with prefect_server(tmp_path_factory.mktemp("prefect")) as server:
        yield server
