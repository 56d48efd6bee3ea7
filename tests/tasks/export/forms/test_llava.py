"""LLaVA's rules for conversations, as CaD-VI's trainer applies them, on what is exported."""

import json
from dataclasses import replace

from pairwright.schemas.rows import Turn
from tests.fixtures.exports import export_some, preference


def test_a_list_of_conversations_with_a_mark_per_image(tmp_path):
    prompt = (
        Turn(role="user", text="Image 1: <image>\nImage 2: <image>\nSummarise."),
        Turn(role="assistant", text="Both show noise."),
        Turn(role="user", text="Which is brighter?"),
    )
    first = replace(preference(1), rejected="", prompt=prompt, chosen="A")
    second = replace(preference(2, images=1), rejected="")
    export_some(tmp_path, [first, second], form="llava")
    two, one = json.loads((tmp_path / "data/train.json").read_text())
    assert two["id"] == first.key
    assert two["conversations"] == [
        {"from": "human", "value": "Image 1: <image>\nImage 2: <image>\nSummarise."},
        {"from": "gpt", "value": "Both show noise."},
        {"from": "human", "value": "Which is brighter?"},
        {"from": "gpt", "value": "A"},
    ]
    assert tuple((tmp_path / name).read_bytes() for name in two["image"]) == first.images
    assert isinstance(one["image"], str)
    assert one["conversations"][0]["value"] == "<image>What is to be seen?"
