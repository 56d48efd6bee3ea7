"""What was frozen of a run's images is opened row by row, and rows without their images are refused."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pairwright.schemas.errors import ModelError, StoreError
from pairwright.schemas.namc import NamcConfig
from pairwright.tasks.models.namc.words import learnt_words
from pairwright.tasks.training.namc.freeze_places import SCHEMA, open_places
from pairwright.tasks.training.namc.pictures import sizes_for
from pairwright.tasks.training.namc.placed import read_placed
from pairwright.tasks.training.namc.saved import load_captioner, make_captioner, save_captioner

SIZES = asdict(sizes_for(20))
"""Those of the model that is kept below: its words have 20 tokens."""
TEMPLATE = (
    "The difference between the two images is that the first image shows {}, while the second image shows a red ball."
)


def row(name: str, first: int, second: int, **values: Any) -> dict[str, Any]:
    made = {"key": name, "split": "train", "chosen": TEMPLATE.format(name), "images": ["one", "other"]}
    return made | {"first": first, "second": second} | values


def test_rows_are_opened_by_their_images_places(tmp_path: Path) -> None:
    rows = [
        row("a dog", 2, 0),
        row("a cat", 1, -1),
        row("a cup", 0, 1, chosen="It is darker."),
        row("a pen", 0, 1, images=["one"]),
        row("a hat", 0, 1, split="test"),
        row("a box", 1, 2),
    ]
    with pa.ipc.new_file(str(tmp_path / "rows.arrow"), SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
    (tmp_path / "about.json").write_text(json.dumps({"grids": 4, "codes": 60_000}))
    np.save(tmp_path / "grids.npy", np.arange(3 * 196 * 4, dtype=np.float16).reshape(3, 196, 4))
    np.save(tmp_path / "codes.npy", np.full((3, 196), 50_000, dtype=np.uint16))
    frozen = open_places(tmp_path)
    material, pictures, refused = read_placed(frozen, "train", halves=True, limit=0, seed=0)
    assert [text.key for text in material.texts] == ["a dog", "a box"]
    assert [(one.key, one.reason) for one in refused] == [
        ("a cat", "an image could not be encoded"),
        ("a cup", "no implicit-change description"),
        ("a pen", "not about two images"),
    ]
    grids = np.load(tmp_path / "grids.npy")
    seen = pictures.see([1, 0])
    assert np.array_equal(seen.features.numpy(), grids[[[1, 2], [2, 0]]])
    assert np.array_equal(seen.features.numpy(), pictures.features([1, 0]).numpy())
    assert seen.codes.shape == (2, 2, 196)
    assert seen.codes.unique().tolist() == [50_000], "more than a signed number of 16 bits holds"
    assert seen.pixels.numel() == 0
    assert len(read_placed(frozen, "train", halves=False, limit=2, seed=0)[0]) <= 2
    (tmp_path / "about.json").unlink()
    with pytest.raises(StoreError, match="--name"):
        open_places(tmp_path)


def test_a_small_one_of_before_is_opened(tmp_path: Path) -> None:
    """One that was kept before there were others says less of itself."""
    save_captioner(make_captioner(learnt_words(["a red ball"] * 9, size=60), noise=False, seed=0), tmp_path)
    (tmp_path / "namc.json").write_text('{"model": "namc", "config": "small", "noise": false}')
    found = load_captioner(tmp_path)
    assert (found.config, found.length, found.beams) == ("small", 80, 1)
    with pytest.raises(ModelError, match=r"--size small .*noise.* --size paper"):
        load_captioner(tmp_path, config=NamcConfig(size="paper"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"config": "paper"}, r"namc\.json .*CNN"),
        ({"model": "other"}, "--from: .* NAMC"),
        ({"beams": 1 << 40}, "--from: .* NAMC"),
        (
            {"config": "paper", "cnn": {"model": "resnet18"}, "sizes": {"width": 1 << 40}},
            r"namc\.json: .*2 layers of 12 heads",
        ),
        ({"config": "paper", "cnn": {"model": "resnet18"}, "sizes": {"width": "wide"}}, "--from: .* NAMC"),
        ({"config": "paper", "cnn": {"model": "hf-hub:a/b"}, "sizes": {}}, "--from: .* NAMC"),
        (
            {"config": "paper", "cnn": {"model": "resnet18"}, "sizes": SIZES | {"layers": 60}},
            r"namc\.json: .*encoder\.layers\.inner\.2",
        ),
        (
            {"config": "paper", "cnn": {"model": "resnet18"}, "sizes": SIZES | {"layers": 1}},
            r"namc\.json: .*describer\.layers\.inner\.1",
        ),
        ({"config": "paper", "cnn": {"model": "resnet18"}, "sizes": SIZES | {"dropout": 7.0}}, "between 0 and 1"),
        ({"config": "paper", "cnn": {"model": "resnet18"}, "sizes": SIZES | {"heads": 7}}, "2 layers of 7 heads"),
        ({"config": "paper", "cnn": {"model": "resnet18"}, "sizes": SIZES | {"vocabulary": 9}}, "9 words"),
    ],
)
def test_what_is_said_wrongly_of_a_model_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    save_captioner(make_captioner(learnt_words(["a red ball"] * 9, size=60), noise=False, seed=0), tmp_path)
    about = json.loads((tmp_path / "namc.json").read_text())
    (tmp_path / "namc.json").write_text(json.dumps(about | changes))
    with pytest.raises(ModelError, match=said):
        load_captioner(tmp_path)
