"""Data sets of tables: captions, pairs and preferences as their columns give them; rows without are
dropped; builds."""

import json
import re

import pyarrow as pa
import pytest

import pairwright as pw
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import PreferenceRow, Turn, make_key
from pairwright.tasks.sources.hub_tables import answering_model
from tests.fixtures.pictures import picture
from tests.fixtures.tables import IMAGE, build, config_of, read_all, reasons_of, struct, write_table

DATA = [picture(seed) for seed in range(6)]
JPEGS = [picture(seed, kind="JPEG") for seed in range(3)]
TABLE = "data/train-00000-of-00281.parquet"
TURNS = pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())]))
TEXTS = pa.list_(
    pa.struct([("user", pa.string()), ("assistant", pa.string()), ("source", pa.string())])
)
MODEL = json.dumps({"model": "llava-v1.5-7b", "type": "detailed_description"})


def talk(answer, question="<image>\nPlease generate a detailed caption of this image."):
    return [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]


def said(*answers):
    return [
        {"user": "What differs?", "assistant": answer, "source": "MIMIC-IT"} for answer in answers
    ]


def test_answers_are_captions(tmp_path):
    question, two = [{"from": "human", "value": "<image>"}], [*talk("First."), *talk("Second.")]
    talks = [talk(" A dog on a lawn. "), question, None, talk("A tree."), two, talk("x")]
    columns = {
        "id": [f"00{n}" for n in range(6)],
        "image": [*(struct(one) for one in (*DATA[:3], b"bad", DATA[5])), None],
        "conversations": talks,
        "data_source": ["cc3m"] * 6,
    }
    write_table(tmp_path / "set" / TABLE, columns, types={"image": IMAGE, "conversations": TURNS})
    items, found = read_all(config_of("llava-recap", tmp_path / "set"))
    row = found[f"{TABLE}#0"][0]
    assert (row.key, row.captions, row.source_key) == (
        make_key(DATA[0]),
        ("A dog on a lawn.",),
        items[0].key,
    )
    assert (row.name, row.source, row.licence, row.group) == (
        f"{TABLE}#0 000",
        "llava-recap",
        "",
        "",
    )
    assert found[f"{TABLE}#4"][0].captions == ("First.",)
    assert list(reasons_of(found).values()) == [
        "no caption",
        "no caption",
        "not an image",
        "no image in the row",
    ]
    counts, _ = build(f"llava-recap:{tmp_path / 'set'}", tmp_path / "out")
    assert (counts["images"].of, counts["images"].rows, counts["similar_pairs"].of) == (6, 2, 2)


def test_edits_become_pairs_with_their_instruction_and_prompts(tmp_path):
    columns = {
        "original_prompt": ["a field", "a field", "a man", "x"],
        "original_image": [struct(DATA[n]) for n in (0, 2, 4, 0)],
        "edit_prompt": ["make it snow", "make it snow", "add a hat", None],
        "edited_prompt": ["a field in snow", "a field in snow", "a man with a hat", "y"],
        "edited_image": [struct(DATA[n]) for n in (1, 3, 5, 1)],
    }
    write_table(tmp_path / TABLE, columns, types={"original_image": IMAGE, "edited_image": IMAGE})
    items, found = read_all(config_of("instructpix2pix", tmp_path))
    first, second, pair = found[f"{TABLE}#0"]
    assert (
        (pair.first, pair.second)
        == (first.key, second.key)
        == (make_key(DATA[0]), make_key(DATA[1]))
    )
    assert (first.captions, second.captions) == (("a field",), ("a field in snow",))
    assert (pair.origin, pair.instruction, pair.human_differences) == ("edit", "make it snow", ())
    assert {row.source_key for row in (first, second, pair)} == {items[0].key}
    assert first.name == f"{TABLE}#0 original_image"
    groups = [found[f"{TABLE}#{n}"][0].group for n in range(3)]
    assert groups[0] == groups[1] != groups[2]
    assert reasons_of(found) == {f"{TABLE}#3": "damaged prompt"}


def test_two_images_become_a_pair_with_the_answers_about_them(tmp_path):
    rows = [
        ((0, 1), said("One has a dog.", " The other has a cat. ")),
        ((1, 2), said("The light differs.")),
        ((0,), said("alone")),
        ((0, 1, 2), said("three")),
        ((2, 3), said("", None)),
        ((3, 3), said("the same")),
        ((0, 1), None),
    ]
    images = [[struct(DATA[n]) for n in shown] for shown, _ in rows]
    columns = {"images": images, "texts": [texts for _, texts in rows]}
    write_table(
        tmp_path / "set" / TABLE, columns, types={"images": pa.list_(IMAGE), "texts": TEXTS}
    )
    items, found = read_all(config_of("scene-difference", tmp_path / "set"))
    first, second, pair = found[f"{TABLE}#0"]
    assert (
        (pair.first, pair.second)
        == (first.key, second.key)
        == (make_key(DATA[0]), make_key(DATA[1]))
    )
    assert pair.human_differences == ("One has a dog.", "The other has a cat.")
    assert (pair.origin, pair.anchor, pair.cluster, pair.instruction) == ("given", "", -1, "")
    assert {row.source_key for row in (first, second, pair)} == {items[0].key}
    assert (first.name, second.name) == (f"{TABLE}#0 image 1", f"{TABLE}#0 image 2")
    told = [
        *["not two images"] * 2,
        "no text about the difference",
        "identical images",
        "no text about the difference",
    ]
    assert reasons_of(found) == {
        f"{TABLE}#{number}": reason for number, reason in enumerate(told, 2)
    }
    counts, _ = build(f"scene-difference:{tmp_path / 'set'}", tmp_path / "out")
    of = {name: (count.of, count.rows) for name, count in counts.items() if count.of}
    assert of == {"images": (7, 3), "given_pairs": (7, 2), "pairs": (2, 2)}
    assert build(f"scene-difference:{tmp_path / 'set'}", tmp_path / "out")[1] == 0


@pytest.mark.parametrize(
    ("kind", "columns", "words"),
    [
        (
            "llava-recap",
            {"image": [DATA[0]], "text": ["a"]},
            r"conversations, id; .*image \(binary\), text",
        ),
        (
            "scene-difference",
            {"images": [["a.png"]], "texts": [[]]},
            r"column images .*images \(list<",
        ),
        (
            "instructpix2pix",
            {"original_image": [DATA[0]]},
            "edit_prompt, edited_image, .*_prompt; ",
        ),
        ("rlaif-v", {"image": [DATA[0]], "question": ["a"]}, "chosen, rejected; "),
    ],
)
def test_another_table_is_refused_with_its_columns(tmp_path, kind, columns, words):
    write_table(tmp_path / "a.parquet", columns)
    with pytest.raises(SourceError, match=words):
        read_all(config_of(kind, tmp_path))


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


def test_rows_become_preferences_about_one_image(preferences):
    items, found = read_all(config_of("rlaif-v", preferences))
    image, preference = found[f"{TABLE}#0"]
    key = make_key("preference", image.key, "What is it?", "A dog.", "A horse.", "llava-v1.5-7b")
    said = {
        "chosen": "A dog.",
        "chosen_model": "llava-v1.5-7b",
        "rejected": "A horse.",
        "rejected_maker": "given",
    }
    said |= {"rejected_note": "RLAIF-V COCO 0", "prompt": (Turn(role="user", text="What is it?"),)}
    shown = {
        "images": (JPEGS[0],),
        "image_keys": (make_key(JPEGS[0]),),
        "component": make_key(JPEGS[0]),
    }
    lacking = dict.fromkeys(("negatives", "rejected_images", "removal_scores"), ())
    about = {"split": "train", "sources": ("rlaif-v",), "licences": ("CC-BY-NC-4.0",)}
    row = {"key": key, "source_key": items[0].key, "subject": image.key}
    assert preference == PreferenceRow(**row, **said, **shown, **lacking, **about)
    other = found[f"{TABLE}#1"][1]
    assert (other.component, other.key == preference.key) == (preference.component, False)
    assert found[f"{TABLE}#2"][1].chosen_model == "RLAIF-V"
    assert reasons_of(found) == {
        f"{TABLE}#3": "no question or answer",
        f"{TABLE}#4": "chosen is rejected",
        f"{TABLE}#5": "not an image",
    }


@pytest.mark.parametrize(
    "text", [None, 7, "", "[]", '{"model": 3}', "[" * 9000, '{"model": " "}', " " * 10_001]
)
def test_the_model_is_the_data_set_where_none_is_named(text):
    assert answering_model(text) == "RLAIF-V"


def test_a_build_brings_preferences_and_nothing_is_mined(preferences, tmp_path):
    counts, _ = build(f"rlaif-v:{preferences}", tmp_path / "out", until="")
    found = {name: (count.of, count.rows) for name, count in counts.items() if count.of}
    assert found == {"images": (6, 2), "given_preferences": (6, 3), "preferences": (3, 3)}
    assert build(f"rlaif-v:{preferences}", tmp_path / "out", until="")[1] == 0
    pw.open(tmp_path / "out").report(pairs=4)
    page = (tmp_path / "out/report/index.html").read_text()
    assert ("No pairs yet" in page, "Each is about one image." in page) == (False, True)
    assert (
        len(re.findall(r'<article class="card" aria-label="Preference', page)) == 2
    )  # one of each image
    tally = pw.open(tmp_path / "out").export("hf", str(tmp_path / "hf"))
    assert (tally.rows, tally.licences, tally.makers) == (3, {"CC-BY-NC-4.0": 2}, {"given": 3})
    card = (tmp_path / "hf/README.md").read_text()
    assert ("about one image" in card, "embedded" in card, "license: cc-by-nc-4.0" in card) == (
        True,
        False,
        True,
    )
