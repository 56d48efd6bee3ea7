"""Take what a record says about its images: captions, licence, group, differences, an instruction.

Reads JSON objects that others wrote: of a manifest's line, of a sample in a tar. Everything in them may be missing, of
another type, or hostile; what is of another type counts as missing.
"""

import json
from collections.abc import Mapping
from typing import Any

MAX_TEXTS = 1000
"""Captions, or differences, of one record."""
CAPTIONS = ("caption", "captions", "text")
DIFFERENCES = ("difference", "differences")
LICENCES = ("licence", "license")

Record = Mapping[str, Any]


def parse_json(data: bytes) -> object:
    """Return what a JSON text says; ``ValueError`` where it is none."""
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"no UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def texts_of(record: Record, *fields: str) -> tuple[str, ...]:
    """Return the texts in the fields, each once, in order; a field holds one text or a list of them."""
    found: list[str] = []
    for field in fields:
        value = record.get(field)
        found += [text for entry in (value if isinstance(value, list) else [value]) if (text := clean_text(entry))]
    return tuple(dict.fromkeys(found))[:MAX_TEXTS]


def text_of(record: Record, *fields: str) -> str:
    """Return the first text in the fields; numbers count as their digits, as in ``"group": 7``."""
    for field in fields:
        value = record.get(field)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value) if abs(value) < 10**18 else ""
        if text := clean_text(value):
            return text
    return ""


def clean_text(value: object) -> str:
    """Return a text without white space around it, half surrogate pairs replaced; "" for anything else."""
    if not isinstance(value, str):
        return ""
    # JSON can spell halves of surrogate pairs, which are no Unicode text and which Parquet cannot hold.
    return value.strip().encode("utf-8", "replace").decode("utf-8")


def caption_fields(chosen: str) -> tuple[str, ...]:
    """Return the fields that hold captions: the one that the profile names, or the usual ones."""
    return (chosen,) if chosen else CAPTIONS
