"""What filters leave out: bounds, quotas and near-duplicates on rows made by hand, and all of them
in real builds."""

from pathlib import Path

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
from pairwright.tasks.store.vectors import Vectors
from tests.fixtures.graphs import image_row
from tests.fixtures.rows import row_of
from tests.fixtures.tables import build

KEYS = [f"{number:032x}" for number in range(5)]


def qualities(**columns: list[float] | list[str]) -> pa.Table:
    usual = {"name": KEYS, "group": [""] * 5} | {
        "sharpness": [100.0] * 5,
        "dark": [0.0] * 5,
        "aspect": [1.0] * 5,
    }
    return pa.table({"subject": KEYS, **usual, **columns}).take(
        [3, 0, 4, 1, 2]
    )  # in no certain order


def space(*vectors: tuple[float, float]) -> Vectors:
    norms = np.ones(len(vectors), np.float32)
    return Vectors(np.array(KEYS, dtype="S32"), np.array(vectors, dtype=np.float16), norms)


def test_a_reason_names_measure_bound_and_setting() -> None:
    table = qualities(sharpness=[100.0, 49.0, 50.0, 10.0, 100.0], aspect=[1.0, 1.0, 1.0, 9.0, 4.5])
    config = FiltersConfig(min_sharpness=50, max_aspect=4)
    assert list(filter_images(KEYS[1:], config, qualities=table, spaces={})) == [
        (KEYS[1], "blurred (filters.min_sharpness=50)", "sharpness 49"),
        (KEYS[3], "blurred (filters.min_sharpness=50)", "sharpness 10"),
        (KEYS[4], "too long or too high (filters.max_aspect=4)", "aspect 4.5"),
    ]


def test_a_group_leaves_its_first_images_of_those_that_pass() -> None:
    table = qualities(sharpness=[1.0, 9.0, 9.0, 9.0, 9.0], group=["a", "a", "b", "a", "a"])
    found = filter_images(
        KEYS, FiltersConfig(min_sharpness=5, max_images_per_group=2), qualities=table, spaces={}
    )
    assert {key: detail for key, _, detail in found} == {KEYS[0]: "sharpness 1", KEYS[4]: "a"}


def test_of_near_duplicates_the_one_of_the_lowest_key_that_passes_stays() -> None:
    near, far = (0.99, 0.141), (0.0, 1.0)
    spaces = {
        "one": space((1, 0), near, near, (1, 0), far),
        "two": space((1, 0), near, far, near, far),
    }
    bound = FiltersConfig(max_similarity=0.98)
    found = list(filter_images(KEYS, bound, qualities=qualities(), spaces=spaces))
    reason = "near-duplicate (filters.max_similarity=0.98)"
    assert found == [(KEYS[1], reason, f"of {KEYS[0]}"), (KEYS[3], reason, f"of {KEYS[0]}")]
    blurred = qualities(
        sharpness=[1.0, 9.0, 9.0, 9.0, 9.0]
    )  # the blurred one takes no sharp one with it
    found = list(
        filter_images(
            KEYS[3:],
            FiltersConfig(min_sharpness=5, max_similarity=0.98),
            qualities=blurred,
            spaces=spaces,
        )
    )
    assert found == [(KEYS[3], reason, f"of {KEYS[1]}")]


def test_measures_of_drawn_images() -> None:
    board = np.zeros((64, 128, 3), np.uint8)
    board[::2, ::2] = board[1::2, 1::2] = 255
    black = np.zeros((32, 32, 3), np.uint8)
    rows = [
        image_row("a", width=128, height=64, image=encode_png(board)),
        image_row("b", width=32, height=32, image=encode_png(black)),
    ]
    first, second = measure_images(rows, HeadsConfig())
    assert isinstance(first, QualityRow)
    assert isinstance(second, QualityRow)
    # each pixel's four neighbours have the other value: 4 * 255 above or below, and so its square
    assert (first.sharpness, first.dark, first.bright, first.aspect) == (1020.0**2, 0.5, 0.5, 2.0)
    assert (second.sharpness, second.dark, second.bright, second.aspect) == (0.0, 1.0, 0.0, 1.0)


def head_of(
    path: Path, metadata: dict[str, str] | None = None, **arrays: list[list[float]] | list[float]
) -> str:
    save_file(
        {name.replace("_", "."): np.array(value, np.float32) for name, value in arrays.items()},
        path,
        metadata,
    )
    return str(path)


def test_heads_score_unit_vectors(tmp_path: Path) -> None:
    linear = head_of(tmp_path / "linear.safetensors", weight=[[2.0, 1.0]], bias=[3.0])
    layers = {
        "0_weight": [[1.0, 0.0], [0.0, -1.0]],
        "0_bias": [0.0, 0.0],
        "10_weight": [[1.0, 5.0]],
        "10_bias": [0.0],
    }
    deep = head_of(tmp_path / "deep.safetensors", {"activation": "relu"}, **layers)
    config = pin_heads(HeadsConfig(aesthetic=linear, unsafe=deep))
    assert config.aesthetic_revision != config.unsafe_revision
    row = image_row("a", width=16, height=16, image=encode_png(np.zeros((16, 16, 3), np.uint8)))
    vector = row_of(
        EmbeddingRow, "a", "clip", source="a", embedder="clip", vector=(0.6, 0.8), norm=7.0
    )
    (found,) = measure_images([row], config, vectors={"a": (vector,)})
    assert isinstance(found, QualityRow)
    assert found.aesthetic == pytest.approx(2 * 0.6 + 0.8 + 3, abs=1e-3)
    assert found.unsafe == pytest.approx(
        1 / (1 + np.exp(-0.6)), abs=1e-3
    )  # the second number is cut off by ReLU
    assert list(measure_images([row], config, vectors={})) == [
        Dropped(source_key="a", reason="no vector")
    ]


def test_a_file_that_is_no_head_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"filters\.heads\.unsafe: .*no such file"):
        pin_heads(HeadsConfig(unsafe=str(tmp_path / "none.safetensors")))
    wide = head_of(tmp_path / "wide.safetensors", weight=[[2.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ModelError, match=r"filters\.heads\.aesthetic: .*one output"):
        pin_heads(HeadsConfig(aesthetic=wide))
    (tmp_path / "bad.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ModelError, match=r"filters\.heads\.aesthetic: .*bad\.safetensors"):
        pin_heads(HeadsConfig(aesthetic=str(tmp_path / "bad.safetensors")))


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_unsafe needs .*heads\.unsafe"):
        load_profile("scenes", ["filters.max_unsafe=0.5"])
    with pytest.raises(ConfigError, match=r"filters\.heads .*put clip into embedding\.embedders"):
        load_profile("scenes", [f"filters.heads.unsafe={tmp_path}"])


def test_a_build_leaves_out_what_its_filters_say(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for name in ("astronaut", "coffee", "chelsea"):
        image = Image.fromarray(getattr(data, name)()).convert("RGB").resize((256, 192))
        image.save(source / f"{name}.png")
        image.save(source / f"{name}-copy.jpg", quality=90)
        image.filter(ImageFilter.GaussianBlur(12)).save(source / f"{name}-blurred.png")
    Image.new("RGB", (300, 40), "black").save(source / "long.png")
    filters = ["filters.min_sharpness=20", "filters.max_similarity=0.98"]

    def reasons(*settings: str) -> dict[str, int]:
        counts, _ = build(source, tmp_path / "out", "gates.min_yield={pairs: 0}", *settings)
        return dict(counts["admitted"].reasons) | {"ok": counts["admitted"].ok}

    assert reasons() == {"ok": 10}
    assert reasons(*filters) == {
        "blurred (filters.min_sharpness=20)": 4,
        "near-duplicate (filters.max_similarity=0.98)": 3,
        "ok": 3,
    }
    marks = Folder(str(tmp_path / "out")).folders("tables/qualities")
    assert reasons("filters.max_aspect=5") == {
        "too long or too high (filters.max_aspect=5)": 1,
        "ok": 9,
    }
    assert (
        Folder(str(tmp_path / "out")).folders("tables/qualities") == marks
    )  # another bound measures nothing again
