"""Remove single elements from images, for preferences that reject an image (paper 004, section 3.1).

Reads ``ElementRow`` and the images, writes one ``RemovalRow`` per removable element. Its mask is
dilated, the hole filled by LaMa, and the filling blended in over the feather; all other pixels are
unchanged. Shadows stay. A rendered scene is rendered again instead (``render_removals``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import RemovalsConfig
from pairwright.schemas.rows import Dropped, ElementRow, ImageRow, Images, RemovalRow, make_key
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import RGB, decode_rgb
from pairwright.tasks.images.masks import cut_mask, encode_patch, read_runs
from pairwright.tasks.models.devices import count_gpus, count_processes
from pairwright.tasks.models.lama import LamaInpainter, Window, pin_lama
from pairwright.tasks.models.prepare_ahead import (
    AHEAD,
    BATCH,
    DecodedImage,
    Item,
    Ready,
    in_groups,
    prepare_ahead,
    run_ahead,
)
from pairwright.tasks.rejected.measure_removals import measure_distance
from pairwright.tasks.rejected.render_removals import fit_renderer, name_renderer, render_without
from pairwright.tasks.store.stage import Stage, Uses

NOT_CHOSEN = "its mask was refused"
OTHER_SIZE, EMPTY, ALL_HOLE = (
    "masks of another size",
    "empty mask",
    "nothing left to fill the hole from",
)
GROUP = 256  # holes per call of the inpainter on a device, which cuts them into batches
ROOM_BYTES = (
    1 << 30
)  # memory for the holes that wait for the device, and as much for those that it fills (ours)
WAITING = 8  # patches being encoded while the GPU works


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Part of an image that a removal changes."""

    window: Window
    pixels: RGB
    weight: NDArray[np.float32]  # weight of the filling at each of them
    hole: Any = None


Filled = tuple[ElementRow, Cut, RGB]  # row, its part of the image, and the filling of the window


def remove_elements(
    rows: Sequence[ElementRow], config: RemovalsConfig, *, images: Images
) -> Iterator[RemovalRow | Dropped]:
    """Yield the removal of each element, or why it is not removed."""
    for row in rows:
        if row.why:
            yield Dropped(source_key=row.key, reason=NOT_CHOSEN, detail=f"{row.tag}: {row.why}")
    items = [(row, images[row.subject]) for row in rows if not row.why]
    if config.rendered:
        taken = prepare_ahead(items, partial(_render, config), on_gpu=False)
        filled = (one if isinstance(one, Dropped) else (one.row, *one.part) for one in taken)
        yield from map(partial(_removal, config, name_renderer()), filled)
        return
    inpainter, on_gpu = LamaInpainter(config=config), count_gpus() > 0
    most = _most(items, config)

    def fill(ready: Sequence[Ready[ElementRow, Cut]]) -> Iterator[Filled]:
        for one, filled in zip(
            ready, inpainter.fill([one.part.hole for one in ready]), strict=True
        ):
            yield one.row, one.part, filled

    cut, batch = partial(_cut, config, inpainter), max(min(BATCH, most // 4), 1)
    filled = in_groups(
        items, cut, fill, on_gpu=on_gpu, size=min(GROUP, most), batch=batch, ahead=most
    )
    write = partial(_removal, config, inpainter.version)
    yield from run_ahead(write, filled, most=WAITING) if on_gpu else map(write, filled)


def _most(items: Sequence[Item[ElementRow]], config: RemovalsConfig) -> int:
    """Return how many prepared holes may wait: 8 bytes per changed pixel, and 8 per pixel of a network's input."""
    largest, reach = 1.0, 2 * _reach(config)
    for row, image in items:
        whole, (x0, y0, x1, y1) = image.width * image.height, row.box
        seen = min(whole, 1.25 * config.max_side**2)
        largest = max(largest, 8 * (min(whole, (x1 - x0 + reach) * (y1 - y0 + reach)) + seen))
    return int(min(max(ROOM_BYTES // largest, 1), AHEAD))


def _cut(
    config: RemovalsConfig, inpainter: LamaInpainter, row: ElementRow, seen: DecodedImage
) -> Cut | Dropped:
    """Return an element's part of its image, or why it cannot be removed; may run in another process."""
    height, width = seen.pixels.shape[:2]
    mask = Mask.model_validate_json(row.mask)
    if (mask.height, mask.width) != (height, width):
        sizes = f"{mask.width} x {mask.height} pixels, the image {width} x {height}"
        return Dropped(source_key=row.key, reason=OTHER_SIZE, detail=f"{row.tag}: {sizes}")
    runs, reach = read_runs(mask), _reach(config)
    if not runs.area:
        return Dropped(source_key=row.key, reason=EMPTY, detail=row.tag)
    x0, y0, x1, y1 = (
        runs.box
    )  # no pixel farther than the reach counts, and none nearer to the mask lies outside
    left, top = max(x0 - reach, 0), max(y0 - reach, 0)
    distance = measure_distance(
        cut_mask(runs, (left, top, min(x1 + reach, width), min(y1 + reach, height)))
    )
    # The weight of the filling is 1 in the dilated mask, and falls to 0 over the feather.
    weight = np.clip((reach - distance) / (config.feather_pixels + 1), 0, 1).astype(np.float32)
    inner = _box(weight > 0)
    weight = np.ascontiguousarray(weight[_slices(inner)])
    if weight.size == height * width and weight.all():
        return Dropped(source_key=row.key, reason=ALL_HOLE, detail=row.tag)
    window = inner[0] + left, inner[1] + top, inner[2] + left, inner[3] + top
    pixels, hole = np.ascontiguousarray(seen.pixels[_slices(window)]), weight > 0
    return Cut(
        window=window,
        pixels=pixels,
        weight=weight,
        hole=inpainter.prepare(seen.pixels, hole, window),
    )


def _render(
    config: RemovalsConfig, row: ElementRow, seen: DecodedImage
) -> tuple[Cut, RGB] | Dropped:
    """Return the changed part of an image rendered without an element, and its filling."""
    taken = render_without(row, seen, feather=config.feather_pixels)
    if isinstance(taken, Dropped):
        return taken
    after, weight = taken
    window = _box(weight > 0)
    place = _slices(window)
    return Cut(window=window, pixels=seen.pixels[place].copy(), weight=weight[place]), after[place]


def _reach(config: RemovalsConfig) -> int:
    """Return the distance from the mask beyond which nothing changes."""
    return config.dilate_pixels + config.feather_pixels + 1


def _box(pixels: NDArray[np.bool_]) -> Window:
    """Return the smallest window around the pixels that are set."""
    import cv2

    x, y, width, height = cv2.boundingRect(pixels.astype(np.uint8))
    return x, y, x + width, y + height


def _slices(window: Window) -> tuple[slice, slice]:
    return slice(window[1], window[3]), slice(window[0], window[2])


def _removal(
    config: RemovalsConfig, version: str, result: Filled | Dropped
) -> RemovalRow | Dropped:
    if isinstance(result, Dropped):
        return result
    row, cut, filled = result
    blended = np.rint(
        cut.pixels + cut.weight[:, :, None] * (filled.astype(np.float32) - cut.pixels)
    ).astype(np.uint8)
    patch = encode_patch(blended)
    changed = (decode_rgb(patch) != cut.pixels).any(axis=2)
    return RemovalRow(
        key=make_key("removal", row.key),
        source_key=row.key,
        subject=row.key,
        image_key=row.subject,
        tag=row.tag,
        object_ids=row.object_ids,
        box=row.box,
        mask=row.mask,
        window=cut.window,
        patch=patch,
        area_share=row.area_share,
        dilate=0 if config.rendered else config.dilate_pixels,
        feather=config.feather_pixels,
        inpainter=version,
        changed_outside=int(changed[cut.weight == 0].sum()),
    )


def _name_models(config: RemovalsConfig) -> tuple[str, ...]:
    if config.rendered:
        return (name_renderer(),)
    return (LamaInpainter(config=config).version,)


def _pin_models(config: RemovalsConfig) -> RemovalsConfig:
    pinned = (
        {"lama": pin_lama(config.lama, download=config.download)} if _has_weights(config) else {}
    )
    return config.model_copy(update=pinned)


def _has_weights(config: RemovalsConfig) -> bool:
    return not config.rendered


STAGE = Stage(
    name="removals",
    version=3,
    group="rejected",
    reads={"elements": ElementRow},
    writes=RemovalRow,
    function=remove_elements,
    config=lambda profile: profile.removals,
    uses=(Uses(table="images", row=ImageRow),),
    models=_name_models,
    pin=_pin_models,
    processes=partial(count_processes, _has_weights),
    fit=fit_renderer,
)
