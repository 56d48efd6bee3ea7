"""All forms of CaD-Inst give the same pairs and comparisons; hostile literals; a build."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ComparisonRow, Turn, make_key
from pairwright.tasks.sources.cad_inst import parse_literal
from pairwright.tasks.sources.readers import recognise_source
from tests.fixtures.layouts import put, put_lines
from tests.fixtures.pictures import picture
from tests.fixtures.sources import Source
from tests.fixtures.tables import build, write_table

DATA = [picture(seed) for seed in range(4)]
PATHS = ["coco/train2017/0.jpg", "openimages/1.jpg", "coco/train2017/2.jpg", "flickr/3.jpg"]
SUMMARY = """Commonalities: Both images show a beach.

Differences:
1. Object types: Image 1 contains a surfboard, while Image 2 contains a kite.
2. Counting the objects: There are three people in Image 1. Image 2 shows five."""
ASK = "Image 1: <image>\nImage 2: <image>\nSummarize the commonalities and differences."


def talk(*texts):
    return [{"from": ("human", "gpt")[n % 2], "value": text} for n, text in enumerate(texts)]


TALK = talk(ASK, SUMMARY, "Which one has a kite?", "B")
RECORDS = [
    {"id": "0", "image": PATHS[:2], "conversations": TALK},
    {"id": "1", "image": PATHS[1:3], "conversations": talk(ASK, 'It\'s "hard" to say\nreally')},
]


@pytest.fixture
def images(tmp_path):
    for path, data in zip(PATHS, DATA, strict=True):
        put(tmp_path / "images", path, data)
    return tmp_path / "images"


def write_parquet(path, records=RECORDS):
    columns = {name: [repr(record[name]) for record in records] for name in records[0]}
    columns |= {"clip_sim_score": [0.5] * len(records)}
    columns |= {"__null_dask_index__": list(range(len(records)))}
    return write_table(path, columns, rows_per_group=1000)


def source(path, images, **reading):
    return Source("cad-inst", path, images=str(images), **reading)


def test_a_record_becomes_a_pair_and_its_comparison(images, tmp_path) -> None:
    records = source(write_parquet(tmp_path / "Phase1/phase1_278K.parquet"), images)
    first, second, pair, comparison = records.rows()["phase1_278K.parquet#0"]
    assert (pair.first, pair.second) == (make_key(DATA[0]), make_key(DATA[1]))
    assert (first.key, second.key) == (pair.first, pair.second)
    assert [first.name, second.name] == PATHS[:2]
    texts = (ASK, SUMMARY, "Which one has a kite?", "B")
    turns = [*zip(("user", "assistant") * 2, texts, strict=True)]
    parts = [part for turn in turns for part in turn]
    assert comparison == ComparisonRow(
        key=make_key("comparison", pair.key, *parts),
        source_key=records.items()[0].key,
        subject=pair.key,
        text=SUMMARY,
        commonalities=("Both images show a beach.",),
        differences=(
            "Image 1 contains a surfboard, while Image 2 contains a kite.",
            "There are three people in Image 1. Image 2 shows five.",
        ),
        axes=("object types", "counts"),
        conversation=tuple(Turn(role=role, text=text) for role, text in turns),
        model="CaD-Inst",
    )
    whole = records.read()[-1]  # a text without the usual parts
    assert whole.text == 'It\'s "hard" to say\nreally'
    assert (whole.commonalities, whole.differences) == ((), ())


@pytest.mark.parametrize("place", ["json_files/phase1_instruct_data_278k.json", "json_files"])
def test_the_json_form_gives_the_same_rows(images, tmp_path, place) -> None:
    rows = source(write_parquet(tmp_path / "a.parquet"), images).rows()
    put(tmp_path, "json_files/phase1_instruct_data_278k.json", RECORDS)
    found = source(tmp_path / place, images).rows()
    assert list(found) == [f"phase1_instruct_data_278k.json#{number}" for number in (0, 1)]
    assert list(found.values()) == list(rows.values())


def test_the_question_answer_set_is_read_in_both_forms(images, tmp_path) -> None:
    question, answer = "Which has a dog?", "The first."
    columns = {"id": ["1"], "image": [repr(PATHS[:2])], "question": [question], "answer": [answer]}
    table = write_table(tmp_path / "CaD_QA_eval.parquet", columns)
    record = {"image": PATHS[:2], "text": question, "answer": answer, "question_id": "1_2"}
    lines = put_lines(tmp_path, "CaD_QA_eval.jsonl", record, b"{damaged")
    (*_, comparison), (damaged,) = source(lines, images).rows().values()
    turns = [(turn.role, turn.text) for turn in comparison.conversation]
    assert turns == [("user", question), ("assistant", answer)]
    assert comparison.text == answer
    assert damaged.reason == "damaged line"
    assert source(table, images).read()[-1] == comparison


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"image": PATHS[:1]}, "not two images"),
        ({"image": [PATHS[1], PATHS[1]]}, "identical images"),
        ({"conversations": []}, "damaged conversation"),
        ({"conversations": [{"from": "system", "value": "x"}]}, "damaged conversation"),
        ({"conversations": talk(ASK, "\ud800")}, "damaged conversation"),
        ({"conversations": talk("only a question")}, "no answer"),
        ({"conversations": talk(ASK, "x" * 200_001)}, "too much text"),
    ],
)
def test_a_bad_record_is_dropped_alone(images, tmp_path, record, reason) -> None:
    records = [RECORDS[0] | record, RECORDS[0]]
    for path in (write_parquet(tmp_path / "a.parquet", records), put(tmp_path, "a.json", records)):
        read = source(path, images)
        assert read.reasons() == {f"{path.name}#0": reason}
        assert len(read.rows()[f"{path.name}#1"]) == 4


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(VALUES)
def test_what_repr_writes_is_read(value) -> None:
    assert parse_literal(repr(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "b'bytes'",
        "['a'",
        "{[]: 1}",
        "",
        "'\\N{nothing}'",
        pytest.param("9" * 10_000, id="a long number"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param("'" + "\\'" * 200_000, id="many escapes"),
        pytest.param("'" + "a" * 500_000 + "'", id="a long text"),
    ],
)
def test_any_other_literal_is_refused_at_once(text) -> None:
    start = time.perf_counter()
    assert parse_literal(text) is None
    assert time.perf_counter() - start < 2


def test_missing_images_and_other_tables_are_source_errors(images, tmp_path) -> None:
    path = write_parquet(tmp_path / "tables/a.parquet")
    with pytest.raises(SourceError, match=r"a\.parquet: .*tables.*reading\.images=FOLDER"):
        Source("cad-inst", path).items()
    assert len(Source("cad-inst", write_parquet(images / "a.parquet")).items()) == 2
    put(tmp_path, "x.json", {})
    write_table(tmp_path / "x.parquet", {"image": ["a"], "n": [1]})
    with pytest.raises(SourceError, match=r"x\.json"):
        source(tmp_path / "x.json", images).items()
    with pytest.raises(SourceError, match=r"x\.parquet: .* answer; "):
        source(tmp_path / "x.parquet", images).items()


def test_a_build_takes_pairs_and_comparisons_as_they_are(images, tmp_path) -> None:
    path = write_parquet(tmp_path / "phase1_278K.parquet")
    assert recognise_source(str(path)) == f"cad-inst:{path}"
    words = (path, tmp_path / "out", f"reading.images={images}")
    counts, _ = build(*words, until="comparisons")
    for table in ("given_pairs", "given_comparisons", "pairs", "comparisons"):
        assert (counts[table].of, counts[table].rows) == (2, 2)
    assert build(*words, until="comparisons")[1] == 0
