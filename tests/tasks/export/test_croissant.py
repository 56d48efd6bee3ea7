"""The Croissant file of an export, by its format's rules: what it names is there, and references lead somewhere."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.fixtures.exports import export_handmade
from tests.tasks.report.handmade import make_whole


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("croissant")
    export_handmade(root, make_whole())
    return root / "out"


def walk(node):
    yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk(child)


def test_every_column_of_the_files_is_described(folder: Path) -> None:
    described = json.loads((folder / "croissant.json").read_text())
    assert described["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    assert described["license"] == ["CC0-1.0"]
    (files,) = described["distribution"]
    found = sorted(folder.glob(files["includes"]))
    assert found
    splits, rows = described["recordSet"]
    columns = {field["name"]: field for field in rows["field"]}
    assert [*columns] == ["split", *pq.read_schema(found[0]).names]
    assert all(field["description"] for field in columns.values())
    assert columns["images"]["dataType"] == "sc:ImageObject"
    assert (columns["images"]["repeated"], "repeated" in columns["chosen_model"]) == (True, False)
    assert columns["images"]["source"]["transform"] == {"jsonPath": "bytes"}
    paths = {field["@id"]: field["source"]["transform"]["jsonPath"] for field in columns["prompt"]["subField"]}
    assert paths == {
        "preferences/prompt/role": "role",
        "preferences/prompt/content/type": "content[*].type",
        "preferences/prompt/content/text": "content[*].text",
    }
    pattern = columns["split"]["source"]["transform"]["regex"]
    named = {re.search(pattern, str(path))[1] for path in found}
    assert {next(iter(split.values())) for split in splits["data"]} == named == {"train", "validation", "test"}


def test_names_differ_and_references_lead_to_one(folder: Path) -> None:
    described = json.loads((folder / "croissant.json").read_text())
    del described["@context"]
    nodes = [node for node in walk(described) if isinstance(node, dict)]
    named = [node["@id"] for node in nodes if "@type" in node and "@id" in node]
    assert len(set(named)) == len(named)
    assert {node["@id"] for node in nodes if set(node) == {"@id"}} <= set(named)
