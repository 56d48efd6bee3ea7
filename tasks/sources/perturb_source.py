"""Make the images and texts that a source brings worse, where a profile says so (paper 001, A.3).

Reads and writes what readers yield: images, pairs, comparisons, preferences. Texts are captions of images, differences
and edits, statements of comparisons, answers of preferences; questions, labels and what models write later stay. An
image is written as PNG, so its key changes with its bytes, and with it the keys of all rows that show it. What is drawn
depends on the keys of what the source gave, so a copy of an image becomes a copy of its perturbed one, in any order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from pairwright.schemas.robustness import RobustnessConfig
from pairwright.schemas.rows import ComparisonRow, ImageRow, PairRow, PreferenceRow, make_key
from pairwright.tasks.sources.reader import Read
from pairwright.tasks.store.images import decode_rgb, encode_png
from pairwright.tasks.store.perturb_images import perturb_image
from pairwright.tasks.store.replace_words import replace_words


def perturb_source(rows: Iterable[Read], config: RobustnessConfig) -> Iterator[Read]:
    """Yield the rows of a source, all of one item before the next, made worse; as they are where nothing is wanted."""
    if config.is_off:
        yield from rows
        return
    for _, found in groupby(rows, key=lambda row: row.source_key):
        yield from _perturb_item(list(found), config)


def _perturb_item(rows: Sequence[Read], config: RobustnessConfig) -> Iterator[Read]:
    """Yield an item's rows; its pairs, comparisons and preferences are about its own images."""
    images = [row for row in rows if isinstance(row, ImageRow)]
    made = {image.key: _perturb_row(image, config) for image in images}
    names = {key: image.key for key, image in made.items()}
    names |= {row.key: _renamed(row.key, config) for row in rows if isinstance(row, PairRow)}
    for row in rows:
        yield made[row.key] if isinstance(row, ImageRow) else _Change(config, names).of(row)


def _perturb_row(row: ImageRow, config: RobustnessConfig) -> ImageRow:
    captions = tuple(_perturb_text(text, row.key, config) for text in row.captions)
    if config.corruption == "none":
        return replace(row, captions=captions)
    data = _perturb_bytes(row.image, row.key, config)
    key = make_key(data)
    return replace(row, key=key, subject=key, image=data, format="png", captions=captions)


def _perturb_bytes(data: bytes, key: str, config: RobustnessConfig) -> bytes:
    if config.corruption == "none":
        return data
    return encode_png(perturb_image(decode_rgb(data), config.corruption, severity=config.severity, key=key))


def _perturb_text(text: str, key: str, config: RobustnessConfig) -> str:
    return replace_words(text, config.word_share, key=key)


def _renamed(key: str, config: RobustnessConfig) -> str:
    """Return the key of a row that is made of another one."""
    return make_key("perturbed", key, config.model_dump_json())


@dataclass(frozen=True)
class _Change:
    """Change the rows of one item that are about its images."""

    config: RobustnessConfig
    names: Mapping[str, str]
    """What the item's images and pairs are called now."""

    def of(self, row: Read) -> Read:
        """Return a row as it is now."""
        match row:
            case PairRow():
                return self._pair(row)
            case ComparisonRow():
                return self._comparison(row)
            case PreferenceRow():
                return self._preference(row)
            case _:
                return row

    def _name(self, key: str) -> str:
        return self.names.get(key, key)

    def _about(self, key: str) -> tuple[dict[str, Any], Callable[[str], str]]:
        """Return the row's new key, and what changes its texts."""
        return {"key": _renamed(key, self.config)}, lambda text: _perturb_text(text, key, self.config)

    def _pair(self, row: PairRow) -> PairRow:
        own, worse = self._about(row.key)
        return replace(
            row,
            **own,
            subject=own["key"],
            first=self._name(row.first),
            second=self._name(row.second),
            human_differences=tuple(map(worse, row.human_differences)),
            instruction=worse(row.instruction),
        )

    def _comparison(self, row: ComparisonRow) -> ComparisonRow:
        own, worse = self._about(row.key)
        statements = {one: worse(one) for one in (*row.commonalities, *row.differences)}

        def reworded(text: str) -> str:
            """Return a text with its statements changed; what names them, and other texts, stay."""
            for before, after in statements.items():
                text = text.replace(before, after)
            return text

        turns = (
            replace(turn, text=reworded(turn.text)) if turn.role == "assistant" else turn for turn in row.conversation
        )
        return replace(
            row,
            **own,
            subject=self._name(row.subject),
            text=reworded(row.text),
            commonalities=tuple(statements[one] for one in row.commonalities),
            differences=tuple(statements[one] for one in row.differences),
            conversation=tuple(turns),
        )

    def _preference(self, row: PreferenceRow) -> PreferenceRow:
        own, worse = self._about(row.key)

        def seen(images: Sequence[bytes]) -> tuple[bytes, ...]:
            return tuple(
                _perturb_bytes(*both, self.config) for both in zip(images, row.image_keys, strict=bool(images))
            )

        return replace(
            row,
            **own,
            subject=self._name(row.subject),
            component=self._name(row.component),
            images=seen(row.images),
            rejected_images=seen(row.rejected_images),
            image_keys=tuple(map(self._name, row.image_keys)),
            chosen=worse(row.chosen),
            rejected=worse(row.rejected),
            negatives=tuple(replace(one, text=worse(one.text)) for one in row.negatives),
        )
