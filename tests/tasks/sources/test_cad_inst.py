"""All forms of CaD-Inst give the same pairs and comparisons; hostile literals, missing images; a build."""

import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ComparisonRow, ImageRow, PairRow, Turn, make_key
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
    {"id": "0", "image": PATHS[:2], "conversations": talk(ASK, SUMMARY, "Which one has a kite?", "B")},
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
    assert isinstance(first, ImageRow)
    assert isinstance(pair, PairRow)
    assert (pair.first, pair.second) == (first.key, second.key) == (make_key(DATA[0]), make_key(DATA[1]))
    assert (first.name, second.name) == tuple(PATHS[:2])
    turns = (
        Turn(role="user", text=ASK),
        Turn(role="assistant", text=SUMMARY),
        Turn(role="user", text="Which one has a kite?"),
        Turn(role="assistant", text="B"),
    )
    assert comparison == ComparisonRow(
        key=make_key("comparison", pair.key, *(part for turn in turns for part in (turn.role, turn.text))),
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
        assert list(found) == ["phase1_instruct_data_278k.json#0", "phase1_instruct_data_278k.json#1"]
        assert list(found.values()) == list(table.values())


def test_the_question_answer_set_is_read_in_both_forms(images, tmp_path):
    columns = {"id": ["1"], "image": [repr(PATHS[:2])], "question": ["Which has a dog?"], "answer": ["The first."]}
    table = write_table(tmp_path / "CaD_QA_eval.parquet", columns)
    record = {"image": PATHS[:2], "text": "Which has a dog?", "answer": "The first.", "question_id": "1_2"}
    lines = tmp_path / "CaD_QA_eval.jsonl"
    lines.write_text(json.dumps(record) + "\n{damaged\n")
    (_, _, _, comparison), damaged = read_all(source(lines, images))[1].values()
    assert [(turn.role, turn.text) for turn in comparison.conversation] == [
        ("user", "Which has a dog?"),
        ("assistant", "The first."),
    ]
    assert comparison.text == "The first."
    assert damaged[0].reason == "damaged line"
    assert read_all(source(table, images))[1]["CaD_QA_eval.parquet#0"][-1] == comparison


def test_bad_records_are_dropped_one_by_one(images, tmp_path):
    (images / "out.jpg").symlink_to("/etc/passwd")
    os.mkfifo(images / "pipe.jpg")
    (images / "bad.jpg").write_bytes(b"text")
    both = RECORDS[0]["conversations"]
    bad = {
        "0": (PATHS[:1], both),
        "1": (PATHS[:3], both),
        "2": (["../images/" + PATHS[0], PATHS[1]], both),
        "3": (["/etc/passwd", PATHS[1]], both),
        "4": (["out.jpg", PATHS[1]], both),
        "5": (["pipe.jpg", PATHS[1]], both),
        "6": (["none.jpg", PATHS[1]], both),
        "7": (["bad.jpg", PATHS[1]], both),
        "8": ([PATHS[0], PATHS[0]], both),
        "9": (PATHS[:2], []),
        "10": (PATHS[:2], talk("only a question")),
        "11": (PATHS[:2], [{"from": "system", "value": "x"}]),
        "12": (PATHS[:2], "nothing"),
        "13": (PATHS[:2], talk(ASK, "\ud800")),
        "14": (PATHS[:2], talk(ASK, "x" * 200_001)),
        "15": (["a\0", PATHS[1]], both),
        "16": (PATHS[:2], both),
    }
    records = [{"id": name, "image": paths, "conversations": turns} for name, (paths, turns) in bad.items()]
    reasons = [
        "not two images",
        "not two images",
        "path leaves the folder",
        "path leaves the folder",
        "path leaves the folder",
        "not a regular file",
        "missing file",
        "not an image",
        "identical images",
        "damaged conversation",
        "no answer",
        "damaged conversation",
        "damaged conversation",
        "damaged conversation",
        "too much text",
        "path leaves the folder",
    ]
    _, found = read_all(source(write_parquet(tmp_path / "a.parquet", records), images))
    assert list(reasons_of(found).values()) == reasons
    assert len(found["a.parquet#16"]) == 4
    (tmp_path / "a.json").write_text(json.dumps(records))
    _, found = read_all(source(tmp_path / "a.json", images))
    assert list(reasons_of(found).values()) == reasons


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
        *("__import__('os').system('true')", "open('x')", "[x for x in 'a']", "f'{1}'", "b'bytes'", "1.5e300", "1 2"),
        *("9" * 10_000, "[" * 100_000, "-" * 100_000 + "1", "'" + "\\'" * 200_000, "'" + "a" * 500_000 + "'"),
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
