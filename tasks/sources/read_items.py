"""Read the items of a source: images, and the pairs, comparisons and preferences that it brings beside them.

Writes ``ImageRow``, and the other rows that a source may bring to one table per type. An item is
read once for its images and once for each of these tables, which is far cheaper than the model
calls about it.

If the profile asks for it, images and texts are perturbed (paper 001, A.3). Texts are captions,
differences and edits, statements of comparisons, answers of preferences; questions, labels and
texts that models write later stay. A perturbed image is a PNG, so its key changes, and with it the
keys of all rows about it. Random draws depend on the source's keys, so copies of an image stay
copies.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import groupby
from typing import Any

from pairwright.schemas.config import RobustnessConfig, SourceConfig
from pairwright.schemas.rows import (
    ComparisonRow,
    Dropped,
    Failed,
    ImageRow,
    ItemRow,
    PairRow,
    PreferenceRow,
    Row,
    make_key,
)
from pairwright.tasks.images.decode import decode_rgb, encode_png
from pairwright.tasks.models.perturb import perturb_image, replace_words
from pairwright.tasks.sources.reader import Given, Read
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.store.stage import Stage

TEXTS = (
    "captions",
    "human_differences",
    "instruction",
    "commonalities",
    "differences",
    "chosen",
    "rejected",
)
KEYS = ("key", "subject", "first", "second", "component", "image_keys")


def perturb_source(rows: Iterable[Read], config: RobustnessConfig) -> Iterator[Read]:
    """Yield the rows of a source, all of one item before the next, perturbed if configured."""
    if config.is_off:
        yield from rows
        return
    for _, found in groupby(rows, key=lambda row: row.source_key):
        item = list(found)
        data = {
            row.key: _perturb_bytes(row.image, row.key, config)
            for row in item
            if isinstance(row, ImageRow)
        }
        names = {key: make_key(image) for key, image in data.items()}
        given = [row for row in item if not isinstance(row, ImageRow | Dropped | Failed)]
        names |= {
            row.key: make_key("perturbed", row.key, config.model_dump_json()) for row in given
        }
        for row in item:
            yield row if isinstance(row, Dropped | Failed) else _perturb_row(row, names, config)


def _perturb_bytes(data: bytes, key: str, config: RobustnessConfig) -> bytes:
    if config.corruption == "none":
        return data
    return encode_png(
        perturb_image(decode_rgb(data), config.corruption, severity=config.severity, key=key)
    )


def _perturb_row(row: Given, names: Mapping[str, str], config: RobustnessConfig) -> Given:
    """Return a row with its texts and images perturbed, with the new keys of itself and its subject."""

    def worse(text: str) -> str:
        return replace_words(text, config.word_share, key=row.key)

    changed: dict[str, Any] = {}
    for name in (field.name for field in fields(row)):
        change = (
            worse if name in TEXTS else (lambda key: names.get(key, key)) if name in KEYS else None
        )
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
                    replace(turn, text=turn.text.replace(before, worse(before)))
                    if turn.role == "assistant"
                    else turn
                    for turn in changed["conversation"]
                )
        case PreferenceRow():
            changed["negatives"] = tuple(
                replace(one, text=worse(one.text)) for one in row.negatives
            )
            for name in ("images", "rejected_images"):
                both = zip(getattr(row, name), row.image_keys, strict=bool(getattr(row, name)))
                changed[name] = tuple(_perturb_bytes(data, key, config) for data, key in both)
        case _:
            pass
    return replace(row, **changed)


def read_items(
    rows: Sequence[ItemRow], config: SourceConfig, *, wanted: type[Row] = ImageRow
) -> Iterator[Read]:
    """Yield the items' rows of one type, or the reason why there is none."""
    for found in perturb_source(READERS[config.kind].read_items(rows, config), config.robustness):
        if isinstance(found, wanted | Dropped | Failed):
            yield found


def brings(config: SourceConfig, *, wanted: type[Row]) -> bool:
    """Return whether the source brings rows of a type."""
    reader = READERS.get(config.kind)  # a profile may name no source yet
    return reader is not None and wanted in reader.brings


IMAGES = Stage(
    name="images",
    version=2,
    group="sources",
    reads={"items": ItemRow},
    writes=ImageRow,
    function=read_items,
    config=lambda profile: profile.sources,
    journal=True,
)


def _given(name: str, writes: type[Row]) -> Stage:
    function, enabled = partial(read_items, wanted=writes), partial(brings, wanted=writes)
    return replace(
        IMAGES, name=name, writes=writes, function=function, enabled=enabled, journal=False
    )


PAIRS = _given("given_pairs", PairRow)
COMPARISONS = _given("given_comparisons", ComparisonRow)
PREFERENCES = _given("given_preferences", PreferenceRow)
