"""Perturb the images and texts that a source brings, where a profile says so (paper 001, A.3).

Texts are captions, differences and edits, statements of comparisons, answers of preferences; questions, labels and what
models write later stay. An image is written as PNG, so its key changes with its bytes, and with it the keys of all rows
that show it. What is drawn depends on the keys of what the source gave, so a copy of an image becomes a copy again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from itertools import groupby
from typing import Any

from pairwright.schemas.config import RobustnessConfig
from pairwright.schemas.rows import ComparisonRow, Dropped, Failed, ImageRow, PreferenceRow, make_key
from pairwright.tasks.models.perturb import perturb_image, replace_words
from pairwright.tasks.sources.reader import Given, Read
from pairwright.tasks.store.images import decode_rgb, encode_png

TEXTS = ("captions", "human_differences", "instruction", "commonalities", "differences", "chosen", "rejected")
KEYS = ("key", "subject", "first", "second", "component", "image_keys")


def perturb_source(rows: Iterable[Read], config: RobustnessConfig) -> Iterator[Read]:
    """Yield the rows of a source, all of one item before the next, perturbed; as they are where nothing is wanted."""
    if config.is_off:
        yield from rows
        return
    for _, found in groupby(rows, key=lambda row: row.source_key):
        item = list(found)
        data = {row.key: _perturb_bytes(row.image, row.key, config) for row in item if isinstance(row, ImageRow)}
        names = {key: make_key(image) for key, image in data.items()}
        given = [row for row in item if not isinstance(row, ImageRow | Dropped | Failed)]
        names |= {row.key: make_key("perturbed", row.key, config.model_dump_json()) for row in given}
        for row in item:
            yield row if isinstance(row, Dropped | Failed) else _perturb_row(row, names, config)


def _perturb_bytes(data: bytes, key: str, config: RobustnessConfig) -> bytes:
    if config.corruption == "none":
        return data
    return encode_png(perturb_image(decode_rgb(data), config.corruption, severity=config.severity, key=key))


def _perturb_row(row: Given, names: Mapping[str, str], config: RobustnessConfig) -> Given:
    """Return a row with its texts and images perturbed, under the keys that it and what it is about have now."""

    def worse(text: str) -> str:
        return replace_words(text, config.word_share, key=row.key)

    changed: dict[str, Any] = {}
    for name in (field.name for field in fields(row)):
        change = worse if name in TEXTS else (lambda key: names.get(key, key)) if name in KEYS else None
        if change:
            value = getattr(row, name)
            changed[name] = change(value) if isinstance(value, str) else tuple(map(change, value))
    match row:
        case ImageRow() if config.corruption != "none":
            changed |= {"image": _perturb_bytes(row.image, row.key, config), "format": "png"}
        case ComparisonRow():
            changed["text"], changed["conversation"] = row.text, row.conversation
            for before in (*row.commonalities, *row.differences):
                changed["text"] = changed["text"].replace(before, worse(before))
                changed["conversation"] = tuple(
                    replace(turn, text=turn.text.replace(before, worse(before))) if turn.role == "assistant" else turn
                    for turn in changed["conversation"]
                )
        case PreferenceRow():
            changed["negatives"] = tuple(replace(one, text=worse(one.text)) for one in row.negatives)
            for name in ("images", "rejected_images"):
                both = zip(getattr(row, name), row.image_keys, strict=bool(getattr(row, name)))
                changed[name] = tuple(_perturb_bytes(data, key, config) for data, key in both)
        case _:
            pass
    return replace(row, **changed)
