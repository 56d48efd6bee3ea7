"""The served model as tagger and detector: rows of the stages, from a scripted server."""

import json

import pytest

from pairwright.schemas.config import DetectionConfig, Profile, TaggingConfig
from pairwright.schemas.rows import BoxesRow, Dropped, Failed, Tag, TagsRow, make_key
from pairwright.schemas.writing import ChatConfig, served_parts
from pairwright.tasks.rejected import detect_boxes as boxes_stage
from pairwright.tasks.rejected import inspect_removals
from pairwright.tasks.rejected.detect_boxes import detect_boxes
from pairwright.tasks.rejected.tag_images import tag_images
from tests.fixtures.chat_server import Status, chat_server
from tests.fixtures.pictures import photograph
from tests.fixtures.rows import row_of
from tests.tasks.models.samples import photographs

CHINA = photograph(photographs()["china"], name="china.png")
NAMES = '{"things": ["temple", "red lantern", "sky", "Temple"]}'


def chat_of(server, **settings):
    return ChatConfig(
        endpoint=(server.url,), model="tiny", structured_output="none", max_attempts=1, **settings
    )


def tag(server, *, taggers=("served",)):
    config = TaggingConfig(taggers=taggers, chat=chat_of(server))
    return list(tag_images([CHINA], config))


def test_the_model_names_what_is_there(tmp_path):
    with chat_server(lambda asked: NAMES) as server:
        (row,) = tag(server)
    assert isinstance(row, TagsRow)
    assert [(entry.name, entry.tagger) for entry in row.tags] == [
        ("temple", "served"),
        ("red lantern", "served"),
    ]
    assert {refused.name for refused in row.refused_tags} == {"sky"}
    (asked,) = server.asked
    assert len(asked.images) == 1
    assert "at most 30" in asked.text


def test_an_answer_that_is_no_list_is_asked_for_again_then_dropped():
    answers = iter(["It is a lovely place in China where many people go every year.", NAMES])
    with chat_server(lambda asked: next(answers)) as server:
        (row,) = tag(server)
    assert isinstance(row, TagsRow)
    with chat_server(lambda asked: "It is a lovely place where many people go.") as server:
        (row,) = tag(server)
    assert isinstance(row, Dropped)
    assert row.reason == "no list of things"
    assert len(server.asked) == 2


def test_a_server_that_is_down_leaves_the_image_unfinished():
    with chat_server(lambda asked: Status(500)) as server:
        (row,) = tag(server)
    assert isinstance(row, Failed)
    assert row.reason == "server error"


def boxes_of(server, tags, **settings):
    config = DetectionConfig(detector="served", chat=chat_of(server), **settings)
    row = row_of(TagsRow, "tags", source=CHINA.key, subject=CHINA.key, tags=tags)
    return list(detect_boxes([row], config, images={CHINA.key: CHINA}))


TAGS = tuple(Tag(name=name, score=1.0, tagger="served") for name in ("temple", "red lantern"))
FOUND = [
    {"bbox_2d": [100, 200, 500, 1200], "label": "red lantern"},
    {"bbox_2d": [101, 201, 500, 1000], "label": "Red lantern"},
    {"bbox_2d": [0, 0, 250, 500], "label": "the temple"},
    {"bbox_2d": [0, 0, 10, 10], "label": "dragon"},
]


def test_boxes_in_thousandths_become_pixels_of_the_image():
    with chat_server(lambda asked: json.dumps(FOUND)) as server:
        (row,) = boxes_of(server, TAGS)
    assert isinstance(row, BoxesRow)
    corners = [(box.tag, box.x0, box.y0, box.x1, box.y1) for box in row.boxes]
    width, height = CHINA.width, CHINA.height
    assert corners == [
        (0, 0, 0, width / 4, height / 2),
        (1, round(width * 0.1, 2), round(height * 0.2, 2), width / 2, height),
    ], "a copy and an unknown name are left out, edges are clipped"
    assert "temple; red lantern" in server.asked[0].text
    assert "thousandths" in server.asked[0].text


def test_boxes_in_pixels_are_of_the_image_that_was_sent():
    """640 x 427 pixels are sent as they are; the model's processor makes them 644 x 420."""
    answer = json.dumps([{"bbox_2d": [322, 210, 644, 420], "label": "temple"}])
    with chat_server(lambda asked: answer) as server:
        (row,) = boxes_of(server, TAGS, coordinates="pixels")
    (box,) = row.boxes
    assert (CHINA.width, CHINA.height) == (640, 427)
    assert (box.x0, box.y0, box.x1, box.y1) == (320, 213.5, 640, 427)


def test_an_image_without_boxes_and_one_without_an_answer_are_told_apart():
    with chat_server(lambda asked: "[]") as server:
        (row,) = boxes_of(server, TAGS)
    assert row.reason == "no boxes"
    with chat_server(lambda asked: "I see a temple.") as server:
        (row,) = boxes_of(server, TAGS)
    assert row.reason == "no list of boxes"


@pytest.mark.parametrize("name", ["chat", "eyes"])
def test_stages_get_the_server_that_the_profile_names(name):
    models = {name: ChatConfig(model="m")}
    detection = DetectionConfig(detector="served", server=name)
    tagging = TaggingConfig(taggers=("served",), model=name)
    profile = Profile(models=models, detection=detection, tagging=tagging)
    for stage in (boxes_stage.STAGE, inspect_removals.STAGE):
        (part,) = served_parts(stage.configure(profile))
        assert part.chat == models[name]
        assert stage.prompts(stage.configure(profile)) == ("find_boxes",)


def test_settings_without_a_served_model_ask_none():
    profile = Profile(seed=7)
    for stage in (boxes_stage.STAGE, inspect_removals.STAGE):
        config = stage.configure(profile)
        assert list(served_parts(config)) == []
        assert "seed" not in json.loads(config.model_dump_json())
    assert make_key("x")
