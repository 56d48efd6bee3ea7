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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import pyarrow as pa

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ItemRow, PairRow, make_key
from pairwright.tasks.sources.annotations import load_json, texts_of
from pairwright.tasks.sources.layouts import Entry, Layout, Listed, list_entries, read_entries
from pairwright.tasks.sources.open_table import need, only_cell
from pairwright.tasks.sources.read_entry import About, RefusedEntryError, check_path, read_pair
from pairwright.tasks.sources.reader import Given, Read
from pairwright.tasks.sources.tables import TableRow, table_reader

SEEDS = "seeds.json"
Prompts = tuple[tuple[str, ...], tuple[str, ...], str]
"""Captions of the image before the edit and after it, and the edit."""


def _is_folder_form(path: str) -> bool:
    return "://" not in path and (Path(path) / SEEDS).is_file()


def _entries(layout: Layout) -> Iterator[Listed]:
    layout.choose_splits(())
    prompts_of = lru_cache(1)(partial(_folder_prompts, layout))
    for number, entry in enumerate(load_json(layout.root / SEEDS, list)):
        match entry:
            case [str() | int() as name, list() as seeds] if all(isinstance(seed, int | str) for seed in seeds):
                name = f"{name:07d}" if isinstance(name, int) else name
                for seed in seeds:
                    yield f"{name}/{seed}"[:200], partial(_sample, name, str(seed), prompts_of)
            case _:
                yield f"{SEEDS} entry {number}", RefusedEntryError("damaged entry")


def _folder_prompts(layout: Layout, name: str) -> Prompts:
    try:
        record = load_json(layout.root / name / "prompt.json", dict)
    except SourceError as error:
        raise RefusedEntryError("damaged prompt", str(error)) from error
    before = texts_of(record.get("input")) or texts_of(record.get("caption"))
    return before, texts_of(record.get("output")), _edit(record.get("edit"))


def _edit(value: object) -> str:
    texts = texts_of(value)
    if not texts:
        raise RefusedEntryError("damaged prompt", "no edit")
    return texts[0]


def _sample(name: str, seed: str, prompts_of: Callable[[str], Prompts]) -> Entry:
    before, after = (check_path(f"{name}/{seed}_{side}.jpg") for side in (0, 1))
    if "/" in seed:
        raise RefusedEntryError("path leaves the folder", seed)
    *captions, edit = prompts_of(name)
    about = About(origin="edit", instruction=edit, group=name)
    return Entry(images=(before, after), captions=tuple(captions), about=about)


def _choose(schema: pa.Schema, _: ReadingConfig) -> dict[str, str]:
    return need(schema, ("original_prompt", "edit_prompt", "edited_prompt"), images=("original_image", "edited_image"))


def _read_row(row: TableRow) -> Iterable[Given]:
    before, after = (texts_of(row.record[f"{side}_prompt"]) for side in ("original", "edited"))
    edit = _edit(row.record["edit_prompt"])
    sides = (("original_image", before), ("edited_image", after))
    pictures = [row.picture(only_cell(row.record[side]), captions, side) for side, captions in sides]
    group = f"prompt-{make_key(*before)[:16]}" if before else ""
    return read_pair(row.item, pictures, row.config, About(origin="edit", group=group, instruction=edit))


_TABLES = table_reader(
    _choose,
    _read_row,
    kind="instructpix2pix",
    about="InstructPix2Pix: an image, an edit instruction, the edited image; folder with seeds.json, or Parquet",
    example="instructpix2pix:hf://datasets/timbrooks/instructpix2pix-clip-filtered",
    details=__doc__ or "",
    brings=(PairRow,),
    recognises=_is_folder_form,
)


def _list_items(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    if _is_folder_form(config.path):
        return list_entries(config, limit, entries=_entries)
    return _TABLES.list_items(config, limit)


def _read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[Read]:
    if _is_folder_form(config.path):
        return read_entries(items, config)
    return _TABLES.read_items(items, config)


READER = replace(_TABLES, list_items=_list_items, read_items=_read_items)
