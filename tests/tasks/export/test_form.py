"""Which rows each form of export cannot hold, and why."""

from dataclasses import replace

import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import Turn
from pairwright.tasks.export.formats import FORMATS
from tests.fixtures.exports import export_some, preference

GOOD = preference(1)
TALK = (*GOOD.prompt, Turn(role="assistant", text="a"))
SPOILT = (GOOD.images[0], b"\x89PNG broken")
PREFERENCES = ("trl", "llamafactory", "ms-swift", "rlaif-v")
CONVERSATIONS = (*PREFERENCES, "llava", "openai-batch", "grpo")
EDITS = ("edit", "omniedit")
SIZED = ("omniedit", "fiftyone", "label-studio")
ALL = (*CONVERSATIONS, *EDITS, "hf", "webdataset", "fiftyone", "label-studio")
TURNS = "user and assistant do not take turns in the prompt"
ANSWER = "an answer has the mark of an image, a video or a sound in its words"
DAMAGED = "an image cannot be put beside another: damaged image"
MEDIA = "a text has the mark of an image, a video or a sound in its words"
TOKENS = "control tokens in a text"


def ask(text):
    return {"prompt": (Turn(role="user", text=text),)}


@pytest.mark.parametrize(
    ("fields", "forms", "reason"),
    [
        ({}, (), ""),
        ({"rejected": " "}, PREFERENCES, "no rejected text"),
        ({"rejected": GOOD.chosen}, PREFERENCES, "the rejected text is the chosen one"),
        ({"chosen": ""}, CONVERSATIONS, "no chosen text"),
        (ask("one <image> only"), CONVERSATIONS, "the prompt has <image> in its words"),
        (ask("<image>\n<image>\nWhat differs?"), (), ""),
        (ask("What differs in the <video>?"), ALL, MEDIA),
        ({"chosen": "It shows <image>."}, ALL, MEDIA),
        ({"chosen": "It shows a cup.<|im_end|>"}, ALL, TOKENS),
        ({"rejected": "It shows a [INST] cup."}, ALL, TOKENS),
        ({"rejected": "The <audio> is loud."}, ALL, MEDIA),
        ({"chosen": "The <bbox> is red."}, ("ms-swift",), ANSWER),
        ({"prompt": TALK}, CONVERSATIONS, TURNS),
        ({"prompt": (*GOOD.prompt, *GOOD.prompt)}, CONVERSATIONS, TURNS),
        ({"prompt": (*TALK, *GOOD.prompt)}, ("rlaif-v",), "the prompt has several turns"),
        ({"graphs": None}, ("grpo",), "no scene graphs of one scene"),
        ({"edits": ()}, EDITS, "no instruction makes one image of the other"),
    ],
)
def test_a_row_that_a_form_cannot_hold_is_counted(fields, forms, reason, tmp_path) -> None:
    rows = [preference(2), replace(GOOD, **fields)]
    tallies = {form: export_some(tmp_path / form, rows, form=form) for form in FORMATS}
    unheld = {form: dict(tally.unheld) for form, tally in tallies.items() if tally.unheld}
    assert unheld == {form: {reason: 1} for form in forms}
    assert {form: tally.rows for form, tally in tallies.items()} == {
        form: 2 - (form in forms) for form in FORMATS
    }


def test_a_damaged_image_is_left_out_where_it_must_be_read(tmp_path) -> None:
    rows = [preference(2), replace(GOOD, images=SPOILT)]
    reasons = {"rlaif-v": DAMAGED} | dict.fromkeys(SIZED, "an image cannot be read: damaged image")
    for form in FORMATS:
        tally = export_some(tmp_path / form, rows, form=form)
        assert dict(tally.unheld) == ({reasons[form]: 1} if form in reasons else {})


def test_the_card_says_what_is_left_out_and_an_export_of_no_row_says_why(tmp_path) -> None:
    tally = export_some(tmp_path / "swift", [GOOD, replace(GOOD, rejected="")], form="ms-swift")
    assert dict(tally.unheld) == {"nothing rejected": 1}
    blank = replace(GOOD, rejected=" ")
    export_some(tmp_path / "out", [GOOD, blank], form="trl")
    readme = (tmp_path / "out/README.md").read_text()
    assert "* 1 row is left out: no rejected text." in readme
    assert "it lacks rejected images" in readme
    with pytest.raises(ConfigError, match=r"--format trl: .*\(1\).*counterfactuals\.enabled=true"):
        export_some(tmp_path / "none", [blank], form="trl")
    assert not (tmp_path / "none").exists()
