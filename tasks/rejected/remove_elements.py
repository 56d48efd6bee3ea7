"""Remove single elements from images, for preferences that reject an image.

Reads ``ElementRow`` and the images, writes one ``RemovalRow`` per removable element (paper 004,
section 3.1). Its mask is dilated, the hole filled by LaMa, and the filling blended in over the
feather; all other pixels are unchanged. Shadows stay. A rendered scene is rendered again instead
(``render_removals``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import RemovalsConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import (
    Dropped,
    ElementRow,
    Failed,
    ImageRow,
    Images,
    RemovalRow,
    make_key,
)
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import RGB, decode_rgb
from pairwright.tasks.images.masks import Runs, cut_mask, encode_patch, read_runs
from pairwright.tasks.models.devices import count_gpus, count_processes
from pairwright.tasks.models.lama import Window
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
from pairwright.tasks.perception.edited_removals import REMOVE
from pairwright.tasks.perception.image_faults import ImageFault
from pairwright.tasks.perception.removers import REMOVERS, Filling, Remover
from pairwright.tasks.rejected.measure_removals import measure_distance
from pairwright.tasks.rejected.render_removals import (
    choose_shard_size,
    name_renderer,
    render_without,
)
from pairwright.tasks.store.stage import Stage, Uses

NOT_CHOSEN = "its mask was refused"
OTHER_SIZE = "masks of another size"
EMPTY = "empty mask"
ALL_HOLE = "nothing left to fill the hole from"
GROUP = 256  # holes per call of the inpainter on a device, which cuts them into batches
# memory for the holes that wait for the device, and as much for those that it fills (ours)
ROOM_BYTES = 1 << 30
WAITING = 8  # patches being encoded while the GPU works
CHANGED_PIXEL_BYTES = 8
NETWORK_PIXEL_BYTES = 8


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Cut:
    """Part of an image that a removal changes."""

    window: Window
    pixels: RGB
    weight: NDArray[np.float32]  # weight of the filling at each of them
    hole: Any = None


Filled = tuple[
    ElementRow, Cut, Filling
]  # row, its part of the image, and the filling of the window


def remove_elements(
    rows: Sequence[ElementRow], config: RemovalsConfig, *, images: Images
) -> Iterator[RemovalRow | Dropped | Failed]:
    """Yield the removal of each element, or why it is not removed."""
    for row in rows:
        if row.why:
            yield Dropped(
                source_key=row.key,
                reason=NOT_CHOSEN,
                detail=f"{row.tag}: {row.why}",
            )
    items = [(row, images[row.subject]) for row in rows if not row.why]
    if config.rendered:
        yield from _render_elements(items, config)
    else:
        yield from _fill_elements(items, config)


def _render_elements(
    items: Sequence[Item[ElementRow]], config: RemovalsConfig
) -> Iterator[RemovalRow | Dropped | Failed]:
    version = name_renderer()
    for result in prepare_ahead(items, partial(_render, config), on_gpu=False):
        if isinstance(result, Dropped):
            yield result
        else:
            cut, filling = result.part
            yield _removal(config, version, (result.row, cut, filling))


def _fill_elements(
    items: Sequence[Item[ElementRow]], config: RemovalsConfig
) -> Iterator[RemovalRow | Dropped | Failed]:
    inpainter = REMOVERS.make(config.inpainter, config)
    on_gpu = _has_weights(config) and count_gpus() > 0
    most = _max_waiting(items, config)

    def inpaint_holes(ready: Sequence[Ready[ElementRow, Cut]]) -> Iterator[Filled]:
        fillings = inpainter.inpaint([item.part.hole for item in ready])
        for item, filling in zip(ready, fillings, strict=True):
            yield item.row, item.part, filling

    filled = in_groups(
        items,
        partial(_cut, config, inpainter),
        inpaint_holes,
        on_gpu=on_gpu,
        size=min(GROUP, most),
        batch=max(min(BATCH, most // 4), 1),
        ahead=most,
    )
    write = partial(_removal, config, inpainter.version)
    yield from run_ahead(write, filled, most=WAITING) if on_gpu else map(write, filled)


def _max_waiting(items: Sequence[Item[ElementRow]], config: RemovalsConfig) -> int:
    """Return how many prepared holes may wait, by the memory of the largest one."""
    largest = 1.0
    reach = 2 * _reach(config)
    for row, image in items:
        x0, y0, x1, y1 = row.box
        whole = image.width * image.height
        network = min(whole, 1.25 * config.max_side**2)
        changed = min(whole, (x1 - x0 + reach) * (y1 - y0 + reach))
        largest = max(largest, CHANGED_PIXEL_BYTES * changed + NETWORK_PIXEL_BYTES * network)
    return int(min(max(ROOM_BYTES // largest, 1), AHEAD))


def _cut(
    config: RemovalsConfig,
    inpainter: Remover,
    row: ElementRow,
    image: DecodedImage,
) -> Cut | Dropped:
    """Return an element's part of its image, or why it cannot be removed.

    May run in another process.
    """
    height, width = image.pixels.shape[:2]
    mask = Mask.model_validate_json(row.mask)
    if (mask.height, mask.width) != (height, width):
        sizes = f"{mask.width} x {mask.height} pixels, the image {width} x {height}"
        return Dropped(
            source_key=row.key,
            reason=OTHER_SIZE,
            detail=f"{row.tag}: {sizes}",
        )
    runs = read_runs(mask)
    if not runs.area:
        return Dropped(
            source_key=row.key,
            reason=EMPTY,
            detail=row.tag,
        )
    window, weight = _weigh(runs, config)
    if weight.size == height * width and weight.all():
        return Dropped(
            source_key=row.key,
            reason=ALL_HOLE,
            detail=row.tag,
        )
    return Cut(
        window=window,
        pixels=np.ascontiguousarray(image.pixels[_slices(window)]),
        weight=weight,
        hole=inpainter.prepare(image.pixels, weight > 0, window, row.tag),
    )


def _weigh(runs: Runs, config: RemovalsConfig) -> tuple[Window, NDArray[np.float32]]:
    """Return the changed window and the weight of the filling in it.

    The weight is 1 in the dilated mask, and falls to 0 over the feather.
    """
    reach = _reach(config)
    # No pixel farther than the reach counts, and none nearer to the mask lies outside.
    x0, y0, x1, y1 = runs.box
    left = max(x0 - reach, 0)
    top = max(y0 - reach, 0)
    right = min(x1 + reach, runs.width)
    bottom = min(y1 + reach, runs.height)
    distance = measure_distance(cut_mask(runs, (left, top, right, bottom)))
    weight = np.clip((reach - distance) / (config.feather_pixels + 1), 0, 1).astype(np.float32)
    inner = _box(weight > 0)
    window = (inner[0] + left, inner[1] + top, inner[2] + left, inner[3] + top)
    return window, np.ascontiguousarray(weight[_slices(inner)])


def _render(
    config: RemovalsConfig, row: ElementRow, image: DecodedImage
) -> tuple[Cut, RGB] | Dropped:
    """Return the changed part of an image rendered without an element, and its filling."""
    rendered = render_without(row, image, feather=config.feather_pixels)
    if isinstance(rendered, Dropped):
        return rendered
    after, weight = rendered
    window = _box(weight > 0)
    slices = _slices(window)
    cut = Cut(
        window=window,
        pixels=image.pixels[slices].copy(),
        weight=weight[slices],
    )
    return cut, after[slices]


def _reach(config: RemovalsConfig) -> int:
    """Return the distance from the mask beyond which nothing changes."""
    return config.dilate_pixels + config.feather_pixels + 1


def _box(pixels: NDArray[np.bool_]) -> Window:
    """Return the smallest window around the pixels that are set."""
    import cv2

    x, y, width, height = cv2.boundingRect(pixels.astype(np.uint8))
    return x, y, x + width, y + height


def _slices(window: Window) -> tuple[slice, slice]:
    x0, y0, x1, y1 = window
    return slice(y0, y1), slice(x0, x1)


def _removal(
    config: RemovalsConfig, version: str, result: Filled | Dropped
) -> RemovalRow | Dropped | Failed:
    if isinstance(result, Dropped):
        return result
    row, cut, filling = result
    if isinstance(filling, ImageFault):
        return filling.as_row(row.key, detail=row.tag)
    _check_filling(version, cut, filling)
    difference = filling.astype(np.float32) - cut.pixels
    blended = np.rint(cut.pixels + cut.weight[:, :, None] * difference).astype(np.uint8)
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


def _check_filling(version: str, cut: Cut, filling: RGB) -> None:
    """Raise ``ModelError`` for a filling of another form, as a plugin may give."""
    if filling.shape != cut.pixels.shape or filling.dtype != np.uint8:
        shape = f"{filling.dtype} {filling.shape}"
        raise ModelError(
            f"removals.inpainter: {version} gave {shape}, not uint8 {cut.pixels.shape}"
        )


def _name_models(config: RemovalsConfig) -> tuple[str, ...]:
    if config.rendered:
        return (name_renderer(),)
    return (REMOVERS.make(config.inpainter, config).version,)


def _pin_models(config: RemovalsConfig) -> RemovalsConfig:
    if config.rendered:
        return config.model_copy()
    return REMOVERS.pin(config.inpainter, config, download=config.download)


def _name_prompts(config: RemovalsConfig) -> tuple[str, ...]:
    return (REMOVE,) if config.inpainter == "edited" else ()


def _has_weights(config: RemovalsConfig) -> bool:
    return not config.rendered and REMOVERS.has_weights(config.inpainter)


STAGE = Stage(
    name="removals",
    version=3,
    group="rejected",
    reads={"elements": ElementRow},
    writes=RemovalRow,
    function=remove_elements,
    config=lambda profile: profile.removals,
    prompts=_name_prompts,
    uses=(Uses(table="images", row=ImageRow),),
    models=_name_models,
    pin=_pin_models,
    processes=partial(count_processes, _has_weights),
    rows_per_shard=choose_shard_size,
)
