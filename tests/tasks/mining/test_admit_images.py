"""Images near to an excluded set leave: the limits by vectors made by hand, all by real builds."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageEnhance
from skimage import data

import pairwright as pw
from pairwright.flows.building.make_request import make_request, resume_request
from pairwright.flows.building.progress import LineWatcher
from pairwright.flows.versions.version import open_present
from pairwright.schemas.config import ExcludeConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import AdmittedRow, Dropped, EmbeddingRow
from pairwright.tasks.mining.admit_images import NO_VECTOR, REASON, admit_images
from tests.fixtures.builds import run_request
from tests.fixtures.graphs import image_row
from tests.fixtures.rows import row_of
from tests.fixtures.spaces import hash_of
from tests.fixtures.tars import write_tar


def turned(cosine):
    return np.array([cosine, np.sqrt(1 - cosine**2)], dtype=np.float16)


def embedding(embedder, vector):
    values = {"embedder": embedder, "vector": tuple(vector.tolist())}
    return row_of(EmbeddingRow, "a", embedder, source="a", **values)


@pytest.fixture
def references(tmp_path):
    """Write the file of one excluded image: its vectors are all (1, 0), and no bit is set."""
    vectors = [turned(1), turned(1), hash_of(0)]
    columns = {
        "subject": ["r"] * 3,
        "embedder": ["gradients", "layout", "perceptual-hash"],
        "vector": pa.array(vectors, pa.list_(pa.float16())),
        "name": ["benchmark/7.png"] * 3,
    }
    table = pa.table(columns)
    with pa.ipc.new_file(str(tmp_path / "references.arrow"), table.schema) as writer:
        writer.write_table(table)
    return f"{tmp_path}/references.arrow"


def admit(references, bits, cosines):
    gradients, layout = map(turned, cosines)
    vectors = {"gradients": gradients, "layout": layout, "perceptual-hash": hash_of(bits)}
    config = ExcludeConfig(max_hash_distance=4, min_similarity=0.96, files=(references,))
    embeddings = {"a": tuple(embedding(*each) for each in vectors.items()), "b": ()}
    row, missing = admit_images([image_row("a"), image_row("b")], config, vectors=embeddings)
    assert missing == Dropped(source_key="b", reason=NO_VECTOR)
    return row


@pytest.mark.parametrize(
    ("bits", "cosines", "detail"),
    [
        (4, (0, 0), "benchmark/7.png: 4 bits of the perceptual hash differ"),
        (5, (0.97, 0.97), "benchmark/7.png: similarity 0.97"),
    ],
)
def test_what_is_near_in_all_spaces_or_by_its_hash_is_refused(references, bits, cosines, detail):
    row = admit(references, bits, cosines)
    assert isinstance(row, Dropped)
    assert (row.source_key, row.reason) == ("a", REASON)
    assert row.detail.startswith(detail)


@pytest.mark.parametrize(("bits", "cosines"), [(5, (0.97, 0.9)), (32, (0.95, 0.95))])
def test_what_is_far_in_one_space_is_admitted(references, bits, cosines):
    row = admit(references, bits, cosines)
    assert row == AdmittedRow(key="a", source_key="a", subject="a")


def counts_of(folder):
    return {count.stage: count for count in open_present(folder).stage_counts()}


def request_of(out, source, exclude, *settings):
    settings = ["run.workers=1", *settings]
    how = {"profile": "scenes", "limit": None, "until": "mining"}
    return make_request(str(out), [str(source)], settings=settings, exclude=[str(exclude)], **how)


def build(*words):
    request = request_of(*words)
    assert run_request(request).is_complete
    return request.version.folder


SCENES = ("astronaut", "coffee", "chelsea", "rocket", "retina")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Return a folder of ten photographs: five scenes, each also brighter."""
    folder = tmp_path_factory.mktemp("in")
    for name in SCENES:
        image = Image.fromarray(getattr(data, name)()).convert("RGB").resize((256, 192))
        image.save(folder / f"{name}-0.png")
        ImageEnhance.Brightness(image).enhance(1.2).save(folder / f"{name}-1.jpg", quality=85)
    return folder


def test_images_of_a_benchmark_are_kept_out_of_mining(pictures, tmp_path):
    (tmp_path / "benchmark").mkdir()
    with Image.open(pictures / "coffee-0.png") as image:
        image.resize((200, 150)).save(tmp_path / "benchmark/test 1.jpg", quality=70)
    folder = build(tmp_path / "out", pictures, tmp_path / "benchmark")
    counts = counts_of(folder)
    assert (counts["images"].ok, counts["embeddings"].ok) == (10, 10)
    admitted = counts["admitted"]
    assert (admitted.of, admitted.dropped, admitted.reasons) == (10, 2, {REASON: 2})
    assert (counts["neighbours"].of, counts["neighbours"].ok) == (8, 8)
    with open_present(folder).resolved() as (ledger, stages):
        planned = next(planned for planned, _ in stages if planned.stage.name == "admitted")
        details = {detail for _, _, detail, _ in ledger.refused(planned)}
    assert all(detail.startswith("test 1.jpg: ") for detail in details)
    assert len(folder.folders("excluded")) == 1


class Interrupting(LineWatcher):
    """Interrupt the build at the first shard, which is the excluded set's."""

    def finish_shard(self, planned, outcome):
        raise KeyboardInterrupt


def test_a_build_that_ends_among_the_excluded_images_is_resumed(pictures, tmp_path):
    request = request_of(tmp_path / "out", pictures, pictures, "gates.min_yield={pairs: 0}")
    folder = request.version.folder
    with pytest.raises(KeyboardInterrupt):
        run_request(request, watcher=Interrupting())
    assert not folder.folders("tables/images")
    resumed = resume_request(open_present(folder), stage="", reason="")
    assert run_request(resumed).is_complete
    assert counts_of(folder)["admitted"].dropped == 10


def test_an_excluded_source_is_read_whole(pictures, tmp_path):
    members = [(path.name, path.read_bytes()) for path in sorted(pictures.iterdir())[:2]]
    shard = write_tar(tmp_path / "benchmark.tar", *members)
    exclude = f"webdataset:{shard}"
    folder = build(tmp_path / "out", pictures, exclude, "reading.splits=[train]")
    assert counts_of(folder)["admitted"].dropped == 2


def test_a_missing_benchmark_is_named(pictures, tmp_path):
    with pytest.raises(SourceError, match="nowhere"):
        build(tmp_path / "out", pictures, tmp_path / "nowhere")


def test_a_removed_image_is_erased_from_the_excluded_set_too(pictures, tmp_path):
    benchmark = tmp_path / "benchmark"
    benchmark.mkdir()
    victim = shutil.copy(pictures / "coffee-0.png", benchmark)
    shutil.copy(pictures / "rocket-0.png", benchmark)
    folder = build(tmp_path / "out", pictures, benchmark)
    out = pw.open(folder.url)
    key = next(row.key for row in out["images"].rows() if row.name == "coffee-0.png")
    out.remove([key])
    out.gc()
    secret = Path(victim).read_bytes()
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not [path for path in files if secret in path.read_bytes()]
    tables = sorted((tmp_path / "out/tables").glob("*/*"))
    assert pw.open(folder.url).resume().is_complete
    assert sorted((tmp_path / "out/tables").glob("*/*")) == tables, "nothing is made again"
    assert counts_of(folder)["admitted"].reasons == {REASON: 3}, "rows that stay are as before"
