"""Render photographs of synthetic worlds with known objects and changes.

Lists one ``ItemRow`` per world and reads one into an ``ImageRow`` per photograph, with its scene
graph. Needs Mitsuba and Open Image Denoise, which are loaded only when a world is read; no network
and no file.

An item's key hashes everything that determines its pixels: the settings, the world's number, the
releases of renderer and denoiser, and ``SCENES_VERSION``, which is raised whenever this code draws
or renders differently.
"""

import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from pairwright.schemas.config import ScenesConfig, SourceConfig
from pairwright.schemas.rows import Dropped, ImageRow, ItemRow, make_key
from pairwright.tasks.images.decode import encode_png
from pairwright.tasks.sources.reader import Reader

SCENES_VERSION = 5
LICENCE = "CC0-1.0"


def list_items(source: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield the worlds; a limit may leave the last one with fewer photographs."""
    config = source.scenes
    remaining = config.worlds * config.photographs if limit is None else limit
    for index in range(config.worlds):
        photographs = min(config.photographs, remaining)
        if photographs <= 0:
            return
        key = _world_key(config, index, photographs)
        locator = json.dumps({"world": index, "photographs": photographs}, sort_keys=True)
        yield ItemRow(
            key=key, source_key=key, subject=key, name=f"world-{index:05d}", locator=locator
        )
        remaining -= photographs


def _world_key(config: ScenesConfig, index: int, photographs: int) -> str:
    """Return the hash of everything that determines the pixels of a world's photographs."""
    settings = (
        config.seed,
        config.width,
        config.height,
        config.samples_per_pixel,
        config.no_change_share,
    )
    releases = (version("mitsuba"), version("pyoidn"))
    return make_key("scene", SCENES_VERSION, *releases, *settings, index, photographs)


def read_items(items: Sequence[ItemRow], source: SourceConfig) -> Iterator[ImageRow | Dropped]:
    """Yield the photographs of the worlds, or the reason why there is none."""
    from pairwright.tasks.scenes.world import photograph_world  # loads Mitsuba

    for item in items:
        locator = json.loads(item.locator)
        settings = source.scenes.model_copy(update={"photographs": locator["photographs"]})
        for number, photograph in enumerate(photograph_world(settings, locator["world"])):
            name = f"{item.name}/photograph-{number}.png"
            if photograph is None:
                yield Dropped(source_key=item.key, reason="no arrangement found", detail=name)
                continue
            pixels, graph = photograph
            image = encode_png(pixels)
            key = make_key(image)
            yield ImageRow(
                key=key,
                source_key=item.key,
                subject=key,
                image=image,
                format="png",
                width=pixels.shape[1],
                height=pixels.shape[0],
                name=name,
                source="scenes",
                licence=LICENCE,
                group=item.name,
                graph=graph,
            )


READER = Reader(
    kind="scenes",
    has_graphs=True,
    about="rendered table-top, room and street scenes with known truth",
    example="scenes:",
    details=__doc__ or "",
    list_items=list_items,
    read_items=read_items,
    needs_path=False,
    rows_per_shard=4,
)
