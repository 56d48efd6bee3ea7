"""Describe an export of Parquet in Croissant 1.0 (JSON-LD), by which catalogues find data sets and loaders read them.

Writes ``croissant.json``: whose files there are, a record set with every column said in words, and the splits. Values
in columns of structs are found by a JSONPath from each of the column's structs, as the mlcroissant library applies it.
"""

import json
from collections.abc import Iterator
from typing import Any

from pairwright.tasks.export.form import SPLITS
from pairwright.tasks.export.hf_schema import COLUMNS, FEATURES, Feature
from pairwright.tasks.export.tally_rows import About, Tally

FILE = "croissant.json"
FILES, ROWS, SPLIT = "parquet-files", "preferences", "splits"
TYPES = {"string": "sc:Text", "float32": "sc:Float", "int32": "sc:Integer", "bool": "sc:Boolean"}
VOCABULARY = (
    *(
        "citeAs",
        "column",
        "equivalentProperty",
        "extract",
        "field",
        "fileProperty",
        "fileObject",
        "fileSet",
        "format",
        "includes",
    ),
    *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
"""The words of Croissant's own vocabulary, as its context lists them."""
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    **{word: f"cr:{word}" for word in VOCABULARY},
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}


def write_croissant(about: About, tally: Tally) -> str:
    """Return the text of ``croissant.json``."""
    described = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": about.name,
        "description": f"{tally.rows:,} preferences made by Pairwright ({about.version}). README.md says how.",
        "version": "1.0.0",
        "license": [name or "not stated" for name, _ in tally.licences.most_common()],
        "distribution": [_files()],
        "recordSet": [_splits(tally), _rows()],
    }
    return json.dumps(described, indent=1, ensure_ascii=False) + "\n"


def _files() -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": FILES,
        "name": FILES,
        "description": "All Parquet files, their split in their name.",
        "encodingFormat": "application/x-parquet",
        "includes": "data/*.parquet",
    }


def _splits(tally: Tally) -> dict[str, Any]:
    name = f"{SPLIT}/name"
    return {
        "@type": "cr:RecordSet",
        "@id": SPLIT,
        "name": SPLIT,
        "dataType": "cr:Split",
        "key": {"@id": name},
        "field": [{"@type": "cr:Field", "@id": name, "name": "name", "dataType": "sc:Text"}],
        "data": [{name: split} for split in SPLITS if split in tally.sizes],
    }


def _rows() -> dict[str, Any]:
    name = f"{ROWS}/split"
    pattern = f"data/({'|'.join(SPLITS)})-.+parquet$"
    split = {
        "@type": "cr:Field",
        "@id": name,
        "name": "split",
        "description": "Which split the row is in.",
        "dataType": "sc:Text",
        "source": {
            "fileSet": {"@id": FILES},
            "extract": {"fileProperty": "fullpath"},
            "transform": {"regex": pattern},
        },
        "references": {"field": {"@id": f"{SPLIT}/name"}},
    }
    return {
        "@type": "cr:RecordSet",
        "@id": ROWS,
        "name": ROWS,
        "key": {"@id": f"{ROWS}/key"},
        "field": [split, *(_column(column, feature) for column, feature in FEATURES.items())],
    }


def _column(column: str, feature: Feature) -> dict[str, Any]:
    """Return a column: a value, an image, a list of those, or a list of structs with a field per value."""
    inner = feature["feature"] if feature.get("_type") == "List" else feature
    field = {
        "@type": "cr:Field",
        "@id": f"{ROWS}/{column}",
        "name": column,
        "description": COLUMNS[column],
        **({"repeated": True} if inner is not feature else {}),
    }
    if "_type" in inner:
        path = "bytes" if inner["_type"] == "Image" else ""
        return field | {"dataType": _type(inner), "source": _source(column, path)}
    return field | {"subField": list(_inside(column, inner))}


def _inside(column: str, struct: Feature, name: str = "", path: str = "") -> Iterator[dict[str, Any]]:
    """Yield a field for each value of the structs of a list; paths are from one of the structs."""
    for key, feature in struct.items():
        inner = feature["feature"] if feature.get("_type") == "List" else feature
        if "_type" not in inner:
            yield from _inside(column, inner, f"{name}{key}/", f"{path}{key}[*].")
            continue
        yield {
            "@type": "cr:Field",
            "@id": f"{ROWS}/{column}/{name}{key}",
            "name": key,
            "dataType": _type(inner),
            "source": _source(column, f"{path}{key}"),
        }


def _source(column: str, path: str = "") -> dict[str, Any]:
    transform = {"transform": {"jsonPath": path}} if path else {}
    return {"fileSet": {"@id": FILES}, "extract": {"column": column}, **transform}


def _type(feature: Feature) -> str:
    return "sc:ImageObject" if feature["_type"] == "Image" else TYPES[feature["dtype"]]
