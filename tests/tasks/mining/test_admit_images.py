"""Images near to an excluded set leave with the reason; the limits by hand-made vectors, the whole
by real builds."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from skimage import data

from pairwright.flows.building.make_request import Request, make_request, resume_request
from pairwright.flows.building.progress import LineWatcher
from pairwright.flows.building.run_build import run_build
from pairwright.flows.versions.version import open_present
from pairwright.schemas.config import ExcludeConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import AdmittedRow, Dropped, EmbeddingRow
from pairwright.tasks.mining.admit_images import NO_VECTOR, REASON, admit_images
from pairwright.tasks.store.executor import Outcome
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.pool import Workers
from pairwright.tasks.store.stage import Planned
from tests.fixtures.graphs import image_row
from tests.fixtures.rows import row_of
from tests.fixtures.tars import write_tar

SETTINGS = ["run.workers=1"]


def hashed(bits: int) -> NDArray[np.float16]:
    vector = np.full(64, 0.125, dtype=np.float16)
    vector[:bits] = -0.125
    return vector


def turned(cosine: float) -> NDArray[np.float16]:
    return np.array([cosine, np.sqrt(1 - cosine**2)], dtype=np.float16)


def row(image: str, embedder: str, vector: NDArray[np.float16]) -> EmbeddingRow:
    return row_of(
        EmbeddingRow,
        image,
        embedder,
        source=image,
        embedder=embedder,
        vector=tuple(vector.tolist()),
    )


@pytest.fixture
def references(tmp_path: Path) -> str:
    """Return the file of one excluded image, whose vectors are all (1, 0) and whose hash has no bit
    set."""
    columns = {
        "subject": ["r"] * 3,
        "embedder": ["gradients", "layout", "perceptual-hash"],
        "vector": pa.array([turned(1), turned(1), hashed(0)], pa.list_(pa.float16())),
        "name": ["benchmark/7.png"] * 3,
    }
    table = pa.table(columns)
    with pa.ipc.new_file(str(tmp_path / "references.arrow"), table.schema) as writer:
        writer.write_table(table)
    return f"{tmp_path}/references.arrow"


@pytest.mark.parametrize(
    ("bits", "cosines", "detail"),
    [
        (4, (0, 0), "benchmark/7.png: 4 bits of the perceptual hash differ"),
        (5, (0.97, 0.97), "benchmark/7.png: similarity 0.97"),
        (5, (0.97, 0.9), ""),
        (32, (0.95, 0.95), ""),
    ],
)
def test_limits(references: str, bits: int, cosines: tuple[float, float], detail: str) -> None:
    rows = [
        row("a", "gradients", turned(cosines[0])),
        row("a", "layout", turned(cosines[1])),
        row("a", "perceptual-hash", hashed(bits)),
    ]
    config = ExcludeConfig(max_hash_distance=4, min_similarity=0.96, files=(references,))
    found, missing = admit_images(
        [image_row("a"), image_row("b")], config, vectors={"a": tuple(rows), "b": ()}
    )
    assert missing == Dropped(source_key="b", reason=NO_VECTOR)
    if detail:
        assert isinstance(found, Dropped)
        assert (found.source_key, found.reason) == ("a", REASON)
        assert found.detail.startswith(detail)
    else:
        assert found == AdmittedRow(key="a", source_key="a", subject="a")


def counts_of(folder: Folder) -> dict[str, Counts]:
    return {count.stage: count for count in open_present(folder).counts()}


def requested(out: Path, source: Path, exclude: list[str], *settings: str) -> Request:
    words = {
        "profile": "scenes",
        "settings": [*SETTINGS, *settings],
        "limit": None,
        "until": "mining",
    }
    return make_request(str(out), str(source), **words, exclude=exclude)


def build(out: Path, source: Path, exclude: list[str], *settings: str) -> Folder:
    request = requested(out, source, exclude, *settings)
    with Workers(1) as workers:
        assert run_build(request, workers).is_complete
    return request.version.folder


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return a folder of ten photographs: five scenes, each also brighter."""
    (tmp_path / "in").mkdir()
    for name in ("astronaut", "coffee", "chelsea", "rocket", "retina"):
        image = Image.fromarray(getattr(data, name)()).convert("RGB").resize((256, 192))
        image.save(tmp_path / "in" / f"{name}-0.png")
        ImageEnhance.Brightness(image).enhance(1.2).save(
            tmp_path / "in" / f"{name}-1.jpg", quality=85
        )
    return tmp_path / "in"


def test_images_of_a_benchmark_are_kept_out_of_mining(pictures: Path, tmp_path: Path) -> None:
    benchmark = tmp_path / "benchmark"
    benchmark.mkdir()
    with Image.open(pictures / "coffee-0.png") as image:
        image.resize((200, 150)).save(benchmark / "test 1.jpg", quality=70)
    folder = build(tmp_path / "out", pictures, [str(benchmark)])
    counts = counts_of(folder)
    assert (counts["images"].ok, counts["embeddings"].ok) == (10, 10)
    assert (counts["admitted"].of, counts["admitted"].dropped, counts["admitted"].reasons) == (
        10,
        2,
        {REASON: 2},
    )
    assert (counts["neighbours"].of, counts["neighbours"].ok) == (8, 8)
    with open_present(folder).settled() as (opened, stages):
        admitted = next(planned for planned, _ in stages if planned.stage.name == "admitted")
        details = {detail for _, _, detail, _ in opened.refused(admitted)}
    assert all(detail.startswith("test 1.jpg: ") for detail in details)
    assert len(folder.folders("excluded")) == 1


class Interrupting(LineWatcher):
    """Interrupt the build at the first shard, which is the excluded set's."""

    def advance(self, planned: Planned, outcome: Outcome) -> None:
        raise KeyboardInterrupt


def test_a_build_that_ends_among_the_excluded_images_is_resumed(
    pictures: Path, tmp_path: Path
) -> None:
    request = requested(tmp_path / "out", pictures, [str(pictures)], "gates.min_yield={pairs: 0}")
    folder = request.version.folder
    with Workers(1, watcher=Interrupting()) as workers, pytest.raises(KeyboardInterrupt):
        run_build(request, workers)
    assert not folder.folders("tables/images")
    with Workers(1) as workers:
        resumed = resume_request(open_present(folder), stage="", reason="")
        assert run_build(resumed, workers).is_complete
    assert counts_of(folder)["admitted"].dropped == 10


def test_an_excluded_source_is_read_whole(pictures: Path, tmp_path: Path) -> None:
    members = [(path.name, path.read_bytes()) for path in sorted(pictures.iterdir())[:2]]
    shard = write_tar(tmp_path / "benchmark.tar", *members)
    folder = build(tmp_path / "out", pictures, [f"webdataset:{shard}"], "reading.splits=[train]")
    assert counts_of(folder)["admitted"].dropped == 2


def test_a_missing_benchmark_is_named(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere"):
        build(tmp_path / "out", pictures, [str(tmp_path / "nowhere")])
