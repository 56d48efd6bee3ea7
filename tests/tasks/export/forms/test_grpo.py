"""Prompts with their truth for GRPO: the rewards as each trainer asks for them."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests.fixtures.exports import export_some, preference, rows_of

ROW = preference(1)
TRUE = "A ceramic mug has been added."
FALSE = "The red ball is gone."
ALONE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        allowed = ("pairwright", "pydantic", "pydantic_core", "annotated_types")
        allowed += ("typing_extensions", "typing_inspection")
        top = name.split(".")[0]
        is_python = top.startswith("_") or top in sys.stdlib_module_names
        if top not in allowed and not is_python:
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Refuse())
import runpy
names = runpy.run_path(sys.argv[1])
print(names["reward"]("Nothing has changed.", sys.argv[2]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export_some(tmp_path / "out", [ROW], form="grpo")
    return tmp_path / "out"


@pytest.fixture
def record(folder: Path) -> dict:
    (record,) = rows_of(folder)
    return record


def load_rewards(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("exported_reward", folder / "reward.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_trainer_gets_its_rewards(folder: Path, record: dict) -> None:
    rewards = load_rewards(folder)
    said = [[{"role": "assistant", "content": text}] for text in (TRUE, FALSE)]
    truths = [record["truth"]] * 2
    as_trl = rewards.reward_completions(
        prompts=[record["prompt"]] * 2, completions=said, truth=truths, completion_ids=[[1], [2]]
    )
    as_swift = rewards.PairwrightReward()([TRUE, FALSE], truth=truths, trainer_state=None)
    ground_truth = record["reward_model"]["ground_truth"]
    as_verl = [rewards.compute_score("x", text, ground_truth, None) for text in (TRUE, FALSE)]
    assert as_trl == as_swift == as_verl == [1.0, 0.0]


def test_trl_fills_a_slot_per_image_and_others_a_mark(record: dict) -> None:
    slots = [part["type"] for turn in record["prompt"] for part in turn["content"]]
    assert slots.count("image") == 2
    assert record["messages"][0]["content"].count("<image>") == 2
    assert [image["bytes"] for image in record["images"]] == list(ROW.images)


def test_the_reward_needs_nothing_but_pydantic(folder: Path, record: dict) -> None:
    words = [sys.executable, "-c", ALONE, str(folder / "reward.py"), record["truth"]]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.stdout == "0.0\n", ended.stderr


def test_a_pair_without_a_known_change_is_left_out(tmp_path: Path) -> None:
    first, second = ROW.graphs
    unknown = replace(ROW, graphs=(first, second.model_copy(update={"changes": (), "world": "v"})))
    tally = export_some(tmp_path / "out", [ROW, unknown], form="grpo")
    assert dict(tally.unheld) == {"its photographs differ, but no change is known": 1}
