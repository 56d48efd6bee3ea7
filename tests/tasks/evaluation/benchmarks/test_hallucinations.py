"""What descriptions make up, by the lists of AMBER and of CHAIR, in folders laid out as they are
published."""

import base64

import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmark import Replies
from pairwright.tasks.evaluation.benchmarks.hallucinations import read_coco_words
from tests.fixtures.benchmarks import opened, scored, write_folder
from tests.fixtures.pictures import picture
from tests.fixtures.tagger import write_tagger

RELATION = {
    **{name: [] for name in ("sky", "cloud", "sun", "dog", "can")},
    "man": ["guy"],
    "ship": ["boat", "vessel"],
    "bird": ["gull", "seagull"],
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
GENERATIVE = [
    {"id": 1, "truth": ["sky", "man", "ship", "ship"], "hallu": ["bird", "sun"]},
    {"id": 2, "truth": ["dog"], "hallu": ["sky"]},
]
ANSWERS = {
    "1": "Two guys on boats; a seagull, a cloud, and the sun. The SKY can be seen.",
    "2": "A puppy.",
    "3": "No, there is none.",
    "4": "Yes.",
    "5": "Maybe no",
    "6": "yes",
}


@pytest.fixture
def amber(tmp_path):
    kinds = ["hallucination", "attribute-state", "attribute-state", "relation"]
    questions = zip(kinds, ["no", "yes", "no", "no"], strict=True)
    annotations = [
        *({**row, "type": "generative"} for row in GENERATIVE),
        *(
            {"id": number, "type": f"discriminative-{kind}", "truth": truth}
            for number, (kind, truth) in enumerate(questions, start=3)
        ),
    ]
    images = [f"AMBER_{n}.jpg" for n in range(1, 7)]
    queries = [
        {"id": number, "image": name, "query": f"Query {number}?"}
        for number, name in enumerate(images, start=1)
    ]
    files = {"annotations.json": annotations, "query_all.json": queries, "relation.json": RELATION}
    return write_folder(tmp_path, images=images, files={**files, "safe_words.txt": "light\nsun\n"})


def test_amber_by_its_lists(amber):
    """Of 1: guy, boat, seagull, cloud, sun, sky are mentions; seagull (imagined) and cloud are
    absent; sun is safe; can is no noun. Of its truths, man, the first ship and sky are covered.
    2 mentions nothing that the lists know."""
    exam = opened("amber", amber)
    assert (exam.questions[0].max_tokens, exam.questions[5].max_tokens) == (512, 16)
    assert exam.questions[0].images[0] == amber / "images/AMBER_1.jpg"
    generative = {"CHAIR": 2 / 6, "Cover": 3 / 5, "Cog": 1 / 3, "Hal": 1 / 2}
    expected = {("generative", name): round(value, 6) for name, value in generative.items()}
    rows = {  # accuracy, precision, recall, F1
        "discriminative": (2 / 4, 1, 1 / 3, 1 / 2),
        "existence": (1, 1, 1, 1),
        "attribute": (1 / 2, None, 0, 0),
        "attribute: state": (1 / 2, None, 0, 0),
        "relation": (0, None, 0, 0),
    }
    for of, (accuracy, precision, recall, f1) in rows.items():
        expected |= {(of, "accuracy"): accuracy, (of, "precision"): precision}
        expected |= {(of, "recall"): round(recall, 6), (of, "F1"): f1}
    expected["", "AMBER score"] = round((1 - 2 / 6 + 1 / 2) / 2, 6)
    assert scored(exam, ANSWERS) == expected
    assert any("without en_core_web_lg" in note for note in exam.notes)
    replies = Replies(texts=ANSWERS, ratings={}, items=frozenset("123456"))
    assert sorted(exam.mark(replies).taken) == ["1", "2", "3", "4", "6"]


def test_amber_with_words_that_are_alike(amber):
    """By their vectors, a gull is like a ship here, and a cloud like the sky."""
    import numpy as np
    import spacy

    place = amber / "en_core_web_lg"
    singular = {word: word for word in ("seagull", "cloud", "sun", "sky")}
    write_tagger(place, {"guys": "guy", "boats": "boat", **singular})
    pipeline = spacy.load(place)
    pipeline.vocab.reset_vectors(width=2)
    vectors = {
        "seagull": (1, 0),
        "ship": (1, 0.1),
        "cloud": (0, 1),
        "sky": (0.1, 1),
        "bird": (-1, 0),
    }
    for word, vector in vectors.items():
        pipeline.vocab.set_vector(word, np.array(vector, np.float32))
    pipeline.to_disk(place)
    scores = scored(opened("amber", amber), ANSWERS)
    assert (scores["generative", "CHAIR"], scores["generative", "Cover"]) == (0, 3 / 5)
    assert scores["generative", "Cog"] == round(1 / 3, 6)


ANNOTATED = {"id": 1, "type": "generative"}


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("annotations", [{**ANNOTATED, "truth": ["sky"]}], "record 1: truth .*lists"),
        ("annotations", [{**ANNOTATED, "truth": ["cow"], "hallu": []}], "relation.*'cow'"),
        (
            "annotations",
            [{"id": 9, "type": "relation", "truth": "yes"}],
            "record 1: id: .* annotations",
        ),
        ("relation", {"sky": "blue"}, r"relation\.json: "),
        (
            "query_all",
            [{"id": 1, "image": "/etc/x", "query": "?"}],
            r"query_all\.json record 1: '/etc/x'",
        ),
    ],
    ids=["no list", "unknown word", "no query", "no synonyms", "absolute path"],
)
def test_wrong_files_of_amber_are_named(amber, file, content, message):
    write_folder(amber, images=[], files={f"{file}.json": content})
    with pytest.raises(ConfigError, match=message):
        opened("amber", amber)


def test_coco_words(tmp_path):
    (tmp_path / "synonyms.txt").write_text(SYNONYMS)
    words = read_coco_words(tmp_path / "synonyms.txt")
    text = (
        "Two men and a baby elephant at tables; the toilet's seat, traffic lights, a bow tie, "
        "a Frisbee."
    )
    kinds = ["person", "elephant", "dining table", "toilet", "traffic light", "tie"]
    assert [kind for _, kind in words.find_objects(text)] == kinds
    assert words.find_objects("a seat") == [("seat", "chair")]


@pytest.fixture
def halbench(tmp_path):
    """Return a folder with a person and a desk in image 5, and a dog in image 6."""
    image = base64.b64encode(picture(0)).decode()
    lines = [
        {"image_id": n, "org_idx": n, "question": "Describe.", "image": image} for n in ("5", 6, 7)
    ]
    instances = {
        "images": [{"id": n} for n in (5, 6, 7)],
        "categories": [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}],
        "annotations": [
            {"image_id": image, "category_id": kind} for image, kind in ((5, 1), (6, 18), (99, 1))
        ],
    }
    captions = [
        {"image_id": 5, "caption": "A girl at a desk."},
        {"image_id": 99, "caption": "A dog."},
    ]
    (tmp_path / "annotations").mkdir()
    files = {
        "annotations/instances_val2014.json": instances,
        "annotations/captions_val2014.json": {"annotations": captions},
        "synonyms_refine.txt": SYNONYMS,
    }
    lines = {"obj_halbench_300_with_image.jsonl": lines}
    return write_folder(tmp_path, images=[], files=files, lines=lines)


def test_object_halbench(halbench):
    exam = opened("object-halbench", halbench)
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


def test_object_halbench_needs_the_annotations(halbench):
    (halbench / "annotations/instances_val2014.json").unlink()
    with pytest.raises(ConfigError, match=r"instances_val2014\.json .*image 5"):
        opened("object-halbench", halbench)
