"""RAM and RAM++ as taggers: from pixels to names, with tiny checkpoints in the published format; their files."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torchvision.transforms import Compose, Normalize, Resize, ToTensor

from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import RamConfig
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.ram import FIELD, RAM, RAM_PLUS, RamTagger, find_ram, pin_ram, read_tags, transform_of
from pairwright.tasks.models.ram_network import load_ram
from tests.fixtures.ram_checkpoints import SIDE, TAGS, Checkpoint, decode, write_ram

SIZES = [(60, 90), (90, 60), (1, 1), (20, 8000), (SIDE, SIDE), (37, 41)]
"""Landscape, portrait, one pixel, a panorama, the model's own, odd."""


def images(sizes: list[tuple[int, int]] = SIZES) -> list[NDArray[np.uint8]]:
    rng = np.random.default_rng(3)
    noise = [rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for height, width in sizes]
    return [*noise, np.full((50, 40, 3), 119, dtype=np.uint8)]


def wanted_of(made: Checkpoint, tagger: RamTagger, squares: list[NDArray[np.uint8]]) -> NDArray[np.float64]:
    """Return the probabilities by the reference decoder, from what the image encoder gives."""
    swin = load_ram(Path(tagger.config.checkpoint), field="x", plus=tagger.plus, tags=len(TAGS)).swin
    numbers = transform_of(SIDE).numbers
    with torch.inference_mode():
        patches = swin.forward_features(numbers(torch.from_numpy(np.stack(squares)))).flatten(1, 2).double().numpy()
    return np.array([decode(made.weights, image) for image in patches])


@pytest.mark.parametrize("plus", [False, True], ids=["ram", "ram-plus"])
def test_tags_are_those_above_their_thresholds_by_falling_probability(tmp_path: Path, plus: bool) -> None:
    thresholds = tuple(0.2 + 0.05 * place for place in range(len(TAGS)))
    made = write_ram(tmp_path, plus=plus, thresholds=thresholds)
    tagger = RamTagger(config=made.config, plus=plus)
    squares = [tagger.prepare(Seen(pixels)) for pixels in images()]
    chances = wanted_of(made, tagger, squares)
    assert 0 < (chances > thresholds).mean() < 1
    for row, tags in zip(chances, tagger.tag(squares), strict=True):
        above = sorted((place for place in range(len(TAGS)) if row[place] > thresholds[place]), key=lambda n: -row[n])
        assert [tag.name for tag in tags] == [TAGS[place] for place in above]
        assert [tag.score for tag in tags] == pytest.approx([row[place] for place in above], abs=1e-4)
        assert {tag.tagger for tag in tags} <= {"ram-plus" if plus else "ram"}


def test_a_probability_at_its_threshold_is_not_above_it(tmp_path: Path) -> None:
    made = write_ram(tmp_path / "a")
    tagger = RamTagger(config=made.config)
    square = tagger.prepare(Seen(images()[0]))
    (row,) = tagger.model.encoder.encode([square])
    same = write_ram(tmp_path / "b", thresholds=tuple(float(value) for value in row))
    assert RamTagger(config=same.config).tag([square]) == [()]
    below = write_ram(tmp_path / "c", thresholds=tuple(float(value) - 1e-4 for value in row))
    assert len(RamTagger(config=below.config).tag([square])[0]) == len(TAGS)


@pytest.mark.parametrize("plus", [False, True], ids=["ram", "ram-plus"])
def test_batches_give_what_single_images_give(tmp_path: Path, plus: bool) -> None:
    made = write_ram(tmp_path, plus=plus)
    many, one = (RamTagger(config=made.config, plus=plus, batch=batch) for batch in (5, 1))
    squares = [many.prepare(Seen(pixels)) for pixels in images()]
    together = many.model.encoder.encode(squares)
    alone = np.concatenate([one.model.encoder.encode([square]) for square in squares])
    assert together.std(axis=0).max() > 0.01  # images differ
    np.testing.assert_allclose(together, alone, rtol=0, atol=2e-6)


@pytest.mark.parametrize("size", [*SIZES, (384, 500), (1200, 700)])
def test_images_are_squeezed_as_the_authors_do(size: tuple[int, int]) -> None:
    theirs = Compose([Resize((384, 384)), ToTensor(), Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    yy, xx = np.mgrid[: size[0], : size[1]]
    pixels = np.stack([(xx * 7 + yy) % 256, (yy * 5) % 256, (xx + yy * 3) % 256], axis=-1).astype(np.uint8)
    ours = transform_of(384)
    found = ours.numbers(torch.from_numpy(ours(pixels))[None])[0]
    wanted: Any = theirs(Image.fromarray(pixels))
    assert found.shape == wanted.shape == (3, 384, 384)
    assert (found - wanted).abs().mean() < 0.2 / 255 / 0.225  # a fifth of a level
    assert (found - wanted).abs().max() < 1.5 / 255 / 0.224


def test_preparing_needs_no_weights_elsewhere(tmp_path: Path) -> None:
    prepare = RamTagger(config=write_ram(tmp_path).config).prepare
    sent = pickle.dumps(prepare)
    assert len(sent) < 2000
    pixels = images()[0]
    assert np.array_equal(pickle.loads(sent)(Seen(pixels)), prepare(Seen(pixels)))


@pytest.mark.parametrize("plus", [False, True], ids=["ram", "ram-plus"])
def test_a_list_of_another_length_is_refused(tmp_path: Path, plus: bool) -> None:
    config = write_ram(tmp_path, plus=plus).config
    Path(config.tags).write_text("\n".join(TAGS[:-1]))
    Path(config.thresholds).write_text("\n".join(["0.5"] * (len(TAGS) - 1)))
    rows = "561 descriptions" if plus else "11 tags"
    with pytest.raises(ModelError, match=rf"tagging\.ram\.checkpoint: .*{rows}, .* 10"):
        RamTagger(config=config, plus=plus).tag([np.zeros((SIDE, SIDE, 3), dtype=np.uint8)])


def test_weights_that_are_not_numbers_are_found_out(tmp_path: Path) -> None:
    config = write_ram(tmp_path, changes={"fc.bias": torch.tensor([float("nan")])}).config
    with pytest.raises(ModelError, match="finite"):
        RamTagger(config=config).tag([np.zeros((SIDE, SIDE, 3), dtype=np.uint8)])


def lists(folder: Path, tags: str, thresholds: str | None) -> tuple[Path, Path | None]:
    (folder / "tags.txt").write_text(tags, encoding="utf-8")
    if thresholds is None:
        return folder / "tags.txt", None
    (folder / "thresholds.txt").write_text(thresholds)
    return folder / "tags.txt", folder / "thresholds.txt"


def test_names_come_with_their_thresholds_or_those_of_the_public_code(tmp_path: Path) -> None:
    names, thresholds = read_tags(*lists(tmp_path, "dog\nteddy bear \ncafé\n", "0.5\n0.65\n1.0\n"))
    assert names == ("dog", "teddy bear", "café")
    assert thresholds == (0.5, 0.65, 1.0)
    assert read_tags(*lists(tmp_path, "dog\ncat\n", None)) == (("dog", "cat"), (0.68, 0.68))


@pytest.mark.parametrize(
    ("tags", "thresholds", "message"),
    [
        ("", "0.5", f"{FIELD}.tags: .*tags.txt"),
        ("dog\n\ncat", "0.5\n0.5\n0.5", "line 2"),
        ("dog\ncat", "0.5\n0.5\n0.5", "thresholds.txt has 3 .*tags.txt .* 2 tags"),
        ("dog", "high", "thresholds.txt: .*'high'"),
        ("dog\ncat", "0.5\n1.5", "thresholds.txt: .*0 to 1"),
        ("dog", "nan", "thresholds.txt: .*0 to 1"),
    ],
)
def test_broken_lists_are_refused(tmp_path: Path, tags: str, thresholds: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_tags(*lists(tmp_path, tags, thresholds))
    (tmp_path / "tags.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match=r"tags\.txt"):
        read_tags(tmp_path / "tags.txt", None)


def test_pinning_names_the_files_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_ram(tmp_path / "a").config
    monkeypatch.chdir(tmp_path)
    near = RamConfig(checkpoint="a/ram.pth", tags="a/tags.txt", thresholds="a/thresholds.txt")
    pinned = pin_ram(near, plus=False, download=False)
    assert pinned == made.model_copy(update={"revision": pinned.revision})
    assert pinned.revision.startswith("xxh3:")
    found = find_ram(pinned, plus=False, download=False)
    assert list(found.values()) == [Path(p) for p in (made.checkpoint, made.tags, made.thresholds)]


@pytest.mark.parametrize("name", ["checkpoint", "tags", "thresholds"])
def test_a_file_that_changed_is_refused(tmp_path: Path, name: str) -> None:
    pinned = pin_ram(write_ram(tmp_path).config, plus=False, download=False)
    with Path(getattr(pinned, name)).open("ab") as stream:
        stream.write(b"\n")
    with pytest.raises(ModelError, match=r"tagging\.ram\.revision"):
        pin_ram(pinned, plus=False, download=False)


def test_published_files_are_looked_for_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path / "cache"))
    here = write_ram(tmp_path / "made").config.checkpoint
    with pytest.raises(ModelError, match=r"ram_tag_list\.txt .*tagging\.download=true"):
        find_ram(RamConfig(checkpoint=here), plus=False, download=False)
    named = {"tags": str(tmp_path / "tags.txt")}
    (tmp_path / "tags.txt").write_text("\n".join(TAGS))
    for plus, file in ((False, RAM), (True, RAM_PLUS)):
        with pytest.raises(ModelError, match=f"{file.name} .*{file.url}"):
            find_ram(RamConfig(**named), plus=plus, download=False)


@pytest.mark.parametrize("name", ["checkpoint", "thresholds"])
def test_a_missing_local_file_is_named(tmp_path: Path, name: str) -> None:
    made = write_ram(tmp_path).config
    Path(getattr(made, name)).unlink()
    with pytest.raises(ModelError, match=rf"tagging\.ram\.{name}"):
        pin_ram(made, plus=False, download=False)
