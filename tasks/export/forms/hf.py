"""Write ``data/*.parquet`` for ``datasets.load_dataset``: every column, texts as TRL's messages.

The Hub makes the Croissant description of these files.
"""

from dataclasses import asdict
from pathlib import Path

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export import parquet
from pairwright.tasks.export.coco import COCO
from pairwright.tasks.export.form import ExportSettings, Form
from pairwright.tasks.export.tally_rows import ExportedDataset, Tally
from pairwright.tasks.export.write_card import ASSETS, write_card

NUMBER = parquet.value_feature("float32")
FLAG = parquet.value_feature("bool")
SCORE = {
    "removal": parquet.TEXT,
    "tag": parquet.TEXT,
    "side": parquet.value_feature("int32"),
    "score": NUMBER,
    "chosen": FLAG,
    "clip": NUMBER,
    "why": parquet.TEXT,
}
COLUMNS: dict[str, tuple[parquet.Feature, str]] = {
    "images": (
        parquet.IMAGES,
        "The images in order, two, or one if the preference is about one: the source's own bytes, "
        "or a PNG of the pixels that the texts are about, if other programs would show others.",
    ),
    "prompt": (
        parquet.MESSAGES,
        "The question about the images (one message, an `image` slot per image).",
    ),
    "chosen": (
        parquet.MESSAGES,
        "A description of how the images differ, or the preferred answer (one message).",
    ),
    "rejected": (
        parquet.MESSAGES,
        "A description that is wrong for these images (one message); "
        "an empty list if there is none.",
    ),
    "rejected_images": (
        parquet.IMAGES,
        "The same images, one of them without a thing that the chosen text mentions; may be empty.",
    ),
    "rejected_image_maker": (
        parquet.TEXT,
        "How it was made: `removal`, or `crop`, a random window of the image at its full size.",
    ),
    "rejected_maker": (
        parquet.TEXT,
        "How the rejected text was made: `retrieved`, `swapped`, `edited`, `sampled`, "
        "`counterfactual`, or `given` by the source.",
    ),
    "rejected_note": (parquet.TEXT, "How it was made, in detail."),
    "negatives": (
        parquet.list_feature(
            {"text": parquet.TEXT, "maker": parquet.TEXT, "note": parquet.TEXT, "score": NUMBER}
        ),
        "Further wrong descriptions, hardest first.",
    ),
    "removal_scores": (
        parquet.list_feature(SCORE),
        "Every removal that was tried: what, from which image, by how much worse the chosen text "
        "then fits, whether it was taken, the text's CLIP score with it (0: none), "
        "and the check that it failed.",
    ),
    "chosen_model": (parquet.TEXT, "Writer of the chosen text."),
    "kind": (
        parquet.TEXT,
        'Kind of the texts, which the prompt asks for: `template` ("The difference between the two '
        'images is that ..."), `changes`, `sentences`, `list` or `short`; empty: unknown.',
    ),
    "description": (
        parquet.TEXT,
        "The pair's description, if the chosen text states it in another kind; empty: the same.",
    ),
    "claims": (
        parquet.TEXT,
        "Claims of the chosen text, which a scene graph can confirm, as JSON; `[]`: unknown.",
    ),
    "rejected_claims": (parquet.TEXT, "Claims of the rejected text, in the same form."),
    "key": (parquet.TEXT, "Key of the row: a hash of everything that it was made from."),
    "pair": (parquet.TEXT, "Key of the pair of images, or of the one image."),
    "image_keys": (
        parquet.list_feature(parquet.TEXT),
        "Keys of the images; one that was written anew ends in `-plain`.",
    ),
    "component": (
        parquet.TEXT,
        "Component: rows that share an image or a group, all in one split.",
    ),
    "regions": (
        parquet.REGIONS,
        "Places where the images differ, where these are known: `image` (0 or 1), `label`, `box` "
        "(x0, y0, x1, y1) and `mask` (COCO's uncompressed run lengths as JSON).",
    ),
    "sources": (parquet.list_feature(parquet.TEXT), "Source of each image."),
    "licences": (
        parquet.list_feature(parquet.TEXT),
        "Licence of each image; empty if none is stated.",
    ),
}
"""Every column: its feature, and a description for the card."""
FEATURES: parquet.Feature = {name: feature for name, (feature, _) in COLUMNS.items()}
DESCRIPTIONS = {name: description for name, (_, description) in COLUMNS.items()}
SCHEMA = parquet.arrow_schema(FEATURES)


def _to_record(
    row: PreferenceRow,
    setting: ExportSettings,  # noqa: ARG001 - as for every form
) -> parquet.Record:
    """Return a row as the export's columns."""
    unchanged = {name: getattr(row, name) for name in FEATURES if hasattr(row, name)}
    return {
        **unchanged,
        "pair": row.subject,
        "images": parquet.image_cells(row.images, row.image_keys),
        "rejected_images": parquet.image_cells(row.rejected_images, _rejected_names(row)),
        "prompt": _prompt(row),
        "chosen": parquet.answer_messages(row.chosen),
        "rejected": parquet.answer_messages(row.rejected),
        "negatives": [asdict(negative) for negative in row.negatives],
        "removal_scores": [asdict(score) for score in row.removal_scores],
        "regions": parquet.region_cells(row),
    }


def _rejected_names(row: PreferenceRow) -> list[str]:
    """Return the names of the rejected images; the altered one is named after its removal."""
    if not row.rejected_images:
        return []
    names = list(row.image_keys)
    for score in row.removal_scores:
        if score.chosen:
            names[score.side] = score.removal
    if row.rejected_image_maker == "crop":
        for index, (rejected, image) in enumerate(
            zip(row.rejected_images, row.images, strict=True)
        ):
            if rejected != image:
                names[index] = f"{names[index]}-crop"
    return names


def _prompt(row: PreferenceRow) -> list[parquet.Record]:
    """Return the prompt's messages; the user's first one shows all images."""
    messages = [parquet.message(turn) for turn in row.prompt]
    question = next(message for message in messages if message["role"] == "user")
    question["content"][:0] = [{"type": "image", "text": None} for _ in row.images]
    return messages


def card_features(features: parquet.Feature = FEATURES) -> list[parquet.Record]:
    """Return the features in the form of a dataset card's YAML."""
    return [{"name": name, **_card_feature(feature)} for name, feature in features.items()]


def _card_feature(feature: parquet.Feature) -> parquet.Record:
    kind = feature.get("_type")
    if kind == "Value":
        return {"dtype": feature["dtype"]}
    if kind == "Image":
        return {"dtype": "image"}
    inner = feature["feature"]
    if "_type" not in inner:
        return {"list": card_features(inner)}
    return {"list": _card_feature(inner)["dtype"]}


def _write_card(folder: Path, dataset: ExportedDataset, tally: Tally) -> str:
    features = card_features()
    return write_card(folder, dataset, tally, features=features, columns=DESCRIPTIONS)


FORM = Form(
    name="hf",
    about="Parquet with every column, for datasets.load_dataset",
    cannot=(
        "It holds preferences; --table exports another table with its images, "
        "llava exports conversations."
    ),
    opens=parquet.open_parquet(SCHEMA, _to_record, with_coco=True),
    check=parquet.read_parquet(
        lambda row, _: parquet.check_messages(row), images=("images", "rejected_images")
    ),
    packages=("datasets",),
    use='```python\ndataset = datasets.load_dataset("FOLDER", split="train")\n```',
    owns=frozenset({"data", COCO, ASSETS}),
    card=_write_card,
    knows_pairs=True,
)
