"""How long the search for neighbours takes is foreseen from a try."""

from pathlib import Path

import pytest

from pairwright.schemas.config import SearchConfig
from pairwright.tasks.models.time_search import seconds_per_image, widths_of
from pairwright.tasks.store.files import Folder


def test_it_grows_with_what_is_searched() -> None:
    config = SearchConfig(k=4, max_exact_images=100_000)
    few, many = (seconds_per_image(count, 8, config) for count in (1000, 100_000))
    assert 0 < few == pytest.approx(many / 100)
    # 1,000,000 images are in 4,096 cells, a sixteenth of which is probed: 4,096 centres and 62,500 images.
    assert seconds_per_image(1_000_000, 8, config) == pytest.approx(few / 1000 * (4096 + 62_500))


def test_the_widths_are_those_of_the_searched_vectors(mined_vectors: Path) -> None:
    tables = sorted((mined_vectors / "tables" / "embeddings").iterdir())
    widths = widths_of(Folder(str(mined_vectors)), f"tables/embeddings/{tables[0].name}")
    assert len(widths) == 2, "colour layout and gradients, not the perceptual hash"
    assert all(width > 16 for width in widths)
    assert widths_of(Folder(str(mined_vectors)), "tables/embeddings/none") == ()


@pytest.fixture
def mined_vectors(tmp_path: Path) -> Path:
    """Return a dataset of a few pictures, embedded."""
    from pairwright.flows.progress import LineWatcher
    from pairwright.flows.run_build import Work, make_request, run_build
    from pairwright.tasks.store.pool import Workers
    from tests.fixtures.photographs import write_photographs

    write_photographs(tmp_path / "in")
    request = make_request(
        str(tmp_path / "out"), str(tmp_path / "in"), profile="scenes", settings=["run.workers=1"], limit=3,
        until="embeddings",
    )  # fmt: skip
    with Workers(1) as workers:
        assert run_build(request, Work(run_shards=workers.run, watcher=LineWatcher())).is_complete
    return tmp_path / "out"
