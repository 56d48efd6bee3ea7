"""Read the items of a source: images, and the pairs, comparisons and preferences that it brings.

Writes ``ImageRow``, and the other rows that a source may bring, to one table per type. An item is
read once for its images and once for each of these tables, which is far cheaper than the model
calls about it.

If the profile asks for it, images and texts are perturbed (paper 001, A.3). Texts are captions,
differences and edits, statements of comparisons, answers of preferences; questions, labels and
texts that models write later stay. A perturbed image is a PNG, so its key changes, and with it the
keys of all rows about it. Random draws depend on the source's keys, so copies of an image stay
copies.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import groupby
from typing import Any

from pairwright.schemas.config import RobustnessConfig, SourceConfig
from pairwright.schemas.control_tokens import refuse_conversation
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import (
    NO_ROWS,
    ComparisonRow,
    Dropped,
    Failed,
    ImageRow,
    ItemRow,
    Negative,
    PairRow,
    PreferenceRow,
    Row,
    Turn,
    make_key,
    with_facts,
)
from pairwright.tasks.images.decode import decode_rgb, encode_png
from pairwright.tasks.models.perturb import perturb_image, replace_words
from pairwright.tasks.sources.reader import ReadResult, SourceRow
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.sources.sources import brings, items_by_source, readers_of
from pairwright.tasks.store.stage import Stage, Uses

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


def perturb_source(rows: Iterable[ReadResult], config: RobustnessConfig) -> Iterator[ReadResult]:
    """Yield the rows of a source, all of one item before the next, perturbed if configured."""
    if config.is_off:
        yield from rows
        return
    for _, group in groupby(rows, key=lambda row: row.source_key):
        item_rows = list(group)
        names = _new_keys(item_rows, config)
        for row in item_rows:
            if isinstance(row, Dropped | Failed):
                yield row
            else:
                yield _perturb_row(row, names, config)


def _new_keys(rows: Iterable[ReadResult], config: RobustnessConfig) -> dict[str, str]:
    """Return the keys of an item's perturbed rows by their present keys."""
    images: dict[str, str] = {}
    others: dict[str, str] = {}
    for row in rows:
        if isinstance(row, ImageRow):
            image = _perturb_bytes(row.image, row.key, config)
            images[row.key] = make_key(image)
        elif not isinstance(row, Dropped | Failed):
            others[row.key] = make_key("perturbed", row.key, config.model_dump_json())
    return images | others


def _perturb_bytes(data: bytes, key: str, config: RobustnessConfig) -> bytes:
    if config.corruption == "none":
        return data
    pixels = decode_rgb(data)
    perturbed = perturb_image(pixels, config.corruption, severity=config.severity, key=key)
    return encode_png(perturbed)


def _perturb_row(row: SourceRow, names: Mapping[str, str], config: RobustnessConfig) -> SourceRow:
    """Return a row with its texts and images perturbed, under its new key and subject."""

    def perturb_text(text: str) -> str:
        return replace_words(text, config.word_share, key=row.key)

    def rename(key: str) -> str:
        return names.get(key, key)

    changed: dict[str, Any] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        if field.name in TEXTS:
            changed[field.name] = _apply(perturb_text, value)
        elif field.name in KEYS:
            changed[field.name] = _apply(rename, value)
    match row:
        case ImageRow() if config.corruption != "none":
            changed["image"] = _perturb_bytes(row.image, row.key, config)
            changed["format"] = "png"
        case ComparisonRow():
            changed |= _perturb_comparison(row, perturb_text)
        case PreferenceRow():
            changed |= _perturb_preference(row, perturb_text, config)
        case _:
            pass
    return replace(row, **changed)


def _apply(change: Callable[[str], str], value: str | Iterable[str]) -> str | tuple[str, ...]:
    """Return a changed text, or each of several."""
    return change(value) if isinstance(value, str) else tuple(map(change, value))


def _perturb_comparison(row: ComparisonRow, perturb_text: Callable[[str], str]) -> dict[str, Any]:
    """Return the text and the conversation with the perturbed statements."""
    text = row.text
    conversation = row.conversation
    for statement in (*row.commonalities, *row.differences):
        perturbed = perturb_text(statement)
        text = text.replace(statement, perturbed)
        conversation = _replace_in_answers(conversation, statement, perturbed)
    return {"text": text, "conversation": conversation}


def _replace_in_answers(turns: Iterable[Turn], before: str, after: str) -> tuple[Turn, ...]:
    changed: list[Turn] = []
    for turn in turns:
        if turn.role == "assistant":
            text = turn.text.replace(before, after)
            changed.append(replace(turn, text=text))
        else:
            changed.append(turn)
    return tuple(changed)


def _perturb_preference(
    row: PreferenceRow, perturb_text: Callable[[str], str], config: RobustnessConfig
) -> dict[str, Any]:
    """Return the negatives with perturbed texts, and the perturbed images."""
    negatives: list[Negative] = []
    for negative in row.negatives:
        text = perturb_text(negative.text)
        negatives.append(replace(negative, text=text))
    changed: dict[str, Any] = {"negatives": tuple(negatives)}
    for name in ("images", "rejected_images"):
        images = getattr(row, name)
        keyed = zip(images, row.image_keys, strict=bool(images))
        perturbed = [_perturb_bytes(image, key, config) for image, key in keyed]
        changed[name] = tuple(perturbed)
    return changed


def read_items(
    rows: Sequence[ItemRow], config: SourceConfig, *, row_type: type[Row] = ImageRow
) -> Iterator[ReadResult]:
    """Yield the items' rows of one type, or the reason why there is none."""
    for source, items in items_by_source(rows, config):
        results = READERS[source.kind].read_items(items, source)
        for row in perturb_source(results, source.robustness):
            if isinstance(row, row_type):
                yield _refuse_texts(row) or with_facts(row)
            elif isinstance(row, Dropped | Failed):
                yield row


def _refuse_texts(row: Row) -> Dropped | None:
    """Return the reason against a given comparison or preference; ``None``: it is taken."""
    refused: RefusedText | None = None
    if isinstance(row, ComparisonRow):
        refused = refuse_conversation(row.conversation, (row.text,))
    elif isinstance(row, PreferenceRow):
        negatives = (negative.text for negative in row.negatives)
        refused = refuse_conversation(row.prompt, (row.chosen, row.rejected, *negatives))
    if refused is None:
        return None
    return Dropped(
        source_key=row.source_key,
        reason=refused.reason,
        detail=refused.detail,
    )


def read_pairs(
    rows: Sequence[ItemRow],
    config: SourceConfig,
    *,
    images: Mapping[str, Sequence[ImageRow]] = NO_ROWS,
) -> Iterator[ReadResult]:
    """Yield the items' pairs, or the reason why there is none.

    ``images``: the images' rows of each item, where the pairs are made from these.
    """
    for source, items in items_by_source(rows, config):
        pair_up = READERS[source.kind].pair_up
        if pair_up is None:
            yield from read_items(items, source, row_type=PairRow)
            continue
        for item in items:
            for row in pair_up(item, images.get(item.key, ())):
                yield row if isinstance(row, Dropped | Failed) else with_facts(row)


def _pairs_up(config: SourceConfig) -> bool:
    """Return whether a source's pairs are made from the images' rows."""
    return any(reader.pair_up is not None for reader in readers_of(config))


IMAGES = Stage(
    name="images",
    version=2,
    group="sources",
    reads={"items": ItemRow},
    writes=ImageRow,
    function=read_items,
    config=lambda profile: profile.source_config,
    journal="results",
)


def _given(name: str, writes: type[Row]) -> Stage:
    function = partial(read_items, row_type=writes)
    enabled = partial(brings, row_type=writes)
    return replace(
        IMAGES, name=name, writes=writes, function=function, enabled=enabled, journal="none"
    )


PAIRS = replace(
    _given("given_pairs", PairRow),
    function=read_pairs,
    uses=(
        Uses(
            table="images",
            row=ImageRow,
            kind="many",
            on="key",
            by="source_key",
            without=("image",),
            counts=True,
            when=_pairs_up,
        ),
    ),
)
COMPARISONS = _given("given_comparisons", ComparisonRow)
PREFERENCES = _given("given_preferences", PreferenceRow)
