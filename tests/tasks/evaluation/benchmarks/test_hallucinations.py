"""What descriptions make up, by the lists of AMBER and of CHAIR, in folders laid out as they are
published."""

import base64
from pathlib import Path
from typing import Any

import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmark import Replies
from pairwright.tasks.evaluation.benchmarks.hallucinations import read_coco_words
from tests.fixtures.benchmarks import opened, scored, write_folder
from tests.fixtures.pictures import picture
from tests.fixtures.tagger import write_tagger

RELATION = {
    "sky": [],
    "man": ["guy"],
    "ship": ["boat", "vessel"],
    "cloud": [],
    "bird": ["gull", "seagull"],
    "sun": [],
    "dog": [],
    "can": [],
}
SYNONYMS = """\
person, girl, man, woman, people
dog, puppy
elephant
dining table, table, desk
chair, seat
toilet
traffic light, stoplight
tie, bow tie
"""


@pytest.fixture
def amber(tmp_path: Path) -> Path:
    kinds = ["hallucination", "attribute-state", "attribute-state", "relation"]
    truths = ["no", "yes", "no", "no"]
    annotations = [
        {
            "id": 1,
            "type": "generative",
            "truth": ["sky", "man", "ship", "ship"],
            "hallu": ["bird", "sun"],
        },
        {"id": 2, "type": "generative", "truth": ["dog"], "hallu": ["sky"]},
        *(
            {"id": n, "type": f"discriminative-{kind}", "truth": truth}
            for n, (kind, truth) in enumerate(zip(kinds, truths, strict=True), start=3)
        ),
    ]
    queries = [{"id": n, "image": f"AMBER_{n}.jpg", "query": f"Query {n}?"} for n in range(1, 7)]
    files = {"annotations.json": annotations, "query_all.json": queries, "relation.json": RELATION}
    images = [f"AMBER_{n}.jpg" for n in range(1, 7)]
    return write_folder(tmp_path, images=images, files={**files, "safe_words.txt": "light\nsun\n"})


ANSWERS = {
    "1": "Two guys on boats; a seagull, a cloud, and the sun. The SKY can be seen.",
    "2": "A puppy.",
    "3": "No, there is none.",
    "4": "Yes.",
    "5": "Maybe no",
    "6": "yes",
}


def test_amber_by_its_lists(amber: Path) -> None:
    exam = opened("amber", amber)
    assert (exam.questions[0].max_tokens, exam.questions[5].max_tokens) == (512, 16)
    assert exam.questions[0].images[0] == amber / "images/AMBER_1.jpg"
    # Of 1: guy, boat, seagull, cloud, sun, sky are mentions; seagull (imagined) and cloud are
    # absent; sun is safe; can
    # is no noun. Of its truths, man, the first ship and sky are covered. 2 mentions nothing that
    # the lists know.
    expected = {
        ("generative", "CHAIR"): 2 / 6,
        ("generative", "Cover"): 3 / 5,
        ("generative", "Cog"): 1 / 3,
        ("generative", "Hal"): 1 / 2,
        ("discriminative", "accuracy"): 2 / 4,
        ("discriminative", "precision"): 1,
        ("discriminative", "recall"): 1 / 3,
        ("discriminative", "F1"): 1 / 2,
        ("existence", "accuracy"): 1,
        ("existence", "precision"): 1,
        ("existence", "recall"): 1,
        ("existence", "F1"): 1,
        ("attribute", "accuracy"): 1 / 2,
        ("attribute", "precision"): None,
        ("attribute", "recall"): 0,
        ("attribute", "F1"): 0,
        ("attribute: state", "accuracy"): 1 / 2,
        ("attribute: state", "precision"): None,
        ("attribute: state", "recall"): 0,
        ("attribute: state", "F1"): 0,
        ("relation", "accuracy"): 0,
        ("relation", "precision"): None,
        ("relation", "recall"): 0,
        ("relation", "F1"): 0,
        ("", "AMBER score"): (1 - 2 / 6 + 1 / 2) / 2,
    }
    assert scored(exam, ANSWERS) == {
        name: None if value is None else round(value, 6) for name, value in expected.items()
    }
    assert any("without en_core_web_lg" in note for note in exam.notes)
    taken = exam.mark(Replies(texts=ANSWERS, ratings={}, items=frozenset("123456"))).taken
    assert sorted(taken) == ["1", "2", "3", "4", "6"]


def test_amber_with_words_that_are_alike(amber: Path) -> None:
    """By their vectors, a gull is like a ship here, and a cloud like the sky."""
    import numpy as np
    import spacy

    nouns = {
        "guys": "guy",
        "boats": "boat",
        **{word: word for word in ("seagull", "cloud", "sun", "sky")},
    }
    write_tagger(amber / "en_core_web_lg", nouns)
    pipeline = spacy.load(amber / "en_core_web_lg")
    vectors = {
        "seagull": [1.0, 0],
        "ship": [1.0, 0.1],
        "cloud": [0, 1.0],
        "sky": [0.1, 1.0],
        "bird": [-1.0, 0],
    }
    pipeline.vocab.reset_vectors(width=2)
    for word, vector in vectors.items():
        table: Any = np.array(vector, np.float32)
        pipeline.vocab.set_vector(word, table)
    pipeline.to_disk(amber / "en_core_web_lg")
    scores = scored(opened("amber", amber), ANSWERS)
    assert (scores["generative", "CHAIR"], scores["generative", "Cover"]) == (0, 3 / 5)
    assert scores["generative", "Cog"] == round(1 / 3, 6)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "annotations.json",
            [{"id": 1, "type": "generative", "truth": ["sky"]}],
            "record 1: truth .*lists",
        ),
        (
            "annotations.json",
            [{"id": 1, "type": "generative", "truth": ["cow"], "hallu": []}],
            "relation.*'cow'",
        ),
        (
            "annotations.json",
            [{"id": 9, "type": "relation", "truth": "yes"}],
            "record 1: id: .* annotations",
        ),
        ("relation.json", {"sky": "blue"}, r"relation\.json: "),
        (
            "query_all.json",
            [{"id": 1, "image": "/etc/x", "query": "?"}],
            r"query_all\.json record 1: '/etc/x'",
        ),
    ],
)
def test_wrong_files_of_amber_are_named(
    amber: Path, file: str, content: object, message: str
) -> None:
    write_folder(amber, images=[], files={file: content})
    with pytest.raises(ConfigError, match=message):
        opened("amber", amber)


def test_coco_words(tmp_path: Path) -> None:
    (tmp_path / "synonyms.txt").write_text(SYNONYMS)
    words = read_coco_words(tmp_path / "synonyms.txt")
    found = words.find_objects(
        "Two men and a baby elephant at tables; the toilet's seat, traffic lights, a bow tie, "
        "a Frisbee."
    )
    assert [kind for _, kind in found] == [
        "person",
        "elephant",
        "dining table",
        "toilet",
        "traffic light",
        "tie",
    ]
    assert words.find_objects("a seat") == [("seat", "chair")]


def test_object_halbench(tmp_path: Path) -> None:
    image = base64.b64encode(picture(0)).decode()
    lines = [
        {"image_id": n, "org_idx": n, "question": "Describe.", "image": image} for n in ("5", 6, 7)
    ]
    categories = [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}]
    boxes = [
        {"image_id": 5, "category_id": 1},
        {"image_id": 6, "category_id": 18},
        {"image_id": 99, "category_id": 1},
    ]
    images = [{"id": n} for n in (5, 6, 7)]
    captions = [
        {"image_id": 5, "caption": "A girl at a desk."},
        {"image_id": 99, "caption": "A dog."},
    ]
    annotations = {
        "annotations/instances_val2014.json": {
            "images": images,
            "categories": categories,
            "annotations": boxes,
        },
        "annotations/captions_val2014.json": {"annotations": captions},
    }
    (tmp_path / "annotations").mkdir()
    folder = write_folder(
        tmp_path,
        images=[],
        files={**annotations, "synonyms_refine.txt": SYNONYMS},
        lines={"obj_halbench_300_with_image.jsonl": lines},
    )
    exam = opened("object-halbench", folder)
    assert exam.questions[0].images == (picture(0),)
    texts = {
        # woman, puppy, table: the puppy is absent
        "0": "A woman, a woman and a puppy sit at the table.",
        "1": "A dog.",  # too short to name anything
        "2": "Nothing can be seen in here.",
    }
    assert scored(exam, texts) == {
        ("", "response (CHAIR_s)"): 1,
        ("", "mention (CHAIR_i)"): round(1 / 3, 6),
        ("", "recall"): round(2 / 3, 6),
        ("", "answers that name objects"): round(1 / 3, 6),
    }
    (folder / "annotations/instances_val2014.json").unlink()
    with pytest.raises(ConfigError, match=r"instances_val2014\.json .*image 5"):
        opened("object-halbench", folder)
