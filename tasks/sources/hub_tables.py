"""Read Parquet tables: data sets with columns of their own, and any table of images.

LLaVA-ReCap, InstructPix2Pix, Scene-Difference, RLAIF-V-Dataset; then ``parquet``.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from pairwright.schemas.config import ReadingConfig
from pairwright.schemas.rows import PairRow, PreferenceRow, Turn, make_key
from pairwright.tasks.sources import parquet_tables
from pairwright.tasks.sources.annotations import MAX_TEXTS, texts_of
from pairwright.tasks.sources.find_files import holds
from pairwright.tasks.sources.parquet_tables import (
    Choose,
    TableRow,
    cells_of,
    only_cell,
    table_reader,
    wrong_columns,
)
from pairwright.tasks.sources.read_entry import EntryMetadata, read_image, read_pair
from pairwright.tasks.sources.reader import Given, RefusedEntryError, shown_name

RLAIF_V_TEXTS = ("question", "chosen", "rejected")
RLAIF_V_NOTES = ("ds_name", "origin_dataset", "idx")
"""Columns with the origin of a row."""


def _columns(*needed: str, images: Sequence[str], more: Sequence[str] = ()) -> Choose:
    """Return a function that chooses the columns of a data set, with those ``more`` that not every release has."""

    def choose(schema: pa.Schema, _: ReadingConfig) -> dict[str, str]:
        return parquet_tables.need(
            schema, (*needed, *(name for name in more if name in schema.names)), images=images
        )

    return choose


def _read_captioned(row: TableRow) -> Iterable[Given]:
    conversation = row.record["conversations"]
    turns = conversation if isinstance(conversation, list) else []
    answers = (
        turn.get("value") for turn in turns if isinstance(turn, dict) and turn.get("from") == "gpt"
    )
    captions = tuple(text for answer in answers for text in texts_of(answer))[:1]
    if not captions:
        raise RefusedEntryError("no caption")
    picture = row.picture(
        only_cell(row.record["image"]), captions, shown_name(str(row.record["id"])[:200])
    )
    return [read_image(row.item, picture, row.config, EntryMetadata())]


LLAVA_RECAP = table_reader(
    _columns("id", "conversations", images=("image",)),
    _read_captioned,
    kind="llava-recap",
    about="LLaVA-ReCap-CC3M: images with long captions, Parquet",
    example="llava-recap:hf://datasets/lmms-lab/LLaVA-ReCap-CC3M",
    details="""LLaVA-ReCap (lmms-lab/LLaVA-ReCap-CC3M and its like): Parquet with an image and a conversation.

Reads one row into an ImageRow with the first answer of the conversation as caption. No licence of the images is known.
""",
)


def _read_edit(row: TableRow) -> Iterable[Given]:
    before, after, edit = (
        texts_of(row.record[f"{name}_prompt"]) for name in ("original", "edited", "edit")
    )
    if not edit:
        raise RefusedEntryError("damaged prompt", "no edit")
    sides = (("original_image", before), ("edited_image", after))
    pictures = [
        row.picture(only_cell(row.record[side]), captions, side) for side, captions in sides
    ]
    group = f"prompt-{make_key(*before)[:16]}" if before else ""
    about = EntryMetadata(origin="edit", group=group, instruction=edit[0], split=row.split)
    return read_pair(row.item, pictures, row.config, about)


INSTRUCTPIX2PIX = table_reader(
    _columns(
        "original_prompt", "edit_prompt", "edited_prompt", images=("original_image", "edited_image")
    ),
    _read_edit,
    kind="instructpix2pix",
    about="InstructPix2Pix: an image, an edit instruction, the edited image, Parquet",
    example="instructpix2pix:hf://datasets/timbrooks/instructpix2pix-clip-filtered",
    details="""InstructPix2Pix as the Hub holds it: Parquet with an image, an edit and the edited image.

Reads one row (original_prompt, original_image, edit_prompt, edited_prompt, edited_image) into the PairRow of its two
images: origin "edit", the edit as instruction, the two prompts as the images' captions. Rows with the same original
prompt are one group. The set passed a CLIP filter of its own, so nothing is filtered again. No licence is stated.""",
    brings=(PairRow,),
)


def _read_difference(row: TableRow) -> Iterable[Given]:
    cells = cells_of(row.record["images"])
    if len(cells) != 2:
        raise RefusedEntryError("not two images", str(len(cells)))
    turns = row.record["texts"] if isinstance(row.record["texts"], list) else []
    answers = (turn.get("assistant") for turn in turns[:MAX_TEXTS] if isinstance(turn, dict))
    texts = tuple(text for answer in answers for text in texts_of(answer))
    if not texts:
        raise RefusedEntryError("no text about the difference")
    pictures = [row.picture(cell, part=f"image {number}") for number, cell in enumerate(cells, 1)]
    return read_pair(
        row.item, pictures, row.config, EntryMetadata(human_differences=texts, split=row.split)
    )


SCENE_DIFFERENCE = table_reader(
    _columns("texts", images=("images",)),
    _read_difference,
    kind="scene-difference",
    about="Scene-Difference (CGD): pairs of COCO photographs with texts about what differs, Parquet",
    example="scene-difference:hf://datasets/HuggingFaceM4/the_cauldron/mimic_cgd",
    details="""Scene-Difference (CaD-VI's name): MIMIC-IT's general differences, as the_cauldron's mimic_cgd holds them.

Reads one row, images and texts (user, assistant, source), into the PairRow of its two images, whose human differences
are the assistant's answers, though a model wrote them. A row of another number of images is dropped. The photographs
are COCO's, each under its own licence, so that none is stated.""",
    brings=(PairRow,),
)


def _read_preference(row: TableRow) -> Iterable[Given]:
    texts = {name: " ".join(texts_of(row.record[name])) for name in RLAIF_V_TEXTS}
    if missing := next((name for name in RLAIF_V_TEXTS if not texts[name]), ""):
        raise RefusedEntryError("no question or answer", missing)
    if texts["chosen"] == texts["rejected"]:
        raise RefusedEntryError("chosen is rejected")
    picture = row.picture(only_cell(row.record["image"]))
    image = read_image(row.item, picture, row.config, EntryMetadata(licence="CC-BY-NC-4.0"))
    model = answering_model(row.record.get("origin_split"))
    preference = PreferenceRow(
        key=make_key(
            "preference", image.key, texts["question"], texts["chosen"], texts["rejected"], model
        ),
        source_key=row.item.key,
        subject=image.key,
        prompt=(Turn(role="user", text=texts["question"]),),
        images=(image.image,),
        image_keys=(image.key,),
        chosen=texts["chosen"],
        chosen_model=model,
        rejected=texts["rejected"],
        rejected_maker="given",
        rejected_note=" ".join(
            shown_name(str(row.record[n])[:100]) for n in RLAIF_V_NOTES if row.record.get(n)
        ),
        component=image.key,
        split="train",
        sources=(image.source,),
        licences=(image.licence,),
    )
    return [image, preference]


def answering_model(text: Any) -> str:
    """Return the model that ``origin_split`` names; the data set's own name if it names none."""
    try:
        found = json.loads(text) if isinstance(text, str) and len(text) < 10_000 else None
    except (ValueError, RecursionError):
        found = None
    model = found.get("model") if isinstance(found, dict) else None
    return (
        shown_name(model.strip()[:200]) if isinstance(model, str) and model.strip() else "RLAIF-V"
    )


RLAIF_V = table_reader(
    _columns(*RLAIF_V_TEXTS, images=("image",), more=(*RLAIF_V_NOTES, "origin_split")),
    _read_preference,
    kind="rlaif-v",
    about="RLAIF-V-Dataset: preferences about one image, Parquet",
    example="rlaif-v:hf://datasets/openbmb/RLAIF-V-Dataset",
    details="""RLAIF-V-Dataset (openbmb): Parquet with one image, a question, a chosen and a rejected answer.

Reads one row into an ImageRow and the PreferenceRow of its image. origin_split is a JSON text with the model that
answered. All rows are for training, as published; all preferences of one image are in one component. The licence is
that of the data set, CC-BY-NC-4.0.""",
    brings=(PreferenceRow,),
)


IMAGE_NAMES = (
    "image",
    "images",
    "img",
    "jpg",
    "jpeg",
    "png",
    "webp",
    "picture",
    "photo",
    "image_bytes",
    "bytes",
)
"""Names of columns of plain bytes that are taken for images."""
CAPTION_NAMES = (
    "caption",
    "captions",
    "text",
    "texts",
    "sentence",
    "sentences",
    "description",
    "descriptions",
)
MAX_IMAGES = 64
"""Maximum images of one row."""
CAPTION = "caption"
"""Name of the captions in a record; its images have numbers."""


def _choose_columns(schema: pa.Schema, reading: ReadingConfig) -> dict[str, str]:
    """Return the columns of images, in the table's order, and of captions, if one has a usual name."""
    kinds = parquet_tables.kinds_of(schema)
    texts = [
        name
        for name, kind in kinds.items()
        if str(kind) in ("string", "large_string", "string_view")
    ]
    plain = [name for name, kind in kinds.items() if str(kind) in parquet_tables.BYTES]
    structs = [name for name, kind in kinds.items() if parquet_tables.is_struct(kind)]
    if name := reading.image_column:
        if name not in (*texts, *plain, *structs):
            raise wrong_columns(f"reading.image_column: {name!r} holds no images here", schema)
        images = [name]
    else:
        images = (
            structs
            or [name for name in plain if name.lower() in IMAGE_NAMES]
            or (plain if len(plain) == 1 else [])
        )
        if not images:
            raise wrong_columns(
                "no column is known to hold images; name one with reading.image_column", schema
            )
    if name := reading.caption_column:
        if name not in texts:
            raise wrong_columns(f"reading.caption_column: {name!r} holds no texts here", schema)
        captions = [name]
    else:
        by_name = {name.lower(): name for name in reversed(texts)}
        captions = [by_name[name] for name in CAPTION_NAMES if name in by_name][:1]
    numbered = {name: f"image {number}" for number, name in enumerate(images)}
    return numbered | dict.fromkeys((name for name in captions if name not in images), CAPTION)


def _read_row(row: TableRow) -> Iterable[Given]:
    cells = [
        cell for name, value in row.record.items() if name != CAPTION for cell in cells_of(value)
    ]
    if not cells:
        raise RefusedEntryError("no image in the row")
    if len(cells) > MAX_IMAGES:
        raise RefusedEntryError(
            "too many images in a row", f"{len(cells)}, the limit is {MAX_IMAGES}"
        )
    about = EntryMetadata(group=row.item.name if len(cells) > 1 else "")
    captions = texts_of(row.record.get(CAPTION)) if len(cells) == 1 else ()
    images = [
        read_image(row.item, row.picture(cell, captions), row.config, about) for cell in cells
    ]
    return {image.key: image for image in images}.values()


PARQUET = table_reader(
    _choose_columns,
    _read_row,
    kind="parquet",
    about="Parquet files with an image column; local, hf://, s3:// or gs://",
    example="parquet:hf://datasets/OWNER/NAME",
    details="""Read images of Parquet files, from local disks and remote stores.

Lists one ``ItemRow`` per row, from the files' footers, and reads it into an ``ImageRow`` for each image in its image
columns, with its captions. Needs pyarrow; remote addresses (``hf://``, ``s3://``, ``gs://``) need their package for
fsspec.

Image columns are found by type, caption columns by name, or both by ``reading.image_column`` and
``reading.caption_column``. The captions of a row with one image are that image's. Several images of a row are one
group, so that they go to one split; their captions are dropped, since it is unknown which image each describes. An
image given as a path is read from ``reading.images``, or else from the source's folder, never from outside it.""",
    recognises=lambda path: path.startswith("hf://") or holds(path, (".parquet",), "data"),
)
