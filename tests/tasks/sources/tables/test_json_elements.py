"""Elements come one by one whatever the chunks cut; damage costs a line, or the rest of a list."""

import io
import json

import pytest

from pairwright.tasks.sources.tables import json_elements
from pairwright.tasks.sources.tables.json_elements import Damaged, read_elements, read_json_lines


@pytest.mark.parametrize("chunk", [1, 2, 7, 1 << 20])
def test_a_list_is_read_across_chunks(chunk, monkeypatch):
    monkeypatch.setattr(json_elements, "CHUNK", chunk)
    wanted = [{"a": [1, {"b": ']} , é " \\'}]}, {}, {"n": -1.5}]
    for indent in (None, 2):
        data = json.dumps(wanted, indent=indent, ensure_ascii=False).encode("utf-8-sig")
        assert list(read_elements(io.BytesIO(data))) == wanted


@pytest.mark.parametrize("text", ["", "{}", "7", "no"])
def test_what_is_no_list_has_no_elements(text):
    assert list(read_elements(io.BytesIO(text.encode()))) == []


@pytest.mark.parametrize("text", ['[{"a": 1}, {"b": ', '[{"a": 1}, nonsense]', '[{"a": 1}', '[{"a": 1},' + "[" * 10**5])
def test_a_damaged_list_is_read_as_far_as_it_goes(text):
    first, damaged = read_elements(io.BytesIO(text.encode()))
    assert first == {"a": 1}
    assert isinstance(damaged, Damaged)


def test_an_endless_element_ends_the_list(monkeypatch):
    monkeypatch.setattr(json_elements, "LONGEST", 5000)
    monkeypatch.setattr(json_elements, "CHUNK", 1000)
    file = io.BytesIO(b'[{"a": "' + b"x" * 1_000_000)
    elements = read_elements(file)
    assert isinstance(next(elements), Damaged)
    assert file.tell() < 50_000
    assert list(elements) == []


def test_a_damaged_line_costs_that_line_only(monkeypatch):
    monkeypatch.setattr(json_elements, "LONGEST", 100)
    monkeypatch.setattr(json_elements, "CHUNK", 30)
    lines = ['{"a": 1}', "", "{", '"' + "x" * 200 + '"', "[" * 90, '{"b": 2}']
    found = list(read_json_lines(io.BytesIO("\n".join(lines).encode())))
    assert [isinstance(one, Damaged) for one in found] == [False, True, True, True, False]
    assert (found[0], found[-1]) == ({"a": 1}, {"b": 2})
