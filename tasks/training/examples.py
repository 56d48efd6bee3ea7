"""Turn preferences into examples: a prompt with images, a chosen text, and what an objective rejects.

Pure; reads ``PreferenceRow``. A row that cannot be trained on is refused with a reason, never cut to fit.
"""

from dataclasses import dataclass

from pairwright.schemas.rows import PreferenceRow, Turn

PLACE = "<image>"
"""Stands for an image in a prompt; where a prompt has none, the images go before its first words."""
PAIR, UNPAIRED = 2, "images that are no pairs"


class RefusedRowError(Exception):
    """Say that a row cannot be trained on: a short constant phrase, and what differs from row to row."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Say what an objective takes of a row."""

    texts: int = 0
    """Rejected texts, at the most."""
    images: bool = False
    """Whether the rejected images are shown."""
    beside: bool = True
    """Whether they are shown beside a rejected text, too; otherwise only where there is none."""
    least: str = "nothing"
    """What a row must have: "nothing" but the chosen text, a rejected "text", "image", or "either"."""
    pairs: bool = False
    """Whether its images are compared in twos (differential perception)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Be what one row gives to train on."""

    key: str
    turns: tuple[Turn, ...]
    images: tuple[bytes, ...]
    """Encoded files."""
    chosen: str
    rejected: tuple[str, ...] = ()
    """Hardest first."""
    rejected_images: tuple[bytes, ...] = ()
    """As many as ``images``; empty: none."""


def make_example(row: PreferenceRow, needs: Needs) -> Example:
    """Return what a row gives.

    Raises:
        RefusedRowError: it cannot be trained on.
    """
    look_at(row, needs)
    if places := _places(row, len(row.images)):
        raise RefusedRowError("images do not match the prompt", places)
    rejected = rejected_texts(row)[: needs.texts]
    shown = row.rejected_images if needs.images and (needs.beside or not rejected) else ()
    if shown and len(shown) != len(row.images):
        raise RefusedRowError("rejected images do not match", f"{len(shown)} for {len(row.images)}")
    return Example(
        key=row.key,
        turns=row.prompt,
        images=row.images,
        chosen=row.chosen,
        rejected=rejected,
        rejected_images=shown,
    )


def look_at(row: PreferenceRow, needs: Needs) -> None:
    """Check what can be checked without the images.

    Raises:
        RefusedRowError: the row cannot be trained on.
    """
    if not row.chosen.strip():
        raise RefusedRowError("no chosen text")
    if not row.prompt or row.prompt[-1].role != "user":
        raise RefusedRowError("the prompt does not end with the user")
    if needs.pairs and (not row.image_keys or len(row.image_keys) % PAIR):
        raise RefusedRowError(UNPAIRED, f"{len(row.image_keys)}, where each is compared with another one")
    if places := _places(row, len(row.image_keys)):
        raise RefusedRowError("images do not match the prompt", places)
    text, image = bool(rejected_texts(row)), bool(row.rejected_image_maker)
    lacks = {"nothing": False, "text": not text, "image": not image, "either": not (text or image)}[needs.least]
    if lacks:
        raise RefusedRowError(
            {"text": "no rejected text", "image": "no rejected image"}.get(needs.least, "no rejected side")
        )


def rejected_texts(row: PreferenceRow) -> tuple[str, ...]:
    """Return the rejected text and the further negatives, each once, without those equal to the chosen text."""
    texts = dict.fromkeys((row.rejected, *(negative.text for negative in row.negatives)))
    return tuple(text for text in texts if text.strip() and text != row.chosen)


def _places(row: PreferenceRow, images: int) -> str:
    """Say in words how the prompt's places for images differ from their number; empty: they do not."""
    found = sum(turn.text.count(PLACE) for turn in row.prompt)
    return f"{found} places for {images} images" if found and found != images else ""
