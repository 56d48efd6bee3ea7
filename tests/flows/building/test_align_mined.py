"""Mined pairs aligned within one build: every later step sees the pixels that both images share."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

import pairwright as pw
from pairwright.tasks.images.decode import RGB, decode_rgb
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.runs import Run
from tests.fixtures.builds import WIDE
from tests.fixtures.chat_server import Asked, chat_server
from tests.fixtures.command import run
from tests.fixtures.dogs_to_train import training_of

BOARD = data.coffee()  # 400 x 600
SHIFTS = ((0, 0), (30, 20), (12, 44))
"""Where each camera stood: left and top of its image."""
SIZE = (520, 340)
DIFFERENCE = (
    "The difference between the two images is that the first image shows a cup, while the second "
    "image contains a spoon."
)


def view(shift: tuple[int, int], number: int) -> RGB:
    """Return a photograph of the board with a defect of its own."""
    board = BOARD.copy()
    left = 150 + 90 * number
    board[150:190, left : left + 40] = (0, 255, 0)
    x, y = shift
    return board[y : y + SIZE[1], x : x + SIZE[0]]


def answer(asked: Asked) -> str:
    if len(asked.images) == 2:
        return DIFFERENCE
    return "A cup of coffee stands on a wooden table beside a silver spoon in warm light."


class Album:
    """Built album, and the images that its served model saw."""

    def __init__(self, folder: Path) -> None:
        for number, shift in enumerate(SHIFTS):
            path = folder / "boards" / f"{number}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(view(shift, number)).save(path)
        Image.fromarray(data.astronaut()).save(folder / "boards" / "other.png")
        self.folder = folder / "album"
        with chat_server(answer) as server:
            self.settings = [
                *WIDE,
                *("captions.writer=served", "differences.writer=served", "mining.align=true"),
                "rejections.enabled=false",
                f"models.chat.endpoint={server.url}",
            ]
            self.source = folder / "boards"
            self.data = self.build()
            self.asked = list(server.asked)
            self.build()
            self.asked_again = list(server.asked[len(self.asked) :])

    def build(self) -> pw.Dataset:
        return pw.build(self.source, out=str(self.folder), settings=self.settings)

    def images(self) -> dict[str, RGB]:
        tables = (self.data["images"].rows(), self.data["aligned_images"].rows())
        return {row.key: decode_rgb(row.image) for rows in tables for row in rows}

    def names(self) -> dict[str, str]:
        return {row.key: row.name for row in self.data["images"].rows()}


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> Album:
    return Album(tmp_path_factory.mktemp("album"))


def board_pairs(album: Album) -> list[tuple[RGB, RGB]]:
    images = album.images()
    pairs = [pair for pair in album.data["pairs"].rows() if pair.transform]
    return [(images[pair.first], images[pair.second]) for pair in pairs]


def test_both_images_of_a_pair_show_the_same_place(album) -> None:
    """Three boards make three pairs; where no defect is, their pixels are equal."""
    pairs = board_pairs(album)
    assert len(pairs) == 3
    for first, second in pairs:
        assert first.shape == second.shape
        assert 0.7 < first[..., 0].size / (SIZE[0] * SIZE[1]) < 1
        differing = (first != second).any(axis=2)
        assert 2000 < differing.sum() <= 2 * 40 * 40


def test_the_transform_of_a_pair_is_the_shift(album) -> None:
    names = album.names()
    alignments = {row.subject: row for row in album.data["alignments"].rows()}
    shifts = {f"{number}.png": np.array(shift) for number, shift in enumerate(SHIFTS)}
    rows = [row for row in alignments.values() if row.transform]
    assert len(rows) == 3
    for row in rows:
        x, y = shifts[names[row.first]] - shifts[names[row.second]]
        assert row.transform == (1, 0, x, 0, 1, y, 0, 0, 1)
    assert {row.why for row in alignments.values() if not row.transform} == {
        "images were not aligned: too few features match"
    }


def test_a_served_model_sees_the_aligned_images(album) -> None:
    aligned = [(first.tobytes(), second.tobytes()) for first, second in board_pairs(album)]
    shown = shown_by(album.asked)
    assert set(aligned) <= set(shown)
    parts = {pixels for pair in aligned for pixels in pair}
    assert parts <= {images[0] for images in shown if len(images) == 1}, "captions, too"
    assert parts.isdisjoint(images[0] for images in shown_by(album.asked_again) if images)


def shown_by(requests: list[Asked]) -> list[tuple[bytes, ...]]:
    return [tuple(map(pixels_of, asked.images)) for asked in requests]


def pixels_of(image: bytes) -> bytes:
    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB")).tobytes()


def test_preferences_and_exports_hold_the_aligned_images(album, tmp_path) -> None:
    aligned = {(first.tobytes(), second.tobytes()) for first, second in board_pairs(album)}
    rows = list(album.data["preferences"].rows())
    kept = {tuple(decode_rgb(image).tobytes() for image in row.images) for row in rows}
    assert aligned <= kept
    out = tmp_path / "pairs"
    assert run("export", album.folder, "--table", "pairs", "--to", out, "--verify") == 0
    export = tmp_path / "trl"
    assert run("export", album.folder, "--format", "trl", "--to", export, "--verify") == 0
    assert run("report", album.folder) == 0
    card = next(pair for pair in album.data["pairs"] if pair.transform)
    assert "[" in album.data["aligned_images"][0].name
    page = album.data["pairs"].where(f"key = '{card.key}'")[0].show().page
    assert "data:image" in page
    assert "different scenes" not in page, "the folder's images are in no group"


def test_a_training_sees_tiles_of_aligned_images(album, qwen, tmp_path) -> None:
    with chat_server(answer) as server:
        settings = [*album.settings[:-1], f"models.chat.endpoint={server.url}", "tiles.size=224"]
        data = pw.build(album.source, out=str(tmp_path / "tiles"), settings=settings)
    rows = {row.key: row for row in data["aligned_images"].rows()}
    tiles = {pixels_of(row.image) for row in rows.values() if row.width == row.height == 224}
    assert len(tiles) > 4
    inputs = trained_on(tmp_path / "tiles", qwen)
    assert {pixels for images in inputs for pixels in images if pixels in tiles}


def trained_on(dataset: Path, model: Path) -> list[tuple[bytes, ...]]:
    """Train, and return the pixels of each row's images."""
    training = training_of(dataset, model, "sft", "sft", model__max_pixels=12544)
    assert run(*training) == 0
    rows = Run(dataset / "runs" / "sft").rows
    frozen = FrozenRows(folder=Folder(str(dataset)), file=str(rows), split="train")
    examples = map(frozen.read, range(len(frozen)))
    return [tuple(map(pixels_of, example.images)) for example in examples]


def test_parts_of_one_image_go_to_one_split(album) -> None:
    splits = {row.subject: row.component for row in album.data["splits"].rows()}
    pairs = [pair for pair in album.data["pairs"].rows() if pair.transform]
    assert len({splits[pair.key] for pair in pairs}) == 1


def test_status_counts_what_was_not_aligned(album, capsys) -> None:
    assert run("status", album.folder, "--json") == 0
    stages = {row["stage"]: row for row in json.loads(capsys.readouterr().out)["stages"]}
    total = stages["alignments"]["in"]
    why = "images were not aligned: too few features match"
    assert stages["alignments"]["ok"] == stages["pairs"]["ok"] == total > 3
    assert stages["alignments"]["reasons"] == {why: total - 3}
    assert (stages["images"]["rows"], stages["pairs"]["rows"]) == (4, total)


def test_a_removed_image_takes_its_parts_along(album) -> None:
    """One pair of boards is left."""
    album.data.remove(names=["0.png"])
    with chat_server(answer) as server:
        album.settings[-1] = f"models.chat.endpoint={server.url}"
        album.data = album.build()
    assert len([pair for pair in album.data["pairs"].rows() if pair.transform]) == 1
    assert len(list(album.data["aligned_images"].rows())) == 2
