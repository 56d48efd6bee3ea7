"""Turn the bytes of images that a source paired into checked rows: both images and the pair, or the reason why not.

Reads nothing itself: readers hand over what they read. Both images are decoded here, so that whatever is in the tables
can be shown to a model. No network, no model.
"""

from dataclasses import dataclass

import numpy as np

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.rows import Dropped, ImageRow, ItemRow, PairRow, make_key
from pairwright.tasks.store.images import RGB, RefusedImageError, decode_rgb, probe_image


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Be one image as a source gave it."""

    data: bytes
    """The encoded file."""
    name: str
    captions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Say what a source knows about an image or a pair."""

    licence: str = ""
    """The published licence of the data set; the configured one goes before it."""
    group: str = ""
    """Images of one group go to the same split."""
    origin: str = "given"
    """"given" (the source paired them) or "edit" (it made the second of the first)."""
    human_differences: tuple[str, ...] = ()
    instruction: str = ""
    change_types: tuple[str, ...] = ()
    may_be_identical: bool = False
    """Whether the source says that nothing changed, so that two equal images are right."""


def read_pair(
    item: ItemRow, first: Picture, second: Picture, config: SourceConfig, *, about: About
) -> list[ImageRow | PairRow] | Dropped:
    """Return both images (one, where they are the same file) and their pair, in the source's order."""
    pixels: list[RGB] = []
    images: list[ImageRow] = []
    for picture in (first, second):
        read = _decode(item, picture, config, about=about)
        if isinstance(read, Dropped):
            return read
        images.append(read[0])
        pixels.append(read[1])
    if not about.may_be_identical and np.array_equal(pixels[0], pixels[1]):
        return dropped(item, "identical images", f"{first.name} and {second.name}")
    names = tuple(image.key for image in images)
    types = (make_key("change types", *about.change_types),) if about.change_types else ()
    key = make_key("pair", *names, about.origin, about.instruction, *about.human_differences, *types)
    pair = PairRow(
        key=key,
        source_key=item.key,
        subject=key,
        first=names[0],
        second=names[1],
        origin=about.origin,
        anchor="",
        cluster=-1,
        human_differences=about.human_differences,
        instruction=about.instruction,
        change_types=about.change_types,
    )
    return [*images[: len(set(names))], pair]


def read_image(item: ItemRow, picture: Picture, config: SourceConfig, *, about: About) -> ImageRow | Dropped:
    """Return one decodable image, or why there is none."""
    read = _decode(item, picture, config, about=about)
    return read if isinstance(read, Dropped) else read[0]


def dropped(item: ItemRow, reason: str, detail: str = "") -> Dropped:
    """Refuse an item; the detail begins with its name."""
    return Dropped(source_key=item.key, reason=reason, detail=f"{item.name}: {detail}" if detail else item.name)


def _decode(item: ItemRow, picture: Picture, config: SourceConfig, *, about: About) -> tuple[ImageRow, RGB] | Dropped:
    limit = config.images.max_bytes
    if len(picture.data) > limit:
        return dropped(item, "file too large", f"{picture.name}: {len(picture.data)} bytes, the limit is {limit}")
    try:
        info = probe_image(picture.data, config.images)
        pixels = decode_rgb(picture.data)
    except RefusedImageError as refused:
        return dropped(item, refused.reason, f"{picture.name}: {refused.detail}".removesuffix(": "))
    key = make_key(picture.data)
    row = ImageRow(
        key=key,
        source_key=item.key,
        subject=key,
        image=picture.data,
        format=info.format,
        width=pixels.shape[1],
        height=pixels.shape[0],
        name=picture.name,
        source=config.kind,
        licence=config.images.licence or about.licence,
        group=about.group,
        captions=picture.captions,
    )
    return row, pixels
