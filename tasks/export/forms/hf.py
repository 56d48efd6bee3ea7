"""Write ``data/*.parquet`` for ``datasets.load_dataset``: every column of a preference, as TRL's messages.

The Hub makes the Croissant description of these files.
"""

from dataclasses import asdict

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export import parquet
from pairwright.tasks.export.form import ExportSettings, Form
from pairwright.tasks.export.write_card import ASSETS, write_card

NUMBER, FLAG = parquet.value("float32"), parquet.value("bool")
SCORE = {
    "removal": parquet.TEXT,
    "tag": parquet.TEXT,
    "side": parquet.value("int32"),
    "score": NUMBER,
    "chosen": FLAG,
    "clip": NUMBER,
    "why": parquet.TEXT,
}
COLUMNS: dict[str, tuple[parquet.Feature, str]] = {
    "images": (
        parquet.IMAGES,
        "The images in order, as their source gave them: two, or one if the preference is about one.",
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
        "A description that is wrong for these images (one message); an empty list if there is none.",
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
        "How the rejected text was made: `retrieved`, `swapped`, `edited`, `sampled`, `counterfactual`, or `given` by "
        "the source.",
    ),
    "rejected_note": (parquet.TEXT, "How it was made, in detail."),
    "negatives": (
        parquet.listed(
            {"text": parquet.TEXT, "maker": parquet.TEXT, "note": parquet.TEXT, "score": NUMBER}
        ),
        "Further wrong descriptions, hardest first.",
    ),
    "removal_scores": (
        parquet.listed(SCORE),
        "Every removal that was tried: what, from which image, by how much worse the chosen text then "
        "fits, whether it was taken, the text's CLIP score with it (0: none), and the check that it failed.",
    ),
    "chosen_model": (parquet.TEXT, "Writer of the chosen text."),
    "kind": (
        parquet.TEXT,
        'Kind of the texts, which the prompt asks for: `template` ("The difference between the two images is that '
        '..."), `changes`, `sentences`, `list` or `short`; empty: unknown.',
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
    "image_keys": (parquet.listed(parquet.TEXT), "Keys of the images."),
    "component": (
        parquet.TEXT,
        "Component: rows that share an image or a group, all in one split.",
    ),
    "sources": (parquet.listed(parquet.TEXT), "Source of each image."),
    "licences": (parquet.listed(parquet.TEXT), "Licence of each image; empty if none is stated."),
}
"""Every column: its feature, and a description for the card."""
FEATURES: parquet.Feature = {name: feature for name, (feature, _) in COLUMNS.items()}
SCHEMA = parquet.arrow_schema(FEATURES)


def to_record(row: PreferenceRow, setting: ExportSettings | None = None) -> parquet.Record:  # noqa: ARG001 - as for every form
    """Return a row as the export's columns; images keep their bytes."""
    own = {name: getattr(row, name) for name in FEATURES if hasattr(row, name)}
    return {
        **own,
        "pair": row.subject,
        "images": [
            parquet.image_cell(*both) for both in zip(row.images, row.image_keys, strict=True)
        ],
        "rejected_images": [
            parquet.image_cell(*both)
            for both in zip(row.rejected_images, _rejected_names(row), strict=True)
        ],
        "prompt": _prompt(row),
        "chosen": parquet.answer(row.chosen),
        "rejected": parquet.answer(row.rejected),
        "negatives": [asdict(one) for one in row.negatives],
        "removal_scores": [asdict(one) for one in row.removal_scores],
    }


def _rejected_names(row: PreferenceRow) -> list[str]:
    """Return the names of the rejected images; the altered one is named after its removal or crop."""
    names = list(row.image_keys) if row.rejected_images else []
    for score in row.removal_scores:
        if score.chosen and names:
            names[score.side] = score.removal
    if row.rejected_image_maker != "crop":
        return names
    altered = [image != kept for image, kept in zip(row.rejected_images, row.images, strict=True)]
    return [f"{name}-crop" if new else name for name, new in zip(names, altered, strict=True)]


def _prompt(row: PreferenceRow) -> list[parquet.Record]:
    """Return the prompt's messages; the user's first one shows all images."""
    messages = [parquet.message(turn) for turn in row.prompt]
    first = next(one for one in messages if one["role"] == "user")
    first["content"][:0] = [{"type": "image", "text": None} for _ in row.images]
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


FORM = Form(
    name="hf",
    about="Parquet with every column, for datasets.load_dataset",
    cannot="It holds preferences; --table exports another table with its images, llava exports conversations.",
    opens=parquet.open_parquet(SCHEMA, to_record),
    check=parquet.read_parquet(
        lambda row, _: parquet.check_messages(row), images=("images", "rejected_images")
    ),
    packages=("datasets",),
    use='```python\ndataset = datasets.load_dataset("FOLDER", split="train")\n```',
    owns=frozenset({"data", ASSETS}),
    card=lambda folder, about, tally: write_card(
        folder,
        about,
        tally,
        features=card_features(),
        columns={name: said for name, (_, said) in COLUMNS.items()},
    ),
)
