"""What the columns of the Hugging Face export are: the Arrow schema, the features, and a row's way into them.

Follows TRL's vision preference form: messages whose content is a list, one ``image`` slot in the prompt per image. The
features stand in the schema's ``huggingface`` metadata, so that ``datasets`` gives images without being told.
"""

import json
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from pairwright.schemas.rows import PreferenceRow, Turn

Feature = dict[str, Any]
SIGNATURES = (
    (b"\x89PNG", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"RIFF", "webp"),
)


def _value(dtype: str) -> Feature:
    return {"dtype": dtype, "_type": "Value"}


def _list(feature: Feature) -> Feature:
    return {"feature": feature, "_type": "List"}


TEXT, NUMBER, FLAG = _value("string"), _value("float32"), _value("bool")
IMAGES = _list({"_type": "Image"})
MESSAGES = _list({"role": TEXT, "content": _list({"type": TEXT, "text": TEXT})})
FEATURES: Feature = {
    "images": IMAGES,
    "prompt": MESSAGES,
    "chosen": MESSAGES,
    "rejected": MESSAGES,
    "rejected_images": IMAGES,
    "rejected_image_maker": TEXT,
    "rejected_maker": TEXT,
    "rejected_note": TEXT,
    "negatives": _list({"text": TEXT, "maker": TEXT, "note": TEXT, "score": NUMBER}),
    "removal_scores": _list(
        {
            "removal": TEXT,
            "tag": TEXT,
            "side": _value("int32"),
            "score": NUMBER,
            "chosen": FLAG,
            "clip": NUMBER,
            "why": TEXT,
        }
    ),
    "chosen_model": TEXT,
    "key": TEXT,
    "pair": TEXT,
    "image_keys": _list(TEXT),
    "component": TEXT,
    "sources": _list(TEXT),
    "licences": _list(TEXT),
}
COLUMNS: dict[str, str] = {
    "images": "The images, in order, as their source gave them: two, or one where the preference is about one.",
    "prompt": "The question about the images (one message, an `image` slot per image).",
    "chosen": "A description of how the images differ, or the preferred answer (one message).",
    "rejected": "A description that is wrong for these images (one message); an empty list where there is none.",
    "rejected_images": "The same images, one of them without a thing that the chosen text mentions; may be empty.",
    "rejected_image_maker": "How it was made: `removal`, or `crop`, a random window of the image at its full size.",
    "rejected_maker": "How the rejected text was made: `retrieved`, `swapped`, `edited`, `given` by the source, "
    "or `mined`.",
    "rejected_note": "What was done to make it.",
    "negatives": "Further wrong descriptions, hardest first.",
    "removal_scores": "Every removal that was tried: what, from which image, by how much worse the chosen text then "
    "fits, whether it was taken, the text's CLIP score with it (0: none), and the check that it failed.",
    "chosen_model": "What wrote the chosen text.",
    "key": "Names the row: a hash of all that it was made from.",
    "pair": "Names the pair of images, or the one image.",
    "image_keys": "Name the images.",
    "component": "Rows that share an image or a group are in one component, which is in one split only.",
    "sources": "Where each image came from.",
    "licences": "The licence of each image; empty where none was stated.",
}
"""Every column, said in words for the card."""


def _arrow(feature: Feature) -> pa.DataType:
    kind = feature.get("_type")
    if kind == "Value":
        return {"string": pa.string(), "float32": pa.float32(), "int32": pa.int32(), "bool": pa.bool_()}[
            feature["dtype"]
        ]
    if kind == "List":
        return pa.list_(_arrow(feature["feature"]))
    if kind == "Image":
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.struct([(name, _arrow(inner)) for name, inner in feature.items()])


def arrow_schema(features: Feature) -> pa.Schema:
    """Return the schema of Parquet files that ``datasets`` loads with these features."""
    schema = pa.schema([(name, _arrow(feature)) for name, feature in features.items()])
    return schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})


SCHEMA = arrow_schema(FEATURES)


def card_features(features: Feature = FEATURES) -> list[dict[str, Any]]:
    """Return the features as a dataset card's YAML states them."""
    return [{"name": name, **_card_feature(feature)} for name, feature in features.items()]


def _card_feature(feature: Feature) -> dict[str, Any]:
    kind = feature.get("_type")
    if kind == "Value":
        return {"dtype": feature["dtype"]}
    if kind == "Image":
        return {"dtype": "image"}
    inner = feature["feature"]
    if "_type" not in inner:
        return {"list": card_features(inner)}
    return {"list": _card_feature(inner)["dtype"]}


def to_record(row: PreferenceRow) -> dict[str, Any]:
    """Return a row as the export's columns; images keep their bytes."""
    own = {name: getattr(row, name) for name in FEATURES if hasattr(row, name)}
    return {
        **own,
        "pair": row.subject,
        "images": [image_cell(data, name) for data, name in zip(row.images, row.image_keys, strict=True)],
        "rejected_images": [image_cell(*both) for both in zip(row.rejected_images, _rejected_names(row), strict=True)],
        "prompt": _prompt(row),
        "chosen": answer(row.chosen),
        "rejected": answer(row.rejected),
        "negatives": [asdict(one) for one in row.negatives],
        "removal_scores": [asdict(one) for one in row.removal_scores],
    }


def image_cell(data: bytes, name: str) -> dict[str, Any]:
    """Return an image as a cell of a column of images."""
    return {"bytes": data, "path": f"{name}.{ending_of(data)}"}


def ending_of(data: bytes) -> str:
    """Return the ending of an image's file name, by how its bytes begin."""
    return next((ending for start, ending in SIGNATURES if data.startswith(start)), "img")


def _rejected_names(row: PreferenceRow) -> list[str]:
    """Return the names of the rejected images: that of the removal, or of the crop, where one was altered."""
    names = list(row.image_keys) if row.rejected_images else []
    for score in row.removal_scores:
        if score.chosen and names:
            names[score.side] = score.removal
    if row.rejected_image_maker != "crop":
        return names
    altered = [image != kept for image, kept in zip(row.rejected_images, row.images, strict=True)]
    return [f"{name}-crop" if new else name for name, new in zip(names, altered, strict=True)]


def _prompt(row: PreferenceRow) -> list[dict[str, Any]]:
    """Return the prompt's messages; the first one of the user shows all images."""
    messages = [_message(turn) for turn in row.prompt]
    first = next(message for message in messages if message["role"] == "user")
    first["content"][:0] = [{"type": "image", "text": None} for _ in row.images]
    return messages


def _message(turn: Turn) -> dict[str, Any]:
    return {"role": turn.role, "content": [{"type": "text", "text": turn.text}]}


def answer(text: str) -> list[dict[str, Any]]:
    """Return an answer as messages: one, or none where there is no text."""
    return [_message(Turn(role="assistant", text=text))] if text else []
