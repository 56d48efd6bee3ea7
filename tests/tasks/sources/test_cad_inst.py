"""All forms of CaD-Inst give the same pairs and comparisons; hostile literals, missing images; a
build."""

import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ComparisonRow, Turn, make_key
from pairwright.tasks.sources import cad_inst
from pairwright.tasks.sources.readers import recognise_source
from tests.fixtures.pictures import picture
from tests.fixtures.tables import build, config_of, read_all, reasons_of, write_table

KIND = "cad-inst"
DATA = [picture(seed) for seed in range(4)]
PATHS = ["coco/train2017/0.jpg", "openimages/1.jpg", "coco/train2017/2.jpg", "flickr/3.jpg"]
SUMMARY = """Commonalities: Both images show a beach.

Differences:
1. Object types: Image 1 contains a surfboard, while Image 2 contains a kite.
2. Counting the objects: There are three people in Image 1. Image 2 shows five."""


def talk(*texts):
    return [{"from": ("human", "gpt")[n % 2], "value": text} for n, text in enumerate(texts)]


ASK = "Image 1: <image>\nImage 2: <image>\nSummarize the commonalities and differences."
RECORDS = [
    {
        "id": "0",
        "image": PATHS[:2],
        "conversations": talk(ASK, SUMMARY, "Which one has a kite?", "B"),
    },
    {"id": "1", "image": PATHS[1:3], "conversations": talk(ASK, 'It\'s "hard" to say\nreally')},
]


@pytest.fixture
def images(tmp_path):
    for path, data in zip(PATHS, DATA, strict=True):
        place = tmp_path / "images" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return tmp_path / "images"


def write_parquet(path, records, rows_per_group=1000):
    columns = {
        "id": [record["id"] for record in records],
        "image": [repr(record["image"]) for record in records],
        "conversations": [repr(record["conversations"]) for record in records],
        "clip_sim_score": [0.5] * len(records),
        "__null_dask_index__": list(range(len(records))),
    }
    return write_table(path, columns, rows_per_group=rows_per_group)


def source(path, images, **reading):
    return config_of(KIND, path, images=str(images), **reading)


def test_a_record_becomes_a_pair_and_its_comparison(images, tmp_path):
    path = write_parquet(tmp_path / "Phase1/phase1_278K.parquet", RECORDS)
    (item, _), found = read_all(source(path, images))
    first, second, pair, comparison = found["phase1_278K.parquet#0"]
    assert (
        (pair.first, pair.second)
        == (first.key, second.key)
        == (make_key(DATA[0]), make_key(DATA[1]))
    )
    assert (first.name, second.name) == tuple(PATHS[:2])
    said = zip(("user", "assistant") * 2, (ASK, SUMMARY, "Which one has a kite?", "B"), strict=True)
    turns = tuple(Turn(role=role, text=text) for role, text in said)
    assert comparison == ComparisonRow(
        key=make_key(
            "comparison", pair.key, *(part for turn in turns for part in (turn.role, turn.text))
        ),
        source_key=item.key,
        subject=pair.key,
        text=SUMMARY,
        commonalities=("Both images show a beach.",),
        differences=(
            "Image 1 contains a surfboard, while Image 2 contains a kite.",
            "There are three people in Image 1. Image 2 shows five.",
        ),
        axes=("object types", "counts"),
        conversation=turns,
        model="CaD-Inst",
    )


def test_the_json_form_gives_the_same_rows(images, tmp_path):
    table = read_all(source(write_parquet(tmp_path / "a.parquet", RECORDS), images))[1]
    path = tmp_path / "json_files" / "phase1_instruct_data_278k.json"
    path.parent.mkdir()
    path.write_text(json.dumps(RECORDS))
    off = table["a.parquet#1"][-1]  # its text is kept whole, and no part of it is taken for one
    assert (off.text, off.commonalities, off.differences) == ('It\'s "hard" to say\nreally', (), ())
    for place in (path, path.parent):
        found = read_all(source(place, images))[1]
        assert list(found) == [
            "phase1_instruct_data_278k.json#0",
            "phase1_instruct_data_278k.json#1",
        ]
        assert list(found.values()) == list(table.values())


def test_the_question_answer_set_is_read_in_both_forms(images, tmp_path):
    columns = {
        "id": ["1"],
        "image": [repr(PATHS[:2])],
        "question": ["Which has a dog?"],
        "answer": ["The first."],
    }
    table = write_table(tmp_path / "CaD_QA_eval.parquet", columns)
    record = {
        "image": PATHS[:2],
        "text": "Which has a dog?",
        "answer": "The first.",
        "question_id": "1_2",
    }
    lines = tmp_path / "CaD_QA_eval.jsonl"
    lines.write_text(json.dumps(record) + "\n{damaged\n")
    (_, _, _, comparison), damaged = read_all(source(lines, images))[1].values()
    said = [(turn.role, turn.text) for turn in comparison.conversation]
    assert said == [("user", "Which has a dog?"), ("assistant", "The first.")]
    assert comparison.text == "The first."
    assert damaged[0].reason == "damaged line"
    assert read_all(source(table, images))[1]["CaD_QA_eval.parquet#0"][-1] == comparison


def test_bad_records_are_dropped_one_by_one(images, tmp_path):
    (images / "out.jpg").symlink_to("/etc/passwd")
    os.mkfifo(images / "pipe.jpg")
    (images / "bad.jpg").write_bytes(b"text")
    firsts = {
        "path leaves the folder": ["../images/" + PATHS[0], "/etc/passwd", "out.jpg", "a\0"],
        "not a regular file": ["pipe.jpg"],
        "missing file": ["none.jpg"],
        "not an image": ["bad.jpg"],
        "identical images": [PATHS[1]],
    }
    talks = {
        "damaged conversation": [
            [],
            [{"from": "system", "value": "x"}],
            "nothing",
            talk(ASK, "\ud800"),
        ],
        "no answer": [talk("only a question")],
        "too much text": [talk(ASK, "x" * 200_001)],
    }
    both = RECORDS[0]["conversations"]
    bad = [("not two images", PATHS[:count], both) for count in (1, 3)]
    bad += [(reason, [first, PATHS[1]], both) for reason, some in firsts.items() for first in some]
    bad += [(reason, PATHS[:2], turns) for reason, some in talks.items() for turns in some]
    cases = enumerate([*bad, ("", PATHS[:2], both)])
    records = [
        {"id": str(n), "image": paths, "conversations": turns} for n, (_, paths, turns) in cases
    ]
    write_parquet(tmp_path / "a.parquet", records)
    (tmp_path / "a.json").write_text(json.dumps(records))
    for name in ("a.parquet", "a.json"):
        _, found = read_all(source(tmp_path / name, images))
        assert list(reasons_of(found).values()) == [reason for reason, _, _ in bad]
        assert len(found[f"{name}#{len(bad)}"]) == 4


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(VALUES)
def test_what_repr_writes_is_read(value):
    assert cad_inst.parse_literal(repr(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        *(
            "__import__('os').system('true')",
            "open('x')",
            "[x for x in 'a']",
            "f'{1}'",
            "b'bytes'",
            "1.5e300",
            "1 2",
        ),
        *(
            "9" * 10_000,
            "[" * 100_000,
            "-" * 100_000 + "1",
            "'" + "\\'" * 200_000,
            "'" + "a" * 500_000 + "'",
        ),
        *("['a'", "'a", "{[]: 1}", "", "'a\nb'", "'\\N{nothing}'"),
    ],
)
def test_any_other_literal_is_refused_at_once(text):
    start = time.perf_counter()
    assert cad_inst.parse_literal(text) is None
    assert time.perf_counter() - start < 2


def test_a_folder_without_the_images_is_a_source_error(images, tmp_path):
    path = write_parquet(tmp_path / "tables/a.parquet", RECORDS)
    with pytest.raises(SourceError, match=r"a\.parquet: .*tables.*reading\.images=FOLDER"):
        read_all(config_of(KIND, path))
    assert len(read_all(config_of(KIND, write_parquet(images / "a.parquet", RECORDS)))[0]) == 2


def test_what_is_not_cad_inst_is_a_source_error(images, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(SourceError, match=r"x\.json"):
        read_all(source(tmp_path / "x.json", images))
    with pytest.raises(SourceError, match=r"x\.parquet: .* answer; "):
        read_all(source(write_table(tmp_path / "x.parquet", {"image": ["a"], "n": [1]}), images))
    with pytest.raises(SourceError, match="nowhere"):
        read_all(source(tmp_path / "nowhere", images))
    with pytest.raises(SourceError, match=r"reading\.splits"):
        read_all(source(tmp_path / "x.json", images, splits=("train",)))


def test_a_build_takes_pairs_and_comparisons_as_they_are(images, tmp_path):
    path = write_parquet(tmp_path / "phase1_278K.parquet", RECORDS)
    assert recognise_source(str(path)) == f"{KIND}:{path}"
    settings = [f"reading.images={images}"]
    counts, _ = build(path, tmp_path / "out", *settings)
    pairs = {"images": (2, 3), "given_pairs": (2, 2), "given_comparisons": (2, 2), "pairs": (2, 2)}
    assert {name: (count.of, count.rows) for name, count in counts.items() if count.of} == pairs
    counts, _ = build(path, tmp_path / "out", *settings, until="comparisons")
    assert (counts["comparisons"].of, counts["comparisons"].rows) == (2, 2)
    assert build(path, tmp_path / "out", *settings, until="comparisons")[1] == 0
