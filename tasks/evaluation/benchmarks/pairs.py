"""Pairs of images with a caption each (EqBen, COLA): which image suits a caption, and which caption suits an image.

Paper 003 asks which image suits each of the two captions, and both have to be right (chance: 25 %): what Winoground
calls the image score. The text score asks of each image for its caption; the group score wants all four answers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmarks.choices import LETTERS, Choice
from pairwright.tasks.evaluation.benchmarks.images_by_caption import choose_caption, choose_image
from pairwright.tasks.evaluation.benchmarks.published import CAPTION, Published, read_published

NOTE = (
    "image: both captions got their image, which is what paper 003 prints; text (words ours): both images got their "
    "caption; group: all four"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Be two images and the caption of each."""

    name: str
    images: tuple[Path, Path]
    captions: tuple[str, str]
    category: str = ""


def ask_pairs(pairs: Iterable[Pair]) -> list[Choice]:
    """Return four questions about each pair."""
    return [choice for pair in pairs for choice in _ask(pair)]


def _ask(pair: Pair) -> Iterator[Choice]:
    own = {"category": pair.category, "item": pair.name}
    for number, letter in enumerate(LETTERS):
        yield choose_image(f"{pair.name}_{number}", pair.images, pair.captions[number], answer=letter, **own)
    for number, letter in enumerate(LETTERS):
        yield choose_caption(f"{pair.name}_text_{number}", pair.images[number], pair.captions, answer=letter, **own)


def read_pairs(path: Path) -> list[Pair]:
    """Return the pairs of a file of paper 003, in which each has two lines, ``i_0`` and ``i_1``.

    Raises:
        ConfigError: a line has no partner.
    """
    lines: dict[str, dict[str, Published]] = {}
    for line in read_published(path, CAPTION, LETTERS):
        pair, _, number = line.name.rpartition("_")
        expected = {"0": "A", "1": "B"}.get(number)
        if not pair or line.answer != expected or number in lines.setdefault(pair, {}):
            raise ConfigError(f"{line.where}: question_id must be N_0, whose answer is A, or N_1, whose answer is B")
        lines[pair][number] = line
    return [_pair(name, own) for name, own in lines.items()]


def _pair(name: str, lines: dict[str, Published]) -> Pair:
    first = next(iter(lines.values()))
    if len(lines) != 2 or lines["0"].images != lines["1"].images:
        raise ConfigError(f"{first.where}: {name}_0 and {name}_1 must both be there, with the same images")
    captions = (lines["0"].words, lines["1"].words)
    return Pair(name=name, images=first.images, captions=captions, category=first.category or first.folder)
