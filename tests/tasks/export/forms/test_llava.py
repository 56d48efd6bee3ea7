"""LLaVA's rules for conversations, as CaD-VI's trainer applies them, on what is exported."""

import json
from dataclasses import replace
from pathlib import Path

from pairwright.schemas.rows import Turn
from tests.fixtures.exports import export_some, preference


def test_a_list_of_conversations_with_a_mark_per_image(tmp_path: Path) -> None:
    first = replace(preference(1), rejected="", prompt=(
        Turn(role="user", text="Image 1: <image>\nImage 2: <image>\nSummarise."),
        Turn(role="assistant", text="Both show noise."),
        Turn(role="user", text="Which is brighter?"),
    ), chosen="A")  # fmt: skip
    second = replace(preference(2, images=1), rejected="")
    export_some(tmp_path / "out", [first, second], form="llava")
    two, one = json.loads((tmp_path / "out/data/train.json").read_text())
    assert two["id"] == first.key
    assert two["conversations"] == [
        {"from": "human", "value": "Image 1: <image>\nImage 2: <image>\nSummarise."},
        {"from": "gpt", "value": "Both show noise."},
        {"from": "human", "value": "Which is brighter?"},
        {"from": "gpt", "value": "A"},
    ]
    assert [(tmp_path / "out" / name).read_bytes() for name in two["image"]] == list(first.images)
    assert isinstance(one["image"], str)
    assert one["conversations"][0]["value"] == "<image>What is to be seen?"


def test_a_conversation_that_ends_with_a_question_is_not_held(tmp_path: Path) -> None:
    good = replace(preference(1), rejected="")
    bad = replace(good, prompt=(*good.prompt, Turn(role="user", text="And now?")))
    tally = export_some(tmp_path / "out", [bad, good], form="llava")
    assert dict(tally.unheld) == {"user and assistant do not take turns in the prompt": 1}
    assert len(json.loads((tmp_path / "out/data/train.json").read_text())) == 1
