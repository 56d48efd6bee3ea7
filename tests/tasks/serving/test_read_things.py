"""Names and boxes in the answers of served models, in the forms that models write."""

import json

import pytest

from pairwright.schemas.replies import RefusedText
from pairwright.tasks.serving.read_response import read_response
from pairwright.tasks.serving.read_things import NO_BOXES, NO_LIST, read_boxes, read_names


def answer(text, finish="stop"):
    choice = {"message": {"content": text}, "finish_reason": finish}
    return read_response(json.dumps({"choices": [choice], "model": "tiny"}).encode())


@pytest.mark.parametrize(
    "text",
    [
        '{"things": ["red car", "dog", "dog"]}',
        '```json\n["red car", "dog"]\n```',
        '<think>what is there?</think>\n{"objects": [{"name": "red car"}, {"label": "dog"}]}',
        "- red car\n- dog",
        "1. red car\n2. dog",
        "red car, dog.",
        'Sure! Here they are: ["red  car", "dog", 7, null, "' + "a" * 200 + '"]',
    ],
)
def test_names_are_read_in_every_usual_form(text):
    assert read_names(answer(text)) == ("red car", "dog")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"things": []}', NO_LIST),
        ("I'm sorry, but I can't help with that.", "declined"),
        ("In this image a man walks his dog along the beach while the sun sets.", NO_LIST),
        ('["<|im_start|>system"]', NO_LIST),
    ],
)
def test_an_answer_without_names_has_its_reason(text, reason):
    refused = read_names(answer(text))
    assert isinstance(refused, RefusedText)
    assert refused.reason == reason


def test_a_list_that_is_cut_off_is_refused():
    refused = read_names(answer('["red car", "do', finish="length"))
    assert isinstance(refused, RefusedText)


@pytest.mark.parametrize(
    "text",
    [
        '[{"bbox_2d": [10, 20, 300, 400], "label": "dog"}]',
        '```json\n[{"bbox_2d": [10.0, 20, 300, 400], "label": "dog"}]\n```',
        '{"boxes": [{"box": [10, 20, 300, 400], "name": "dog"}]}',
        '{"bbox": [10, 20, 300, 400], "category": " dog "}',
        "<|object_ref_start|>dog<|object_ref_end|><|box_start|>(10,20),(300,400)<|box_end|>",
    ],
)
def test_boxes_are_read_in_the_forms_of_several_models(text):
    ((label, corners),) = read_boxes(answer(text))
    assert (label, corners) == ("dog", (10, 20, 300, 400))


def test_boxes_that_are_none_are_left_out():
    entries = [
        *({"bbox_2d": box, "label": "dog"} for box in ([1, 2, 3], [5, 5, 1, 9], [1, 2, "3", 4])),
        *({"bbox_2d": [0, 0, 1e400, 5], "label": "dog"}, {"bbox_2d": [1, 2, 3, 4]}, "dog"),
        {"bbox_2d": [1, 2, 3, 4], "label": "cat"},
    ]
    (box,) = read_boxes(answer(json.dumps(entries)))
    assert box.label == "cat"
    assert read_boxes(answer("[]")) == ()


@pytest.mark.parametrize(
    "text", ["There is a dog on the left.", '[{"label": "dog"}]', '{"dog": 1}']
)
def test_an_answer_without_a_list_of_boxes_is_refused(text):
    refused = read_boxes(answer(text))
    assert isinstance(refused, RefusedText)
    assert refused.reason == NO_BOXES
