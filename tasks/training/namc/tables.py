"""What frozen models see of each image, for NAMC of the paper's size: two tables, each of one model (paper 001, 3.2).

Reads ``ImageRow``, writes one ``PlacesRow`` per image. ``grids``: the CNN's features, 14 x 14 x 1024 float16, 401 kB an
image. ``codes``: the VQGAN's codes, 392 bytes. Each table is known by its own model's weights, so that another VQGAN
makes no features anew. Memory of a process: the model, 64 images at a time on the device, and a shard's rows three
times over, 240 MB. On a GPU, other processes decode the next images while the device works.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pairwright.schemas.namc import CnnConfig, VqganConfig
from pairwright.schemas.rows import Dropped, ImageRow, PlacesRow, make_key
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.namc_places import AT_ONCE, CROP, PlaceEncoder, load_codes, load_grids, pin_weights
from pairwright.tasks.models.prepare_ahead import BATCH, Ready, Seen, by_image, in_groups, prepare_ahead
from pairwright.tasks.models.preprocess import Pixels
from pairwright.tasks.store.stage import Stage


def encode_grids(rows: Sequence[ImageRow], config: CnnConfig) -> Iterator[PlacesRow | Dropped]:
    """Yield the CNN's features of each image."""
    return _encode(rows, partial(load_grids, config.model_dump_json()), name_cnn(config)[0])


def encode_codes(rows: Sequence[ImageRow], config: VqganConfig) -> Iterator[PlacesRow | Dropped]:
    """Yield the VQGAN's codes of each image."""
    return _encode(rows, partial(load_codes, config.model_dump_json()), name_vqgan(config)[0])


def _encode(rows: Sequence[ImageRow], load: Callable[[], PlaceEncoder], model: str) -> Iterator[PlacesRow | Dropped]:
    if not rows:
        return
    encoder, on_gpu = load(), count_gpus() > 0
    ready = prepare_ahead([(row, row) for row in rows], by_image(_crop), on_gpu=on_gpu, ahead=8 * BATCH)
    yield from in_groups(ready, partial(_rows, encoder, model), size=AT_ONCE if on_gpu else BATCH)


def _crop(seen: Seen) -> Pixels:
    return CROP(seen.pixels)


def _rows(encoder: PlaceEncoder, model: str, images: Sequence[Ready[ImageRow, Pixels]]) -> Iterator[PlacesRow]:
    found = encoder.encode([image.part for image in images])
    little = found.astype(found.dtype.newbyteorder("<"), copy=False)
    for image, values in zip(images, little, strict=True):
        key = image.row.key
        yield PlacesRow(
            key=make_key("places", key, model),
            source_key=key,
            subject=key,
            model=model,
            kind=encoder.kind.__name__,
            width=encoder.width,
            values=values.tobytes(),
        )


def name_cnn(config: CnnConfig) -> tuple[str]:
    """Return the CNN with its revision, for the table's fingerprint."""
    return (f"{config.model} {config.revision or config.checkpoint or 'main'}",)


def name_vqgan(config: VqganConfig) -> tuple[str]:
    """Return the VQGAN's revision."""
    return (f"vqgan {config.revision or config.checkpoint}",)


def count_processes(_config: CnnConfig | VqganConfig) -> int:
    """Return how many processes load the model: one per GPU; without one, as many as there are workers."""
    return count_gpus()


def _stage(name: str, config: str, **own: Any) -> Stage:
    """Return a stage that looks at the images of pairs."""
    return Stage(
        name=name,
        version=1,
        group="training",
        reads={"images": ImageRow},
        writes=PlacesRow,
        config=config,
        processes=count_processes,
        without=("graph",),
        only_in=("pairs",),
        **own,
    )


GRIDS = _stage("grids", "cnn", function=encode_grids, models=name_cnn, pin=pin_weights, rows_per_shard=200)
CODES = _stage("codes", "vqgan", function=encode_codes, models=name_vqgan, pin=pin_weights, rows_per_shard=1000)
