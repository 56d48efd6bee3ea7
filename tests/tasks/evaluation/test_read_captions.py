import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.read_captions import Record, match_captions, read_captions


def read(tmp_path, text, name="captions.json"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [(record.name, record.texts) for record in read_captions(path)]


WANTED = [("7", ("a car",)), ("b", ("left",))]


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 7, "text": "a car"}\n\n{"id": "b", "caption": "left"}\n',
        '\ufeff{"id": "7", "text": "a car"}\r\n{"id": "b", "text": "left"}',
        '[{"image_id": 7, "caption": "a car"}, {"image_id": "b", "caption": "left"}]',
        (
            '[{"image_id": 7, "id": 1, "caption": "a car"},\n {"img_id": "b", "id": 2, '
            '"sentences": '
            '["left"]}]'
        ),
        (
            '{"annotations": [{"image_id": 7, "id": 3, "caption": "a car"}, {"id": "b", "texts": '
            '["left"]}], "images": []}'
        ),
        '{\n "7": ["a car"],\n "b": ["left"]\n}',
        (
            '{\n "info": {},\n "annotations": [\n  {"image_id": 7, "caption": "a car"}, {"id": '
            '"b", '
            '"text": "left"}]\n}'
        ),
    ],
)
def test_forms(tmp_path, text):
    assert read(tmp_path, text) == WANTED


def test_several_texts_are_a_list_of_one_record(tmp_path):
    assert read(tmp_path, '{"img_id": "1", "sentences": ["x", ""]}\n') == [("1", ("x", ""))]


@pytest.mark.parametrize(
    ("text", "words"),
    [
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
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words) as caught:
        read(tmp_path, text)
    assert "captions.json" in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"nowhere\.json: .*No such file"):
        read_captions(tmp_path / "nowhere.json")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_captions(tmp_path)
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate((512 << 20) + 1)  # sparse: takes no disk
    with pytest.raises(ConfigError, match=r"huge\.json: .*536,870,913"):
        read_captions(tmp_path / "huge.json")


def one(name, text, where="pred line 1"):
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


@pytest.mark.parametrize(
    ("protocol", "wanted"),
    [
        ("coco", [("1", ("a car left.", "two men came", "a man left")), ("2", ("no change",))]),
        (
            "spot-the-diff",
            [("1", ("a car left.", "two men came", "a man left")), ("2", ("no change",))],
        ),
        (
            "spot-the-diff-records",
            [("1", ("a car left.", "two men came")), ("2", ("no change",)), ("1", ("a man left",))],
        ),
        (
            "spot-the-diff-multi",
            [("1", ("a car left. two men came",)), ("2", ("no change",)), ("1", ("a man left",))],
        ),
    ],
)
def test_protocols(protocol, wanted):
    found = match_captions(PREDICTIONS, REFERENCES, protocol=protocol)
    assert [(item.name, item.references) for item in found.items] == wanted
    texts = {"1": "a car is gone", "2": "nothing"}
    assert [item.prediction for item in found.items] == [texts[name] for name, _ in wanted]
    assert found.blank == (0 if protocol == "spot-the-diff-multi" else 1)


def test_what_is_missing_or_blank_is_said_and_counted():
    with pytest.raises(ConfigError, match=r"ref line 4: .*sentences"):
        match_captions(
            [one("1", "x")], [one("1", "y", "ref line 4")], protocol="spot-the-diff-multi"
        )
    references = [several(str(number), "x") for number in range(9)]
    with pytest.raises(ConfigError, match=r"ids '1', '2', '3' and 5 more .*--missing"):
        match_captions([one("0", "x")], references)
    empty = match_captions([PREDICTIONS[0]], REFERENCES, missing="empty")
    assert [(item.name, item.prediction) for item in empty.items] == [("1", ""), ("2", "nothing")]
    assert (empty.missing, empty.empty) == (1, 1)
    less = match_captions([PREDICTIONS[0]], REFERENCES, missing="leave-out")
    assert [item.name for item in less.items] == ["2"]
    assert (less.missing, less.empty, less.blank) == (1, 0, 1)
    found = match_captions(
        [one("1", " "), one("2", "x")], [several("1", "x"), several("2", " ", "")]
    )
    assert [item.name for item in found.items] == ["1"]
    assert (found.unreferenced, found.blank, found.empty) == (1, 2, 1)
    kept = match_captions(PREDICTIONS, REFERENCES, keep_blank=True)
    assert ([item.references for item in kept.items][1], kept.blank) == (("no change", ""), 0)
    with pytest.raises(ConfigError, match="score"):
        match_captions([one("2", "x")], [several("2", "")])


@pytest.mark.parametrize(
    ("option", "words"),
    [({"protocol": "std"}, "--protocol std"), ({"missing": "no"}, "--missing no")],
)
def test_unknown_names(option, words):
    with pytest.raises(ConfigError, match=f"{words}: .*(coco|refuse)"):
        match_captions(PREDICTIONS, REFERENCES, **option)


@pytest.mark.parametrize(
    ("predictions", "words"),
    [
        ([*PREDICTIONS, one("2", "again", "pred line 9")], "pred line 9: id '2' .*pred line 1"),
        ([*PREDICTIONS, one("9", "x", "pred line 3")], "pred line 3: ids '9' "),
        ([PREDICTIONS[0]], "ids '1' .*--missing"),
        ([several("1", "a", "b")], "id '1' .*2"),
    ],
)
def test_ids_must_fit(predictions, words):
    with pytest.raises(ConfigError, match=words):
        match_captions(predictions, REFERENCES)
