"""What filters leave out: bounds, quotas and near-duplicates by hand, and all in real builds."""

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageFilter
from safetensors.numpy import save_file
from skimage import data

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.filters import FiltersConfig, HeadsConfig
from pairwright.schemas.rows import Dropped, EmbeddingRow, QualityRow
from pairwright.tasks.images.decode import encode_png
from pairwright.tasks.mining.admit_images import filter_images
from pairwright.tasks.mining.measure_images import measure_images, pin_heads
from pairwright.tasks.store.files import Folder
from tests.fixtures.graphs import image_row
from tests.fixtures.rows import row_of
from tests.fixtures.spaces import space_of
from tests.fixtures.tables import build

KEYS = [f"{number:032x}" for number in range(5)]
BLURRED = "blurred (filters.min_sharpness={})"
DUPLICATE = "near-duplicate (filters.max_similarity=0.98)"


def refused(
    keys, *, spaces=None, sharpness=(100.0,) * 5, aspect=(1.0,) * 5, groups=("",) * 5, **filters
):
    """Return what filters say of images, whose table is in no certain order."""
    columns = {"subject": KEYS, "name": KEYS, "group": list(groups)}
    measures = {"sharpness": sharpness, "dark": [0.0] * 5, "aspect": aspect}
    qualities = pa.table(columns | measures).take([3, 0, 4, 1, 2])
    config = FiltersConfig(**filters)
    return list(filter_images(keys, config, qualities=qualities, spaces=spaces or {}))


def test_a_reason_names_measure_bound_and_setting():
    measures = {"sharpness": [100.0, 49.0, 50.0, 10.0, 100.0], "aspect": [1.0, 1.0, 1.0, 9.0, 4.5]}
    assert refused(KEYS[1:], min_sharpness=50, max_aspect=4, **measures) == [
        (KEYS[1], BLURRED.format(50), "sharpness 49"),
        (KEYS[3], BLURRED.format(50), "sharpness 10"),
        (KEYS[4], "too long or too high (filters.max_aspect=4)", "aspect 4.5"),
    ]


SHARP = [1.0, 9.0, 9.0, 9.0, 9.0]


def test_a_group_leaves_its_first_images_of_those_that_pass():
    filters = {"min_sharpness": 5, "max_images_per_group": 2}
    rows = refused(KEYS, sharpness=SHARP, groups="aabaa", **filters)
    assert {key: detail for key, _, detail in rows} == {KEYS[0]: "sharpness 1", KEYS[4]: "a"}


def test_of_near_duplicates_the_one_of_the_lowest_key_that_passes_stays():
    near, far = (0.99, 0.141), (0.0, 1.0)
    spaces = {
        "first": space_of([(1, 0), near, near, (1, 0), far], KEYS),
        "second": space_of([(1, 0), near, far, near, far], KEYS),
    }
    rows = refused(KEYS, spaces=spaces, max_similarity=0.98)
    assert rows == [(KEYS[1], DUPLICATE, f"of {KEYS[0]}"), (KEYS[3], DUPLICATE, f"of {KEYS[0]}")]
    filters = {"min_sharpness": 5, "max_similarity": 0.98}
    rows = refused(KEYS[3:], spaces=spaces, sharpness=SHARP, **filters)
    assert rows == [(KEYS[3], DUPLICATE, f"of {KEYS[1]}")], "of no blurred one"


def test_a_copy_is_found_at_any_threshold_below_one():
    """Rounded to float16, this vector is 0.99982 long: its product with itself is below 0.9997."""
    space = space_of([(0.6, 0.8)] * 2 + [(0.8, 0.6)] * 3, KEYS)
    rows = refused(KEYS[:2], spaces={"first": space}, max_similarity=0.9999999)
    assert [(row.key, row.detail) for row in rows] == [(KEYS[1], f"of {KEYS[0]}")]


def drawn(key, pixels):
    height, width, _ = pixels.shape
    return image_row(key, width=width, height=height, image=encode_png(pixels))


def test_measures_of_drawn_images():
    """On a board each pixel's four neighbours are 4 * 255 above or below."""
    board = np.zeros((64, 128, 3), np.uint8)
    board[::2, ::2] = board[1::2, 1::2] = 255
    images = [drawn("a", board), drawn("b", np.zeros((32, 32, 3), np.uint8))]
    rows = list(measure_images(images, HeadsConfig()))
    assert [type(row) for row in rows] == [QualityRow] * 2
    measures = [(row.sharpness, row.dark, row.bright, row.aspect) for row in rows]
    assert measures == [(1020.0**2, 0.5, 0.5, 2.0), (0.0, 1.0, 0.0, 1.0)]


def write_head(path, metadata=None, **arrays):
    tensors = {name.replace("_", "."): np.float32(value) for name, value in arrays.items()}
    save_file(tensors, path, metadata)
    return str(path)


def test_heads_score_unit_vectors(tmp_path):
    """The deep head's second number is cut off by ReLU."""
    linear = write_head(tmp_path / "linear.safetensors", weight=[[2.0, 1.0]], bias=[3.0])
    first = {"0_weight": [[1.0, 0.0], [0.0, -1.0]], "0_bias": [0.0, 0.0]}
    second = {"10_weight": [[1.0, 5.0]], "10_bias": [0.0]}
    deep = write_head(tmp_path / "deep.safetensors", {"activation": "relu"}, **first, **second)
    config = pin_heads(HeadsConfig(aesthetic=linear, unsafe=deep))
    assert config.aesthetic_revision != config.unsafe_revision
    image = drawn("a", np.zeros((16, 16, 3), np.uint8))
    values = {"embedder": "clip", "vector": (0.6, 0.8), "norm": 7.0}
    vector = row_of(EmbeddingRow, "a", "clip", source="a", **values)
    (row,) = measure_images([image], config, vectors={"a": (vector,)})
    assert isinstance(row, QualityRow)
    assert row.aesthetic == pytest.approx(2 * 0.6 + 0.8 + 3, abs=1e-3)
    assert row.unsafe == pytest.approx(1 / (1 + np.exp(-0.6)), abs=1e-3)
    dropped = list(measure_images([image], config, vectors={}))
    assert dropped == [Dropped(source_key="a", reason="no vector")]


def test_a_file_that_is_no_head_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"filters\.heads\.unsafe: .*no such file"):
        pin_heads(HeadsConfig(unsafe=str(tmp_path / "none.safetensors")))
    wide = write_head(tmp_path / "wide.safetensors", weight=[[2.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ModelError, match=r"filters\.heads\.aesthetic: .*one output"):
        pin_heads(HeadsConfig(aesthetic=wide))
    (tmp_path / "bad.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ModelError, match=r"filters\.heads\.aesthetic: .*bad\.safetensors"):
        pin_heads(HeadsConfig(aesthetic=str(tmp_path / "bad.safetensors")))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("filters.max_unsafe=0.5", r"max_unsafe needs .*heads\.unsafe"),
        ("filters.heads.unsafe=/", r"filters\.heads .*put clip into embedding\.embedders"),
    ],
)
def test_settings_that_cannot_work_are_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        load_profile("scenes", [setting])


def test_a_build_leaves_out_what_its_filters_say(tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for name in ("astronaut", "coffee", "chelsea"):
        image = Image.fromarray(getattr(data, name)()).convert("RGB").resize((256, 192))
        image.save(source / f"{name}.png")
        image.save(source / f"{name}-copy.jpg", quality=90)
        image.filter(ImageFilter.GaussianBlur(12)).save(source / f"{name}-blurred.png")
    Image.new("RGB", (300, 40), "black").save(source / "long.png")

    def outcomes(*settings):
        counts, _ = build(source, out, "gates.min_yield={pairs: 0}", *settings)
        measured = Folder(str(out)).folders("tables/qualities")
        return dict(counts["admitted"].reasons) | {"ok": counts["admitted"].ok}, measured

    assert outcomes()[0] == {"ok": 10}
    reasons, measured = outcomes("filters.min_sharpness=20", "filters.max_similarity=0.98")
    assert reasons == {BLURRED.format(20): 4, DUPLICATE: 3, "ok": 3}
    reasons, again = outcomes("filters.max_aspect=5")
    assert reasons == {"too long or too high (filters.max_aspect=5)": 1, "ok": 9}
    assert again == measured, "another bound measures nothing again"
