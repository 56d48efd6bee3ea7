"""Read Parquet tables: data sets with columns of their own, and any table of images.

LLaVA-ReCap, InstructPix2Pix, Scene-Difference, RLAIF-V-Dataset; then ``parquet``.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pairwright.schemas.config import ReadingConfig
from pairwright.schemas.rows import PairRow, PreferenceRow, Turn, make_key
from pairwright.tasks.sources import parquet_tables
from pairwright.tasks.sources.annotations import MAX_TEXTS, usable_texts
from pairwright.tasks.sources.find_files import has_files
from pairwright.tasks.sources.parquet_tables import (
    Cell,
    ChooseColumns,
    TableRow,
    images_in,
    only_cell,
    table_reader,
    wrong_columns,
)
from pairwright.tasks.sources.read_entry import EntryMetadata, read_image, read_pair
from pairwright.tasks.sources.reader import RefusedEntryError, SourceRow, escape_name

RLAIF_V_TEXTS = ("question", "chosen", "rejected")
RLAIF_V_NOTES = ("ds_name", "origin_dataset", "idx")
"""Columns with the origin of a row."""


def _columns(*required: str, images: Sequence[str], optional: Sequence[str] = ()) -> ChooseColumns:
    """Return a function that chooses the columns of a data set.

    Not every release has the ``optional`` ones.
    """

    def choose(schema: pa.Schema, _: ReadingConfig) -> dict[str, str]:
        present = [name for name in optional if name in schema.names]
        return parquet_tables.require_columns(schema, (*required, *present), images=images)

    return choose


def _list_of(value: Any) -> list[Any]:
    """Return a value that is a list; else an empty list."""
    return value if isinstance(value, list) else []


def _read_captioned(row: TableRow) -> Iterable[SourceRow]:
    captions = _first_answer(row.record["conversations"])
    if not captions:
        raise RefusedEntryError("no caption")
    label = escape_name(str(row.record["id"])[:200])
    picture = row.picture(only_cell(row.record["image"]), captions, label)
    return [read_image(row.item, picture, row.config, EntryMetadata())]


def _first_answer(conversation: Any) -> tuple[str, ...]:
    """Return the first answer that is a text; empty if there is none."""
    for turn in _list_of(conversation):
        if isinstance(turn, dict) and turn.get("from") == "gpt":
            texts = usable_texts(turn.get("value"))
            if texts:
                return texts[:1]
    return ()


LLAVA_RECAP = table_reader(
    _columns("id", "conversations", images=("image",)),
    _read_captioned,
    kind="llava-recap",
    about="LLaVA-ReCap-CC3M: images with long captions, Parquet",
    example="llava-recap:hf://datasets/lmms-lab/LLaVA-ReCap-CC3M",
    details="""\
LLaVA-ReCap (lmms-lab/LLaVA-ReCap-CC3M and its like): Parquet with an image and a conversation.

Reads one row into an ImageRow with the first answer of the conversation as caption. No licence
of the images is known.
""",
)


def _read_edit(row: TableRow) -> Iterable[SourceRow]:
    before = usable_texts(row.record["original_prompt"])
    after = usable_texts(row.record["edited_prompt"])
    edit = usable_texts(row.record["edit_prompt"])
    if not edit:
        raise RefusedEntryError("damaged prompt", "no edit")
    pictures = [
        row.picture(only_cell(row.record["original_image"]), before, "original_image"),
        row.picture(only_cell(row.record["edited_image"]), after, "edited_image"),
    ]
    group = f"prompt-{make_key(*before)[:16]}" if before else ""
    metadata = EntryMetadata(origin="edit", group=group, instruction=edit[0], split=row.split)
    return read_pair(row.item, pictures, row.config, metadata)


INSTRUCTPIX2PIX = table_reader(
    _columns(
        "original_prompt", "edit_prompt", "edited_prompt", images=("original_image", "edited_image")
    ),
    _read_edit,
    kind="instructpix2pix",
    about="InstructPix2Pix: an image, an edit instruction, the edited image, Parquet",
    example="instructpix2pix:hf://datasets/timbrooks/instructpix2pix-clip-filtered",
    details="""\
InstructPix2Pix as the Hub holds it: Parquet with an image, an edit and the edited image.

Reads one row (original_prompt, original_image, edit_prompt, edited_prompt, edited_image) into
the PairRow of its two images: origin "edit", the edit as instruction, the two prompts as the
images' captions. Rows with the same original prompt are one group. The set passed a CLIP filter
of its own, so nothing is filtered again. No licence is stated.""",
    brings=(PairRow,),
)


def _read_difference(row: TableRow) -> Iterable[SourceRow]:
    cells = images_in(row.record["images"])
    if len(cells) != 2:
        raise RefusedEntryError("not two images", str(len(cells)))
    texts: list[str] = []
    for turn in _list_of(row.record["texts"])[:MAX_TEXTS]:
        if isinstance(turn, dict):
            texts += usable_texts(turn.get("assistant"))
    if not texts:
        raise RefusedEntryError("no text about the difference")
    pictures = [row.picture(cell, part=f"image {number}") for number, cell in enumerate(cells, 1)]
    metadata = EntryMetadata(human_differences=tuple(texts), split=row.split)
    return read_pair(row.item, pictures, row.config, metadata)


SCENE_DIFFERENCE = table_reader(
    _columns("texts", images=("images",)),
    _read_difference,
    kind="scene-difference",
    about=(
        "Scene-Difference (CGD): pairs of COCO photographs with texts about what differs, Parquet"
    ),
    example="scene-difference:hf://datasets/HuggingFaceM4/the_cauldron/mimic_cgd",
    details="""\
Scene-Difference (CaD-VI's name): MIMIC-IT's general differences, as the_cauldron's mimic_cgd
holds them.

Reads one row, images and texts (user, assistant, source), into the PairRow of its two images,
whose human differences are the assistant's answers, though a model wrote them. A row of another
number of images is dropped. The photographs are COCO's, each under its own licence, so that
none is stated.""",
    brings=(PairRow,),
)


def _read_preference(row: TableRow) -> Iterable[SourceRow]:
    texts = {name: " ".join(usable_texts(row.record[name])) for name in RLAIF_V_TEXTS}
    for name in RLAIF_V_TEXTS:
        if not texts[name]:
            raise RefusedEntryError("no question or answer", name)
    question = texts["question"]
    chosen = texts["chosen"]
    rejected = texts["rejected"]
    if chosen == rejected:
        raise RefusedEntryError("chosen is rejected")
    picture = row.picture(only_cell(row.record["image"]))
    image = read_image(row.item, picture, row.config, EntryMetadata(licence="CC-BY-NC-4.0"))
    model = answering_model(row.record.get("origin_split"))
    notes = [str(row.record[name])[:100] for name in RLAIF_V_NOTES if row.record.get(name)]
    preference = PreferenceRow(
        key=make_key("preference", image.key, question, chosen, rejected, model),
        source_key=row.item.key,
        subject=image.key,
        prompt=(Turn(role="user", text=question),),
        images=(image.image,),
        image_keys=(image.key,),
        chosen=chosen,
        chosen_model=model,
        rejected=rejected,
        rejected_maker="given",
        rejected_note=" ".join(map(escape_name, notes)),
        component=image.key,
        split="train",
        sources=(image.source,),
        licences=(image.licence,),
    )
    return [image, preference]


def answering_model(text: Any) -> str:
    """Return the model that ``origin_split`` names; the data set's own name if it names none."""
    unknown = "RLAIF-V"
    if not isinstance(text, str) or len(text) >= 10_000:
        return unknown
    try:
        origin = json.loads(text)
    except (ValueError, RecursionError):
        return unknown
    model = origin.get("model") if isinstance(origin, dict) else None
    if not isinstance(model, str) or not model.strip():
        return unknown
    return escape_name(model.strip()[:200])


RLAIF_V = table_reader(
    _columns(*RLAIF_V_TEXTS, images=("image",), optional=(*RLAIF_V_NOTES, "origin_split")),
    _read_preference,
    kind="rlaif-v",
    about="RLAIF-V-Dataset: preferences about one image, Parquet",
    example="rlaif-v:hf://datasets/openbmb/RLAIF-V-Dataset",
    details="""\
RLAIF-V-Dataset (openbmb): Parquet with one image, a question, a chosen and a rejected answer.

Reads one row into an ImageRow and the PreferenceRow of its image. origin_split is a JSON text
with the model that answered. All rows are for training, as published; all preferences of one
image are in one component. The licence is that of the data set, CC-BY-NC-4.0.""",
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
TEXT_TYPES = ("string", "large_string", "string_view")
"""Names of Arrow's types of texts."""
MAX_IMAGES = 64
"""Maximum images of one row."""
CAPTION = "caption"
"""Name of the captions in a record; its images have numbers."""


def _choose_columns(schema: pa.Schema, reading: ReadingConfig) -> dict[str, str]:
    """Return the image columns, in the table's order, and a caption column with a usual name."""
    types = parquet_tables.column_types(schema)
    texts = [name for name, kind in types.items() if str(kind) in TEXT_TYPES]
    images = _image_columns(schema, types, texts, reading.image_column)
    columns = {name: f"image {number}" for number, name in enumerate(images)}
    caption = _caption_column(schema, texts, reading.caption_column)
    if caption and caption not in images:
        columns[caption] = CAPTION
    return columns


def _image_columns(
    schema: pa.Schema, types: Mapping[str, pa.DataType], texts: Sequence[str], requested: str
) -> list[str]:
    plain = [name for name, kind in types.items() if str(kind) in parquet_tables.BYTES]
    for field in schema:
        if parquet_tables.is_number_list(field.type):
            plain.append(field.name)
    structs = [name for name, kind in types.items() if parquet_tables.is_struct(kind)]
    if requested:
        if requested not in (*texts, *plain, *structs):
            raise wrong_columns(f"reading.image_column: {requested!r} holds no images here", schema)
        return [requested]
    if structs:
        return structs
    usual = [name for name in plain if name.lower() in IMAGE_NAMES]
    if usual:
        return usual
    if len(plain) == 1:
        return plain
    usual = [name for name in texts if name.lower() in IMAGE_NAMES]
    if usual:  # base64, or paths
        return usual
    raise wrong_columns(
        "no column is known to hold images; name one with reading.image_column", schema
    )


def _caption_column(schema: pa.Schema, texts: Sequence[str], requested: str) -> str:
    """Return the column of captions; "" if none has a usual name."""
    if requested:
        if requested not in texts:
            raise wrong_columns(
                f"reading.caption_column: {requested!r} holds no texts here", schema
            )
        return requested
    by_name = {name.lower(): name for name in reversed(texts)}
    return next((by_name[name] for name in CAPTION_NAMES if name in by_name), "")


def _read_row(row: TableRow) -> Iterable[SourceRow]:
    cells: list[Cell] = []
    for name, value in row.record.items():
        if name != CAPTION:
            cells += images_in(value)
    if not cells:
        raise RefusedEntryError("no image in the row")
    if len(cells) > MAX_IMAGES:
        detail = f"{len(cells)}, the limit is {MAX_IMAGES}"
        raise RefusedEntryError("too many images in a row", detail)
    is_single = len(cells) == 1
    metadata = EntryMetadata(group="" if is_single else row.item.name)
    captions = usable_texts(row.record.get(CAPTION)) if is_single else ()
    images: dict[str, SourceRow] = {}
    for cell in cells:
        image = read_image(row.item, row.picture(cell, captions), row.config, metadata)
        images[image.key] = image
    return images.values()


PARQUET = table_reader(
    _choose_columns,
    _read_row,
    kind="parquet",
    about="Parquet files with an image column; local, hf://, s3:// or gs://",
    example="parquet:hf://datasets/OWNER/NAME",
    details="""Read images of Parquet files, from local disks and remote stores.

Lists one ``ItemRow`` per row, from the files' footers, and reads it into an ``ImageRow`` for
each image in its image columns, with its captions. Needs pyarrow; remote addresses (``hf://``,
``s3://``, ``gs://``) need their package for fsspec.

Image columns are found by type, caption columns by name, or both by ``reading.image_column``
and ``reading.caption_column``. The captions of a row with one image are that image's. Several
images of a row are one group, so that they go to one split; their captions are dropped, since
it is unknown which image each describes. An image given as a path is read from
``reading.images``, or else from the source's folder, never from outside it.""",
    recognises=lambda path: path.startswith("hf://") or has_files(path, (".parquet",), "data"),
)
