import json

import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.read_captions import read_captions


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
        '[{"image_id": 7, "id": 1, "caption": "a car"},\n {"img_id": "b", "id": 2, "sentences": ["left"]}]',
        '{"annotations": [{"image_id": 7, "id": 3, "caption": "a car"}, {"id": "b", "texts": ["left"]}], "images": []}',
        '{\n "info": {},\n "annotations": [\n  {"image_id": 7, "caption": "a car"}, {"id": "b", "text": "left"}]\n}',
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
        ("[]", "no captions"),
        ('{"annotations": []}', "no captions"),
        ('{"id": 1, "text": "a"}\n{"id": 2, "text": ', "captions.json line 2: .*JSON"),
        ('{"id": 1, "text": "a"}\n[1]\n', "line 2: .*list"),
        ('[{"id": 1, "text": "a"},\n{"id": 2 "text"}]', "captions.json line 2: .*JSON"),
        ('[{"id": 1, "text": "a"}, 5]', r"record 2: .*\bint\b"),
        ('{"text": "a"}', "line 1: .*image_id, img_id, id"),
        ('{"id": NaN, "text": "a"}', "line 1: .*NaN"),
        ('[{"id": 1, "text": Infinity}]', "Infinity"),
        ('{"id": 1.5, "text": "a"}', r"line 1: id\b"),
        ('{"id": true, "text": "a"}', r"line 1: id\b"),
        ('{"id": "", "text": "a"}', r"line 1: id\b"),
        ('{"id": 1' + "0" * 4400 + ', "text": "a"}', "line 1"),
        ('{"id": "' + "i" * 1001 + '", "text": "a"}', "1,000"),
        ('{"id": 1}', "line 1: .*text, caption, sentences"),
        ('{"id": 1, "text": "a", "caption": "b"}', "line 1: .*text and caption"),
        ('{"id": 1, "text": null}', "line 1: text"),
        ('{"id": 1, "sentences": "a"}', "line 1: sentences"),
        ('{"id": 1, "sentences": ["a", 2]}', "line 1: sentences"),
        ('{"id": 1, "text": "' + "a" * 100_001 + '"}', "100,000"),
        ('{"id": 1, "text": "\\ud800"}', "line 1: .*surrogate"),
        ('{"id": 1, "text": "a\\u0000b"}', "NUL"),
        (b'{"id": 1, "text": "a"}\n{"id": 2, "text": "\xff"}\n', "line 2: .*UTF-8"),
        ("[" * 200_000, "nested"),
        ('{"id": 1, "text": ' + "[" * 200_000 + "\n", "line 1: .*JSON"),
        ('{"annotations": {"id": 1}}', "line 1: .*text, caption, sentences"),
        ("null", "NoneType"),
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


def test_places_name_the_record_of_a_list(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]))
    assert [record.where for record in read_captions(path)] == [f"{path} record 1", f"{path} record 2"]
