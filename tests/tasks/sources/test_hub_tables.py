"""Captions, pairs and preferences as the columns of data sets give them; builds."""

import json

import pyarrow as pa
import pytest

import pairwright as pw
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import PreferenceRow, Turn, make_key
from pairwright.tasks.sources.hub_tables import answering_model
from tests.fixtures.pictures import picture
from tests.fixtures.rows import row_of
from tests.fixtures.sources import TURNS, Source
from tests.fixtures.tables import IMAGE, build, struct, write_table

DATA = [picture(seed) for seed in range(6)]
JPEGS = [picture(seed, kind="JPEG") for seed in range(3)]
TABLE = "data/train-00000-of-00281.parquet"
TEXTS = pa.list_(
    pa.struct([("user", pa.string()), ("assistant", pa.string()), ("source", pa.string())])
)
MODEL = json.dumps({"model": "llava-v1.5-7b", "type": "detailed_description"})


def numbered(reasons):
    return {f"{TABLE}#{number}": reason for number, reason in reasons.items()}


def talk(answer):
    question = "<image>\nPlease generate a detailed caption of this image."
    return [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]


def test_answers_are_captions(tmp_path) -> None:
    two = [*talk("First."), *talk("Second.")]
    only_a_question = [{"from": "human", "value": "<image>"}]
    talks = [talk(" A dog on a lawn. "), only_a_question, None, talk("A tree."), two, talk("x")]
    columns = {
        "id": [f"00{n}" for n in range(6)],
        "image": [*map(struct, (*DATA[:3], b"bad", DATA[5])), None],
        "conversations": talks,
        "data_source": ["cc3m"] * 6,
    }
    write_table(tmp_path / "set" / TABLE, columns, types={"image": IMAGE, "conversations": TURNS})
    source = Source("llava-recap", tmp_path / "set")
    rows = source.rows()
    (row,) = rows[f"{TABLE}#0"]
    assert (row.key, row.captions) == (make_key(DATA[0]), ("A dog on a lawn.",))
    assert row.source_key == source.items()[0].key
    assert (row.name, row.source) == (f"{TABLE}#0 000", "llava-recap")
    assert (row.licence, row.group) == ("", "")
    assert rows[f"{TABLE}#4"][0].captions == ("First.",)
    assert source.reasons() == numbered(
        {1: "no caption", 2: "no caption", 3: "not an image", 5: "no image in the row"}
    )


def test_edits_become_pairs_with_their_instruction_and_prompts(tmp_path) -> None:
    columns = {
        "original_prompt": ["a field", "a field", "a man", "x"],
        "original_image": [struct(DATA[n]) for n in (0, 2, 4, 0)],
        "edit_prompt": ["make it snow", "make it snow", "add a hat", None],
        "edited_prompt": ["a field in snow", "a field in snow", "a man with a hat", "y"],
        "edited_image": [struct(DATA[n]) for n in (1, 3, 5, 1)],
    }
    write_table(tmp_path / TABLE, columns, types={"original_image": IMAGE, "edited_image": IMAGE})
    source = Source("instructpix2pix", tmp_path)
    rows = source.rows()
    first, second, pair = rows[f"{TABLE}#0"]
    assert (first.key, second.key) == (make_key(DATA[0]), make_key(DATA[1]))
    assert (pair.first, pair.second) == (first.key, second.key)
    assert (first.captions, second.captions) == (("a field",), ("a field in snow",))
    assert (pair.origin, pair.instruction, pair.human_differences) == ("edit", "make it snow", ())
    assert {row.source_key for row in (first, second, pair)} == {source.items()[0].key}
    assert first.name == f"{TABLE}#0 original_image"
    groups = [rows[f"{TABLE}#{number}"][0].group for number in range(3)]
    assert groups[0] == groups[1] != groups[2]
    assert source.reasons() == {f"{TABLE}#3": "damaged prompt"}


def answers(*texts):
    return [{"user": "What differs?", "assistant": text, "source": "MIMIC-IT"} for text in texts]


def test_two_images_become_a_pair_with_the_answers_about_them(tmp_path) -> None:
    shown = [(0, 1), (1, 2), (0,), (0, 1, 2), (2, 3), (3, 3), (0, 1)]
    texts = [
        answers("One has a dog.", " The other has a cat. "),
        answers("The light differs."),
        answers("alone"),
        answers("three"),
        answers("", None),
        answers("the same"),
        None,
    ]
    images = [[struct(DATA[number]) for number in numbers] for numbers in shown]
    types = {"images": pa.list_(IMAGE), "texts": TEXTS}
    write_table(tmp_path / "set" / TABLE, {"images": images, "texts": texts}, types=types)
    source = Source("scene-difference", tmp_path / "set")
    first, second, pair = source.rows()[f"{TABLE}#0"]
    assert (first.key, second.key) == (make_key(DATA[0]), make_key(DATA[1]))
    assert (pair.first, pair.second) == (first.key, second.key)
    assert pair.human_differences == ("One has a dog.", "The other has a cat.")
    assert (pair.origin, pair.anchor, pair.cluster, pair.instruction) == ("given", "", -1, "")
    assert {row.source_key for row in (first, second, pair)} == {source.items()[0].key}
    assert (first.name, second.name) == (f"{TABLE}#0 image 1", f"{TABLE}#0 image 2")
    assert source.reasons() == numbered(
        {
            **dict.fromkeys((2, 3), "not two images"),
            **dict.fromkeys((4, 6), "no text about the difference"),
            5: "identical images",
        }
    )


@pytest.mark.parametrize(
    ("kind", "columns", "words"),
    [
        ("llava-recap", {"image": [DATA[0]]}, r"conversations, id; .*image \(binary\)"),
        ("scene-difference", {"images": [["a.png"]], "texts": [[]]}, r"images .*images \(list<"),
        ("instructpix2pix", {"original_image": [b""]}, "edit_prompt, edited_image, .*_prompt; "),
        ("rlaif-v", {"image": [DATA[0]], "question": ["a"]}, "chosen, rejected; "),
    ],
)
def test_another_table_is_refused_with_its_columns(tmp_path, kind, columns, words) -> None:
    write_table(tmp_path / "a.parquet", columns)
    with pytest.raises(SourceError, match=words):
        Source(kind, tmp_path).items()


@pytest.fixture
def preferences(tmp_path):
    columns = {
        "ds_name": ["RLAIF-V"] * 6,
        "image": [struct(JPEGS[n], f"{n}.jpg") for n in (0, 0, 1, 2, 2)] + [struct(b"bad")],
        "question": ["What is it?", "Where?", "What is it?", "", "Why?", "What?"],
        "chosen": ["A dog.", "On a lawn.", "A cat.", "x", "same", "x"],
        "rejected": ["A horse.", "In a pool.", "Two cats.", "y", "same", "y"],
        "origin_dataset": ["COCO"] * 6,
        "origin_split": [MODEL, MODEL, "no json", MODEL, MODEL, MODEL],
        "idx": list("012345"),
        "image_path": ["a.jpg"] * 6,
    }
    write_table(tmp_path / "set" / TABLE, columns, types={"image": IMAGE})
    return tmp_path / "set"


def test_rows_become_preferences_about_one_image(preferences) -> None:
    source = Source("rlaif-v", preferences)
    rows = source.rows()
    image, preference = rows[f"{TABLE}#0"]
    image_key = make_key(JPEGS[0])
    assert image.key == image_key
    content = ("What is it?", "A dog.", "A horse.", "llava-v1.5-7b")
    assert preference == row_of(
        PreferenceRow,
        "preference",
        image_key,
        *content,
        source=source.items()[0].key,
        subject=image_key,
        chosen="A dog.",
        chosen_model="llava-v1.5-7b",
        rejected="A horse.",
        rejected_maker="given",
        rejected_note="RLAIF-V COCO 0",
        prompt=(Turn(role="user", text="What is it?"),),
        images=(JPEGS[0],),
        image_keys=(image_key,),
        component=image_key,
        split="train",
        sources=("rlaif-v",),
        licences=("CC-BY-NC-4.0",),
    )
    other = rows[f"{TABLE}#1"][1]
    assert (other.component, other.key == preference.key) == (image_key, False)
    assert rows[f"{TABLE}#2"][1].chosen_model == "RLAIF-V"
    assert source.reasons() == numbered(
        {3: "no question or answer", 4: "chosen is rejected", 5: "not an image"}
    )


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"model": 3}',
        '{"model": " "}',
        pytest.param("[" * 9000, id="deep"),
        pytest.param(" " * 10_001, id="long"),
    ],
)
def test_the_model_is_the_data_set_where_none_is_named(text) -> None:
    assert answering_model(text) == "RLAIF-V"


def test_a_build_brings_preferences_and_nothing_is_mined(preferences, tmp_path) -> None:
    words = (f"rlaif-v:{preferences}", tmp_path / "out")
    counts, _ = build(*words, until="")
    brought = {name: (count.of, count.rows) for name, count in counts.items() if count.of}
    expected = {"images": (6, 2), "given_preferences": (6, 3), "preferences": (3, 3)}
    assert brought == expected
    assert build(*words, until="")[1] == 0
    dataset = pw.open(tmp_path / "out")
    tally = dataset.export("hf", str(tmp_path / "hf"))
    assert (tally.rows, tally.licences, tally.makers) == (3, {"CC-BY-NC-4.0": 2}, {"given": 3})
    card = (tmp_path / "hf/README.md").read_text()
    assert "about one image" in card
    assert "embedded" not in card
