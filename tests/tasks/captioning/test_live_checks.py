"""Controls and the judge against a real vLLM: its grammars take what is asked, and every answer can be read."""

from dataclasses import replace

import pytest

from pairwright.schemas import checks
from pairwright.schemas.config import ControlsConfig, JudgingConfig
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.captioning.control_differences import control_differences
from pairwright.tasks.captioning.judge_differences import judge_differences
from tests.fixtures.coloured import caption_of, image_of, pair_of
from tests.fixtures.descriptions import description

pytestmark = pytest.mark.live
RED, BLUE = image_of("red"), image_of("blue")
PAIR = pair_of(RED, BLUE)
TABLES = {"pairs": {PAIR.key: PAIR}, "images": {row.key: row for row in (RED, BLUE)}}
CAPTIONS = {row.key: caption_of(row) for row in (RED, BLUE)}
ROWS = [
    replace(description("shows a red wall", f"shows {n} blue walls", subject=PAIR.key), key=f"{n:032x}")
    for n in range(2, 8)
]


@pytest.fixture
def chat(qwen_server):
    return ChatConfig(endpoint=(qwen_server.endpoint,), model=qwen_server.model, structured_output="vllm")


def test_the_judge_is_held_to_its_scale(chat):
    rows = list(judge_differences(ROWS, JudgingConfig(enabled=True, chat=chat), **TABLES))
    assert len(rows) == len(ROWS)
    assert all(row.score in range(6) and len(row.text) == 1 for row in rows), rows


def test_controls_are_answered_in_the_template_or_by_the_way_out(chat):
    config = ControlsConfig(enabled=True, kinds=("swapped", "same"), max_tokens=400, chat=chat)
    rows = list(control_differences(ROWS, config, **TABLES, captions=CAPTIONS))
    assert sorted(row.check for row in rows) == ["same"] * len(ROWS) + ["swapped"] * len(ROWS)
    # A random model may never end a half, or deny all of it; what ends is in the form.
    whole = [row for row in rows if row.served[0].finish_reason == "stop"]
    assert whole
    hollow = ("negation or auxiliary only", "halves are equal", "too short", "cut off", "empty half")
    for row in whole:
        assert not row.why.endswith(("off the template", "verb not in the list")), row
        assert row.passed or row.why in (*checks.AGAINST, checks.SEEN_IN_SAME) or row.why.endswith(hollow), row
