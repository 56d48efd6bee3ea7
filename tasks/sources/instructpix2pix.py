"""Read InstructPix2Pix in both of its forms: the Hub's Parquet, and the folder that the authors' scripts write.

Reads one sample into the ``PairRow`` of its two images: origin "edit", the edit as ``instruction``, the two prompts as
the images' captions.

* Parquet: ``original_prompt, original_image, edit_prompt, edited_prompt, edited_image``. Rows do not say which samples
  have a prompt in common; those with the same original prompt are one group.
* Folder: ``seeds.json`` (``[[name, [seed, ...]], ...]``), and per name ``prompt.json`` (``edit``, ``input`` or, from
  the generator, ``caption``, and ``output``), ``{seed}_0.jpg`` and ``{seed}_1.jpg``. A name is a group. Local disks.

``seeds.json`` names what passed the data set's own CLIP filter (0.2, 0.2, 0.7; at most four samples per prompt), so
nothing is filtered again and ``metadata.jsonl`` is not read. No licence is stated.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow, PairRow, make_key
from pairwright.tasks.sources.folder import shown_name
from pairwright.tasks.sources.layout.annotations import load_json
from pairwright.tasks.sources.layout.pairs import About, Picture, dropped, read_pair
from pairwright.tasks.sources.layout.read_below import is_below, is_unicode, read_below, size_and_time
from pairwright.tasks.sources.parquet import ROWS_PER_SHARD, image_folder, take_picture
from pairwright.tasks.sources.reader import Reader
from pairwright.tasks.sources.tables.read_rows import list_rows, read_rows
from pairwright.tasks.sources.tables.table_columns import cells_of, need, texts_of

if TYPE_CHECKING:
    import pyarrow as pa

SEEDS = "seeds.json"
LARGEST_PROMPT = 1 << 20
Result = list[ImageRow | PairRow] | Dropped | Failed
Listed = tuple[int, int]
"""Size and time of a file as it was listed."""


def list_items(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield the samples in order: those that ``seeds.json`` names, or the rows of the tables."""
    if not _is_folder_form(config.path):
        yield from list_rows(config, limit, choose=_choose)
        return
    if config.reading.splits:
        raise SourceError(f"{config.path}: reading.splits: this form has no splits; leave it empty")
    count = 0
    for count, item in enumerate(islice(_samples(Path(config.path)), limit), 1):  # noqa: B007 - counted to the end
        yield item
    if not count and limit != 0:
        raise SourceError(f"{config.path}/{SEEDS}: names no samples")


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ImageRow | PairRow | Dropped | Failed]:
    """Yield the pair of each sample with its images, or why there is none."""
    if _is_folder_form(config.path):
        found = (_read_sample(item, config) for item in items)
    else:
        folder = image_folder(config)
        found = (
            record if isinstance(record, Dropped | Failed) else _read_row(item, record, config, folder=folder)
            for item, record in read_rows(items, config, choose=_choose)
        )
    for result in found:
        yield from result if isinstance(result, list) else [result]


def _is_folder_form(path: str) -> bool:
    return "://" not in path and (Path(path) / SEEDS).is_file()


def _samples(root: Path) -> Iterator[ItemRow]:
    """Yield every sample once, even where it is named twice."""
    seen: set[str] = set()
    for item in _named(root):
        if item.key not in seen:
            seen.add(item.key)
            yield item


def _named(root: Path) -> Iterator[ItemRow]:
    for number, entry in enumerate(load_json(root / SEEDS, list)):
        match entry:
            case [str() | int() as name, list() as seeds] if all(isinstance(seed, int | str) for seed in seeds):
                yield from _items_of(root, f"{name:07d}" if isinstance(name, int) else name, seeds)
            case _:
                yield _refused_item(f"{SEEDS} entry {number}", "damaged entry", number)


def _items_of(root: Path, name: str, seeds: Sequence[int | str]) -> Iterator[ItemRow]:
    prompt = size_and_time(str(root), f"{name}/prompt.json")
    for seed in seeds:
        if not is_below(name) or "/" in str(seed) or not is_below(f"{seed}_0.jpg"):
            yield _refused_item(shown_name(f"{name} {seed}"[:200]), "path leaves the folder", 0)
            continue
        both = [size_and_time(str(root), f"{name}/{seed}_{side}.jpg") for side in (0, 1)]
        files = [prompt, *both]
        key = make_key("instructpix2pix", name, str(seed), *(number for file in files for number in file))
        locator = json.dumps({"name": name, "seed": str(seed), "files": files}, ensure_ascii=True)
        yield ItemRow(key=key, source_key=key, subject=key, name=shown_name(f"{name}/{seed}"), locator=locator)


def _refused_item(name: str, reason: str, number: int) -> ItemRow:
    key = make_key("instructpix2pix", name, reason, number)
    return ItemRow(key=key, source_key=key, subject=key, name=name, locator=json.dumps({"refused": reason}))


def _read_sample(item: ItemRow, config: SourceConfig) -> Result:
    place: dict[str, Any] = json.loads(item.locator)
    if "refused" in place:
        return dropped(item, place["refused"])
    name, seed = place["name"], place["seed"]
    data: list[bytes] = []
    paths = (f"{name}/prompt.json", f"{name}/{seed}_0.jpg", f"{name}/{seed}_1.jpg")
    for path, listed in zip(paths, place["files"], strict=True):
        found = read_below(item, config.path, path, config.images, listed=listed)
        if not isinstance(found, bytes):
            return found
        data.append(found)
    prompt = _parse(data[0])
    if prompt is None:
        return dropped(item, "damaged prompt", "prompt.json")
    before, after, edit = prompt
    first, second = (
        Picture(data=data[side + 1], name=shown_name(paths[side + 1]), captions=captions)
        for side, captions in enumerate((before, after))
    )
    return read_pair(item, first, second, config, about=About(origin="edit", group=shown_name(name), instruction=edit))


def _parse(data: bytes) -> tuple[tuple[str, ...], tuple[str, ...], str] | None:
    """Return the captions of both images and the edit, or nothing where there is no edit."""
    try:
        found: Any = json.loads(data) if len(data) <= LARGEST_PROMPT else None
    except (ValueError, RecursionError):
        return None
    return _prompts(found, "input", "caption", "output", "edit") if isinstance(found, dict) else None


def _prompts(
    record: dict[str, Any], before: str, other: str, after: str, edit: str
) -> tuple[tuple[str, ...], tuple[str, ...], str] | None:
    texts = [texts_of(text) if isinstance(text := record.get(name), str) else () for name in (before, other, after)]
    said = texts_of(record.get(edit))
    if not said or not all(is_unicode(text) for part in (*texts, said) for text in part):
        return None
    return texts[0] or texts[1], texts[2], said[0]


def _read_row(item: ItemRow, record: dict[str, Any], config: SourceConfig, *, folder: str) -> Result:
    prompt = _prompts(record, "original_prompt", "original_prompt", "edited_prompt", "edit_prompt")
    if prompt is None:
        return dropped(item, "damaged prompt", "edit_prompt")
    before, after, edit = prompt
    pictures: list[Picture] = []
    for side, captions in (("original_image", before), ("edited_image", after)):
        cells = cells_of(record[side])
        if len(cells) != 1:
            return dropped(item, "no image in the row", side)
        picture = take_picture(item, cells[0], config, folder=folder, captions=captions, part=side)
        if not isinstance(picture, Picture):
            return picture
        pictures.append(picture)
    group = f"prompt-{make_key(*before)[:16]}" if before else ""
    first, second = pictures
    return read_pair(item, first, second, config, about=About(origin="edit", group=group, instruction=edit))


def _choose(schema: "pa.Schema", reading: ReadingConfig) -> dict[str, str]:  # noqa: ARG001 - as for every table

    return need(schema, ("original_prompt", "edit_prompt", "edited_prompt"), images=("original_image", "edited_image"))


def _recognises(path: str) -> bool:
    return _is_folder_form(path)


READER = Reader(
    kind="instructpix2pix",
    about="InstructPix2Pix: an image, an edit instruction, the edited image; folder with seeds.json, or Parquet",
    example="instructpix2pix:hf://datasets/timbrooks/instructpix2pix-clip-filtered",
    list_items=list_items,
    read_items=read_items,
    brings=(PairRow,),
    recognises=_recognises,
    rows_per_shard=ROWS_PER_SHARD,
)
