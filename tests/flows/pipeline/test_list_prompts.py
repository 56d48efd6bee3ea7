"""The list of prompts, and the command that prints it."""

from pathlib import Path

import pytest

from pairwright.flows.pipeline.list_prompts import list_prompts
from pairwright.prompts import load_prompt
from pairwright.schemas.errors import ConfigError
from tests.fixtures.command import run

MINE = "{# mine #}\nName what you see.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "describe_image.j2").write_text(MINE)
    return mine


def test_prompts_are_listed_with_those_of_a_folder_in_their_place(folder: Path) -> None:
    listed = {prompt.name: prompt for prompt in list_prompts(folder=str(folder))}
    assert listed["describe_image"].text == MINE
    assert listed["describe_image"].about == "mine"
    assert listed["retrieve_image"].variables == {"": ["caption"]}
    assert listed["judge_answer"].of_benchmark
    assert not listed["retrieve_image"].of_benchmark
    with pytest.raises(ConfigError, match="did you mean describe_image"):
        list_prompts("describe_imag")


def test_the_command_shows_one_and_checks_a_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("prompts", "retrieve_image") == 0
    printed = capsys.readouterr()
    assert printed.out == load_prompt("retrieve_image").text.rstrip("\n") + "\n"
    assert printed.err == "variables: caption\n"
    assert run("prompts") == 0
    assert "\nretrieve_image\n" in capsys.readouterr().out
    (folder / "describe_image.j2").write_text("{{ caption }}")
    assert run("prompts", "--folder", folder) == 2
    assert "describe_image.j2:1: unknown variable 'caption'" in capsys.readouterr().err
