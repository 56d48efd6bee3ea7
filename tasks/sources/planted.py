"""Plant rendered things into photographs of a folder: pairs whose differences are known.

Reads the images of a folder, as ``folder:`` does. Of each photograph it makes two or more, each
with two to four rendered things of known looks, and pairs them. What differs is known: one to
three things were added, taken away, moved or exchanged, or have another colour, material, size,
pose or text; or the light, the focus or the framing of the photograph. All texts are about the
planted things and these changes, never about the rest of the photograph.

With ``planted.cutouts``, a file in COCO's layout, half of the things are cut out of its photographs
by their masks: a polygon or run lengths in one piece that does not touch the border, of a category
that no rendered thing has and that is not annotated in the photograph itself. Of such a thing
nothing but its noun is known: it is added, taken away, moved or exchanged.

A thing stands where the photograph is plain, never on a face seen from the front (with the extra
``faces``), larger below than above, lit from the photograph's brighter side, whole and uncovered.

Larger photographs are scaled down to ``planted.max_side``. The pixels of a photograph stay as they
are, to the byte, except below a thing and its shadow; what these cover is kept in the scene graph,
so that a thing can be taken away again. Needs Mitsuba and Open Image Denoise, which are loaded only
when a photograph is read; no network.

An item's key hashes the photograph's item, the settings, the releases of renderer and denoiser, and
``PLANTED_VERSION``, which is raised whenever this code draws or renders differently.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import nsmallest
from importlib.metadata import version
from operator import attrgetter

from pairwright.schemas.claims import content_changes
from pairwright.schemas.config import PlantedConfig, SourceConfig
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow, PairRow, make_key
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.images.decode import decode_rgb, encode_png
from pairwright.tasks.images.scale import scale_down
from pairwright.tasks.planting.read_outlines import Outlines, hash_outlines, read_outlines
from pairwright.tasks.sources import folder
from pairwright.tasks.sources.reader import Reader, ReadResult

PLANTED_VERSION = 3
UNDONE = {"addition": "disappearance", "disappearance": "addition"}
NO_ROOM = "no room for things"
NO_IMAGES = "nothing was planted"


def list_items(config: SourceConfig, limit: int | None = None) -> Iterator[ItemRow]:
    """Yield the folder's photographs in order, at most ``limit``, or ``planted.count`` of them."""
    settings = config.planted
    identity = (
        settings.seed,
        settings.photographs,
        settings.max_side,
        settings.samples_per_pixel,
        settings.no_change_share,
        *filter(None, [hash_outlines(settings.cutouts)]),
    )
    releases = (version("mitsuba"), version("pyoidn"))
    photographs: Iterable[ItemRow] = folder.list_items(config, limit)
    if settings.count:
        # Keys are hashes: a photograph that is added later replaces one at most.
        photographs = nsmallest(settings.count, photographs, key=attrgetter("key"))
    for item in photographs:
        key = make_key("planted", PLANTED_VERSION, *releases, *identity, item.key)
        yield replace(item, key=key, source_key=key, subject=key)


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ReadResult]:
    """Yield the planted photographs of each listed file, or why there are none."""
    path = config.planted.cutouts
    outlines = read_outlines(path, hash_outlines(path)) if path else Outlines()
    for item in items:
        for row in folder.read_items([item], config):
            if isinstance(row, ImageRow):
                yield from _plant(item, row, config.planted, outlines)
            else:
                assert isinstance(row, Dropped | Failed)
                yield row


def _plant(
    item: ItemRow, photograph: ImageRow, config: PlantedConfig, outlines: Outlines
) -> Iterator[ReadResult]:
    from pairwright.tasks.planting.photograph_planted import photograph_planted  # loads Mitsuba

    pixels = scale_down(decode_rgb(photograph.image), config.max_side)
    # The same photograph under another name gets the same things.
    number = int(photograph.key[:12], 16)
    planted = photograph_planted(
        pixels,
        config,
        world=photograph.key,
        seeds=(config.seed, number),
        outlines=outlines,
        name=photograph.name,
    )
    if planted is None:
        yield Dropped(source_key=item.key, reason=NO_ROOM, detail=item.name)
        return
    images: list[ImageRow] = []
    for index, made in enumerate(planted):
        data = encode_png(made.pixels)
        key = make_key(data)
        image = replace(
            photograph,
            key=key,
            source_key=item.key,
            subject=key,
            image=data,
            format="png",
            width=made.pixels.shape[1],
            height=made.pixels.shape[0],
            name=f"{item.name}/planted-{index}.png",
            source="planted",
            group=photograph.group or photograph.key,
            captions=(),
            graph=made.graph,
        )
        images.append(image)
    yield from images


def pair_up(item: ItemRow, images: Sequence[ImageRow]) -> Iterator[PairRow | Dropped]:
    """Yield the pairs of an item: the first photograph with each other."""
    if not images:
        yield Dropped(source_key=item.key, reason=NO_IMAGES, detail=item.name)
        return
    first, *others = sorted(images, key=lambda image: image.name)
    for second in others:
        yield _pair(item, first, second)


def _pair(item: ItemRow, first: ImageRow, second: ImageRow) -> PairRow:
    key = make_key("planted pair", first.key, second.key)
    assert first.graph is not None
    assert second.graph is not None
    return PairRow(
        key=key,
        source_key=item.key,
        subject=key,
        first=first.key,
        second=second.key,
        origin="given",
        anchor="",
        cluster=-1,
        change_types=name_changes(first.graph, second.graph),
    )


def name_changes(first: SceneGraph, second: SceneGraph) -> tuple[str, ...]:
    """Return the types of the changes from the first photograph to the second, or "no_change"."""
    before = content_changes(first)
    after = content_changes(second)
    types: set[str] = set()
    for change in after - before:
        types.add(change.type)
    for change in before - after:  # undone in the second
        types.add(UNDONE.get(change.type, change.type))
    return tuple(sorted(types)) or ("no_change",)


READER = Reader(
    kind="planted",
    has_graphs=True,
    about="photographs of a folder with rendered things planted into them: known differences",
    example="planted:PHOTOS",
    details=__doc__ or "",
    list_items=list_items,
    read_items=read_items,
    pair_up=pair_up,
    brings=(PairRow,),
    rows_per_shard=4,
)
