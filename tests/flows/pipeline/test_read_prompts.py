"""A folder of changed prompts, from its files to the profile of a build."""

from pathlib import Path

import pytest

from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.pipeline.read_prompts import pin_prompts, read_prompts
from pairwright.prompts import difference_verbs, load_prompt, use_prompts
from pairwright.prompts.difference_prompts import fill_template
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.writing import CaptionsConfig, ComparisonsConfig, DifferencesConfig
from pairwright.tasks.texts.differences import Difference, read_difference

MINE = "{# mine #}\nName what you see.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / ".gitignore").write_text("*.orig\n")
    (mine / "describe_image.j2").write_text(MINE)
    return mine


def fingerprints(profile: Profile) -> dict[str, str]:
    return {step.stage.name: step.fingerprint for step in Pipeline(profile).plan()}


def test_files_are_read_by_the_names_of_ours(folder: Path) -> None:
    assert read_prompts(str(folder)) == {"describe_image": MINE}


def test_everything_that_is_wrong_is_said_with_its_file(folder: Path) -> None:
    (folder / "describe_image.j2").write_text("One\n{{ two }}")
    (folder / "describe_images.j2").write_text("Three")
    (folder / "judge_answer.j2").write_text("Rate {{ answer }}.")
    (folder / "retrieve_image.j2").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as caught:
        read_prompts(str(folder))
    unknown, unreadable, wrong, unrated = str(caught.value).splitlines()
    assert wrong.startswith(f"{folder}/describe_image.j2:2: unknown variable 'two'")
    assert "describe_images.j2" in unknown
    assert "did you mean describe_image.j2?" in unknown
    assert unrated.startswith(f"{folder}/judge_answer.j2:1: must show {{{{ number }}}}")
    assert "cannot be read as text" in unreadable
    with pytest.raises(ConfigError, match="no such folder"):
        read_prompts(str(folder / "none"))


def test_only_stages_whose_prompts_changed_are_made_again(folder: Path) -> None:
    profile = Profile(
        source="folder:photographs",
        captions=CaptionsConfig(writer="served"),
        comparisons=ComparisonsConfig(writer="served", input="images"),
    )
    ours = fingerprints(profile)
    profile = profile.model_copy(update={"prompts": str(folder)})
    mine = fingerprints(pin_prompts(profile))
    assert ours["captions"] != mine["captions"]
    assert ours["pairs"] == mine["pairs"]
    (folder / "describe_image.j2").write_text(load_prompt("describe_image").text)
    assert fingerprints(pin_prompts(profile)) == ours
    (folder / "retrieve_image.j2").write_text("Which image is it: {{ caption }}?")
    mine = fingerprints(pin_prompts(profile))
    assert ours["captions"] == mine["captions"]
    assert ours["comparisons"] != mine["comparisons"]


def test_verbs_are_replaced_with_those_of_composed_halves(folder: Path) -> None:
    """The wordings of composed halves may only use verbs of the list."""
    verbs = "verb | depicts\nverb | portrays\n"
    (folder / "difference_verbs.j2").write_text(verbs)
    with pytest.raises(ConfigError, match=r"difference_verbs.j2:1: lacks .*shows"):
        read_prompts(str(folder))
    phrases = load_prompt("difference_phrases").text.splitlines()
    kept = [line for line in phrases if not line.startswith(("verb |", "plain_verb |"))]
    lines = [*kept, "verb | depicts", "verb | portrays", "plain_verb | depicts"]
    (folder / "difference_phrases.j2").write_text("\n".join([*lines, "plain_verb | portrays"]))
    with use_prompts(read_prompts(str(folder))):
        assert difference_verbs() == ("depicts", "portrays")
        text = fill_template(("depicts", "portrays"), "a red cube", "a blue ball")
        read = read_difference(text, difference_verbs())
    assert isinstance(read, Difference)
    assert read.verbs == ("depicts", "portrays")
    composed = Profile(source="folder:photographs", differences=DifferencesConfig())
    ours = fingerprints(composed)
    mine = fingerprints(pin_prompts(composed.model_copy(update={"prompts": str(folder)})))
    changed = {name for name in ours if ours[name] != mine[name]}
    assert {"described", "edited", "swapped"} <= changed
    assert "captions" not in changed


def test_a_build_keeps_the_texts_that_it_read(folder: Path) -> None:
    pinned = pin_prompts(Profile(prompts=str(folder)))
    (folder / "describe_image.j2").write_text("Edited.")
    assert pin_prompts(pinned).resolved.prompt_texts == {"describe_image": MINE}
    again = pin_prompts(pinned, again=True)
    assert again.resolved.prompt_texts == {"describe_image": "Edited."}
    ours = pin_prompts(again.model_copy(update={"prompts": ""}), again=True)
    assert ours.resolved.prompt_texts == {}
