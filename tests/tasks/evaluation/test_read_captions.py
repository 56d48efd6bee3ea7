import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.read_captions import Record, match_captions, read_captions


def read(tmp_path, text):
    path = tmp_path / "captions.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [(record.name, record.texts) for record in read_captions(path)]


FORMS = {
    "lines": '{"id": 7, "text": "a car"}\n\n{"id": "b", "caption": "left"}\n',
    "lines of Windows": '\ufeff{"id": "7", "text": "a car"}\r\n{"id": "b", "text": "left"}',
    "a list": '[{"image_id": 7, "caption": "a car"}, {"image_id": "b", "caption": "left"}]',
    "a list over lines": """[{"image_id": 7, "id": 1, "caption": "a car"},
        {"img_id": "b", "id": 2, "sentences": ["left"]}]""",
    "COCO": """{"annotations": [{"image_id": 7, "id": 3, "caption": "a car"},
        {"id": "b", "texts": ["left"]}], "images": []}""",
    "COCO in a file of lines": """{
        "info": {},
        "annotations": [
            {"image_id": 7, "caption": "a car"}, {"id": "b", "text": "left"}]
        }""",
    "a dictionary": '{\n "7": ["a car"],\n "b": ["left"]\n}',
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_forms(tmp_path, text):
    assert read(tmp_path, text) == [("7", ("a car",)), ("b", ("left",))]


def test_several_texts_are_a_list_of_one_record(tmp_path):
    assert read(tmp_path, '{"img_id": "1", "sentences": ["x", ""]}\n') == [("1", ("x", ""))]


WRONG = [
    ("", "no captions"),
    ('{"annotations": []}', "no captions"),
    ('{"id": 1, "text": "a"}\n{"id": 2, "text": ', "captions.json line 2: .*JSON"),
    ('{"id": 1, "text": "a"}\n[1]\n', "line 2: .*dictionary"),
    ('[{"id": 1, "text": "a"},\n{"id": 2 "text"}]', "captions.json line 2: .*JSON"),
    ('{"text": "a"}', "line 1: image_id"),
    ('[{"id": 1, "text": Infinity}]', "Infinity"),
    ('{"id": 1.5, "text": "a"}', r"line 1: id\b"),
    ('{"id": 1' + "0" * 4400 + ', "text": "a"}', "line 1"),
    ('{"id": "' + "i" * 1001 + '", "text": "a"}', r"line 1: id\b"),
    ('{"id": 1}', "line 1: .*text, caption, sentences"),
    ('{"id": 1, "text": "a", "caption": "b"}', "line 1: .*exactly one of text, caption"),
    ('{"id": 1, "text": null}', "line 1: text"),
    ('{"id": 1, "text": "' + "a" * 100_001 + '"}', "100000 characters"),
    ('{"id": 1, "text": "\\ud800"}', "line 1: text: .*unicode"),
    (b'{"id": 1, "text": "a"}\n{"id": 2, "text": "\xff"}\n', "line 2: .*UTF-8"),
    ("[" * 200_000, "JSON: .*recursion"),
    ('{"id": 1, "text": ' + "[" * 200_000 + "\n", "line 1: .*JSON"),
    ('{"7": ["a car"], "b": "left"}', "id 'b': captions"),
    ('{"annotations": {"id": 1}}', "line 1: image_id"),
]


@pytest.mark.parametrize(("text", "words"), WRONG, ids=lambda value: str(value[:30]))
def test_what_is_wrong_is_named_with_its_place(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words) as caught:
        read(tmp_path, text)
    assert "captions.json" in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.json: .*No such file"):
        read_captions(tmp_path / "nowhere.json")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_captions(tmp_path)
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate((512 << 20) + 1)  # sparse: takes no disk
    with pytest.raises(ConfigError, match=r"huge\.json: .*536,870,913"):
        read_captions(tmp_path / "huge.json")


def one(name, text="x", where="pred line 1"):
    return Record(name, (text,), False, where)


def several(name, *texts):
    return Record(name, texts, True, "ref record 1")


# As in Spot-the-Diff: two records of one pair, and a blank sentence.
REFERENCES = [
    several("1", "a car left.", "two men came"),
    several("2", "no change", ""),
    several("1", "a man left"),
]
PREDICTIONS = [one("2", "nothing"), one("1", "a car is gone")]
SAME = ("2", ("no change",))
TOGETHER = [("1", ("a car left.", "two men came", "a man left")), SAME]
RECORDS = [("1", ("a car left.", "two men came")), SAME, ("1", ("a man left",))]
JOINED = [("1", ("a car left. two men came",)), SAME, ("1", ("a man left",))]


@pytest.mark.parametrize(
    ("protocol", "items", "blank"),
    [
        ("coco", TOGETHER, 1),
        ("spot-the-diff", TOGETHER, 1),
        ("spot-the-diff-records", RECORDS, 1),
        ("spot-the-diff-multi", JOINED, 0),
    ],
)
def test_protocols(protocol, items, blank):
    matched = match_captions(PREDICTIONS, REFERENCES, protocol=protocol)
    assert [(item.name, item.references) for item in matched.items] == items
    texts = {"1": "a car is gone", "2": "nothing"}
    assert [item.prediction for item in matched.items] == [texts[name] for name, _ in items]
    assert matched.blank == blank


@pytest.mark.parametrize(
    ("missing", "items", "counts"),
    [
        pytest.param("empty", [("1", ""), ("2", "nothing")], (1, 1, 1), id="as empty texts"),
        pytest.param("leave-out", [("2", "nothing")], (1, 0, 1), id="left out"),
    ],
)
def test_missing_predictions_are_counted(missing, items, counts):
    matched = match_captions([PREDICTIONS[0]], REFERENCES, missing=missing)
    assert [(item.name, item.prediction) for item in matched.items] == items
    assert (matched.missing, matched.empty, matched.blank) == counts


def test_blank_texts_are_counted_and_may_be_kept():
    blank = [several("1", "x"), several("2", " ", "")]
    matched = match_captions([one("1", " "), one("2")], blank)
    assert [item.name for item in matched.items] == ["1"]
    assert (matched.unreferenced, matched.blank, matched.empty) == (1, 2, 1)
    kept = match_captions(PREDICTIONS, REFERENCES, keep_blank=True)
    assert kept.items[1].references == ("no change", "")
    assert kept.blank == 0


@pytest.mark.parametrize(
    ("predictions", "references", "options", "words"),
    [
        ([*PREDICTIONS, one("2", where="pred line 9")], REFERENCES, {}, "line 9: id '2' .*line 1"),
        ([*PREDICTIONS, one("9", where="pred line 3")], REFERENCES, {}, "pred line 3: ids '9' "),
        ([PREDICTIONS[0]], REFERENCES, {}, "ids '1' .*--missing"),
        ([one("0")], [several(str(number), "x") for number in range(9)], {},
         r"ids '1', '2', '3' and 5 more .*--missing"),
        ([several("1", "a", "b")], REFERENCES, {}, "id '1' .*2"),
        ([one("2")], [several("2", "")], {}, "score"),
        ([one("1")], [one("1", where="ref line 4")], {"protocol": "spot-the-diff-multi"},
         r"ref line 4: .*sentences"),
        (PREDICTIONS, REFERENCES, {"protocol": "std"}, "--protocol std: .*coco"),
        (PREDICTIONS, REFERENCES, {"missing": "no"}, "--missing no: .*refuse"),
    ],
    ids=["twice", "too many", "too few", "many missing", "two texts", "nothing to score",
         "no list of sentences", "unknown protocol", "unknown way"],
)  # fmt: skip
def test_captions_that_do_not_fit_are_refused(predictions, references, options, words):
    with pytest.raises(ConfigError, match=words):
        match_captions(predictions, references, **options)
