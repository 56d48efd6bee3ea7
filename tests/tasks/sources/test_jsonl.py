"""Fields, pairs, splits and groups of manifests; lines that make no sense."""

import gzip
import json
import os

import pytest

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, PairRow, make_key
from pairwright.tasks.sources.annotations import MAX_LINE_BYTES
from pairwright.tasks.sources.readers import recognise_source
from tests.fixtures.layouts import put, put_lines
from tests.fixtures.pictures import photograph, picture
from tests.fixtures.sources import Source

A, B, C = (picture(number) for number in range(3))


@pytest.fixture
def folder(tmp_path):
    for name, data in {"a.png": A, "b.png": B, "deep/c.png": C}.items():
        put(tmp_path / "d", name, data)
    return tmp_path / "d"


def manifest(folder, *lines, kind="jsonl", **options):
    return Source(kind, put_lines(folder, "m.jsonl", *lines), **options)


def test_a_line_becomes_an_image_with_all_that_it_says(folder) -> None:
    line = {"image": "a.png", "caption": " A dog. ", "captions": ["A dog.", "Rex"]}
    source = manifest(folder, line | {"license": "CC-BY-4.0", "group": 7})
    fields = {"licence": "CC-BY-4.0", "group": "7", "captions": ("A dog.", "Rex")}
    key = source.items()[0].key
    assert source.row() == photograph(A, name="a.png", source_key=key, source="jsonl", **fields)
    line |= {"alt": "other", "license": "CC-BY-4.0"}
    limits = ImagesConfig(licence="CC0-1.0")  # settings win
    row = manifest(folder, line, limits=limits, caption_column="alt").row()
    assert (row.licence, row.captions) == ("CC0-1.0", ("other",))


@pytest.mark.parametrize("field", ["image_path", "file_name", "path"])
def test_every_name_of_the_field_and_lists_of_one(folder, field) -> None:
    source = manifest(folder, {field: "deep/c.png"}, {field: ["a.png"], "id": "x"})
    assert source.keys() == {"deep/c.png": [make_key(C)], "x": [make_key(A)]}


@pytest.mark.parametrize(
    "line", [{"image1": "b.png", "image2": "a.png"}, {"images": ["b.png", "a.png"]}]
)
def test_two_images_are_a_pair_in_their_own_order(folder, line) -> None:
    texts = {"difference": "The dog left.", "captions": ["A cat came.", "The dog left."]}
    texts |= {"caption1": "a dog", "caption2": ["a cat", "the cat"]}
    line = line | texts | {"licence": "CC0-1.0", "group": "film 3"}
    source = manifest(folder, line, kind="jsonl-pairs")
    first, second, pair = source.read()
    assert (first.key, first.captions) == (make_key(B), ("a dog",))
    assert (first.licence, first.group) == ("CC0-1.0", "film 3")
    assert (second.key, second.captions) == (make_key(A), ("a cat", "the cat"))
    differences = ("The dog left.", "A cat came.")
    key = make_key("pair", make_key(B), make_key(A), "given", "", *differences)
    named = {"key": key, "source_key": source.items()[0].key, "subject": key}
    shown = {"first": make_key(B), "second": make_key(A), "human_differences": differences}
    assert pair == PairRow(**named, **shown, origin="given", anchor="", cluster=-1)


def test_a_line_of_another_number_of_images(folder) -> None:
    two = {"images": ["a.png", "b.png"]}
    lines = [two, {"image": "a.png"}, {"images": ["a.png"] * 3, "id": "3"}]
    assert manifest(folder, *lines, kind="jsonl-pairs").reasons() == {
        "m.jsonl line 2": "not a pair",
        "m.jsonl line 3": "more than two images",
    }
    keys = manifest(folder, *lines).keys()
    assert keys == {"a.png b.png": [make_key(A), make_key(B)], "a.png": [make_key(A)]}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "damaged line"),
        (b"[1]", "no record"),
        (b'{"image": "caf\xe9.png"}', "damaged line"),
        pytest.param(b"[" * 100_000, "damaged line", id="deep"),
        ({"caption": "no image"}, "names no image"),
        ({"image": 7}, "no path of an image"),
        ({"image": "half \ud83d.png"}, "path leaves the folder"),
        pytest.param(
            b'{"image": "b.png", "caption": "' + b"x" * MAX_LINE_BYTES + b'"}',
            "line too long",
            id="a long line",
        ),
    ],
)
def test_a_line_that_makes_no_sense_is_dropped_with_its_number(folder, line, reason) -> None:
    source = manifest(folder, {"image": "a.png"}, b"", line, {"image": "deep/c.png"})
    assert source.reasons() == {"m.jsonl line 3": reason}
    assert list(source.keys()) == ["a.png", "deep/c.png"]


def test_rscc_names_pairs_and_captions_in_its_own_words(folder) -> None:
    line = {"pre_image": "a.png", "post_image": "b.png", "change_caption": "A roof is gone."}
    path = put_lines(folder, "RSCC_qvq.jsonl", line)
    assert recognise_source(str(path)) == f"jsonl-pairs:{path}"
    (pair,) = Source("jsonl-pairs", path).pairs().values()
    assert pair.human_differences == ("A roof is gone.",)


def test_change_types_travel_and_scenes_are_groups(folder) -> None:
    both = {"image1": "a.png", "image2": "b.png"}
    types = {"change_types": ["addition", "viewpoint"], "source": "real", "scene": "office-3"}
    rows = manifest(
        folder,
        {**both, **types, "id": "typed"},
        {**both, "change_types": "pose", "scene": 7, "id": "one"},
        {**both, "source": "real", "id": "none"},
        kind="omnidiff",
    ).rows()
    assert {name: (first.group, pair.change_types) for name, (first, _, pair) in rows.items()} == {
        "typed": ("real/office-3", ("addition", "viewpoint")),
        "one": ("7", ("pose",)),
        "none": ("", ()),
    }


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ({"no_change": True}, PairRow),
        ({"no_change": 1}, Dropped),
        ({"change_types": ["no_change"]}, PairRow),
        ({"change_types": ["no_change", "pose"]}, Dropped),
        ({}, Dropped),
    ],
)
def test_only_where_nothing_changed_may_both_be_one_file(folder, line, kind) -> None:
    both = {"image1": "a.png", "image2": "a.png"}
    assert isinstance(manifest(folder, both | line, kind="jsonl-pairs").read()[-1], kind)


def test_files_of_a_folder_are_splits_and_lines_name_theirs(folder) -> None:
    put_lines(folder, "train.jsonl", {"image": "b.png"}, {"image": "a.png", "split": "val"})
    put_lines(folder, "test.jsonl", {"image": "a.png"})
    put_lines(folder, ".hidden.jsonl", {"image": "x.png"})
    os.mkfifo(folder / "pipe.jsonl")
    assert Source("jsonl", folder).names() == ["a.png", "b.png", "a.png"]
    assert Source("jsonl", folder, splits=("train",)).names() == ["b.png"]
    with pytest.raises(SourceError, match="test, train, val"):
        Source("jsonl", folder, splits=("dev",)).names()
    lines = [{"image": "a.png", "split": "train"}, {"image": "b.png", "split": "val"}, b"{"]
    assert manifest(folder, *lines, splits=("val",)).names() == ["b.png", "m.jsonl line 3"]
    with pytest.raises(SourceError, match=r"reading\.splits .*'test'.*train, val"):
        manifest(folder, *lines, splits=("train", "test")).names()


def test_keys_follow_line_and_image_but_neither_order_nor_place(folder, tmp_path) -> None:
    lines = [{"image": name} for name in ("a.png", "b.png", "deep/c.png")]
    before = {item.name: item.key for item in manifest(folder, *lines).items()}
    assert list(before) == ["a.png", "b.png", "deep/c.png"]
    manifest(folder, {"image": "new.png"}, lines[2], {**lines[1], "caption": "new"}, lines[0])
    os.utime(folder / "a.png", ns=(1, 1))
    folder.rename(tmp_path / "moved")
    items = Source("jsonl", tmp_path / "moved/m.jsonl").items()
    assert [item.name for item in items if item.key in before.values()] == ["deep/c.png"]


@pytest.mark.parametrize("text", [b"\n\n", b"\x89PNG\r\n\x1a\n" * 50, b'[{"image": "a.png"}]'])
def test_a_file_that_is_no_manifest_is_a_source_error(folder, text) -> None:
    with pytest.raises(SourceError, match=r"m\.jsonl: .*image_path"):
        manifest(folder, text).items()


@pytest.mark.parametrize(
    ("first", "kind"),
    [({"note": "a line without images"}, "jsonl-pairs"), ({"image": "a.png"}, "jsonl")],
)
def test_the_first_line_that_names_images_tells_the_kind(folder, first, kind) -> None:
    path = put_lines(folder, "m.jsonl", b"{", first, {"image1": "a.png", "image2": "b.png"})
    assert recognise_source(str(path)) == f"{kind}:{path}"
    assert recognise_source("/nowhere/m.jsonl") == "jsonl:/nowhere/m.jsonl"


@pytest.mark.parametrize(
    ("fields", "captions", "count"),
    [
        ({"caption": float("nan")}, (), 1),
        ({"caption": 5}, (), 1),
        ({"caption": ["a", None]}, ("a",), 1),
        ({"caption": {"en": "a"}}, (), 1),
        ({"caption": "half \ud83d", "text": "whole"}, ("whole",), 1),
        ({"caption": "a", "group": ["a"], "license": 1.5, "id": []}, ("a",), 3),
        ({"caption": "a", "split": 0.5}, ("a",), 1),
    ],
)
def test_a_bad_field_costs_the_field(folder, fields, captions, count) -> None:
    line = json.dumps({"image": "a.png", **fields}).encode()
    row = manifest(folder, line).row()
    assert (row.key, row.captions) == (make_key(A), captions)
    assert row.reason == "a field was not read"
    assert len(row.remarks) == count
    assert row.detail.startswith("a.png: ")


def test_a_bad_field_of_a_pair_is_a_remark_on_its_first_image(folder) -> None:
    line = {"image1": "a.png", "image2": "b.png", "difference": 7}
    first, second, pair = manifest(folder, line, kind="jsonl-pairs").read()
    assert (len(first.remarks), second.remarks, pair.human_differences) == (1, (), ())


RECORDS = [{"image": "a.png", "caption": "A dog, old."}, {"image": "deep/c.png"}]


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "tsv"])
@pytest.mark.parametrize("packed", [False, True])
def test_manifests_of_other_forms(folder, ending, packed) -> None:
    data = "\n".join(map(json.dumps, RECORDS))
    if ending == "json":
        data = json.dumps({"info": {}, "images": RECORDS})
    elif ending in ("csv", "tsv"):
        data = 'image,caption\na.png,"A dog, old."\ndeep/c.png,\n'
        if ending == "tsv":
            data = "image\tcaption\na.png\tA dog, old.\ndeep/c.png\t\n"
    name = f"m.{ending}.gz" if packed else f"m.{ending}"
    encoded = data.encode()
    path = put(folder, name, gzip.compress(encoded) if packed else encoded)
    assert recognise_source(str(path)) == f"jsonl:{path}"
    first, second = Source("jsonl", path).read()
    assert (first.captions, second.captions) == (("A dog, old.",), ())
    assert second.key == make_key(C)


SENTENCE = "The dog left, at last."


@pytest.mark.parametrize(
    "table",
    [
        f'image1,image2,difference\na.png,b.png,"{SENTENCE}"\n',
        f'Before,After,Sentence\na.png,b.png,"{SENTENCE}"\n',
        f"Image 1;Image 2;Text\na.png;b.png;{SENTENCE}\n",
        f'a.png,b.png,"{SENTENCE}"\n',
        f"links\trechts\tSatz\na.png\tb.png\t{SENTENCE}\n",
        f"id;links;rechts;Satz;split\n7;a.png;b.png;{SENTENCE};test\n",
    ],
)
def test_a_table_of_two_images_and_a_sentence_is_pairs(folder, table) -> None:
    path = put(folder, "pairs.csv", table.encode())
    assert recognise_source(str(path)) == f"jsonl-pairs:{path}"
    first, second, pair = Source("jsonl-pairs", path).read()
    assert (first.key, second.key) == (make_key(A), make_key(B))
    assert (first.captions, pair.human_differences) == ((), (SENTENCE,))


def test_a_comma_in_a_head_separates_no_tabs(folder) -> None:
    path = put(folder, "m.tsv", b"image\tcaption, in English\na.png\tA dog.\n")
    assert [row.key for row in Source("jsonl", path).read()] == [make_key(A)]


def test_words_under_two_unknown_heads_are_no_sentence(folder) -> None:
    table = b"links,rechts,Satz,Notiz\na.png,b.png,The dog left.,by Rex himself\n"
    path = put(folder, "pairs.csv", table)
    pair = Source("jsonl-pairs", path).read()[2]
    assert pair.human_differences == ()


def test_absolute_paths_inside_the_folder(folder, tmp_path) -> None:
    put(tmp_path, "out.png", A)
    lines = [{"image": str(folder / "a.png")}, {"image": str(tmp_path / "out.png")}]
    source = manifest(folder, *lines)
    assert source.keys() == {"a.png": [make_key(A)]}
    assert source.reasons() == {"m.jsonl line 2": "path leaves the folder"}
    whole = Source("jsonl", folder / "m.jsonl", images=str(tmp_path))
    assert len(whole.keys()) == 2


def test_addresses_are_refused_by_that_name(folder) -> None:
    address = {"image": "https://pictures.example/a.png"}
    with pytest.raises(SourceError, match="line 1: an address, not a path: download"):
        manifest(folder, address, address).items()
    (reason,) = manifest(folder, address, {"image": "a.png"}).reasons().values()
    assert reason.startswith("an address, not a path")


def test_damaged_manifests_are_named(folder) -> None:
    for name, data in {
        "cut.jsonl.gz": gzip.compress(b'{"image": "a.png"}\n' * 9)[:-9],
        "not.csv.gz": b"image\na.png\n",
        "cut.json": b'[{"image": "a.png"},',
        "text.json": b'"a.png"',
    }.items():
        with pytest.raises(SourceError, match=name):
            Source("jsonl", put(folder, name, data)).items()
