"""The try before packing: models that can, one that cannot, and one whose settings do not show that it cannot."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from pairwright.tasks.training.check_packing import packs_well
from pairwright.tasks.training.collate import Collator
from pairwright.tasks.training.freeze_rows import Refused
from tests.fixtures.examples_to_pack import loaded, ragged
from tests.fixtures.families_of_models import PACKED, write_gemma3, write_qwen2_vl


def opened(folder: Path) -> tuple[Any, Collator]:
    return AutoModelForImageTextToText.from_pretrained(folder), Collator(AutoProcessor.from_pretrained(folder), 4096)


@pytest.mark.parametrize("family", PACKED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_families_that_can_be_packed_are(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model, collator = opened(PACKED[family](tmp_path))
    assert not packs_well(model.to(dtype), collator, ragged())


def test_settings_speak_first(tmp_path: Path) -> None:
    model, collator = opened(write_gemma3(tmp_path))
    assert "sliding_attention" in packs_well(model, collator, ragged())


def test_scores_that_differ_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, collator = opened(write_gemma3(tmp_path))
    monkeypatch.setattr("pairwright.tasks.training.check_packing.why_not_packed", lambda _: "")
    why = packs_well(model, collator, ragged())
    assert re.search(r"differ by 0\..*float32.* 0\.001\b", why)


def test_the_model_stays_as_it_was(tmp_path: Path) -> None:
    model, collator = opened(write_qwen2_vl(tmp_path))
    model.train()
    model.model.visual.eval()
    before = [module.training for module in model.modules()]
    assert not packs_well(model, replace(collator, apart=True, late=3), ragged())
    assert [module.training for module in model.modules()] == before
    assert {parameter.grad for parameter in model.parameters()} == {None}


def test_rows_without_two_answers_show_nothing(tmp_path: Path) -> None:
    model, collator = opened(write_qwen2_vl(tmp_path))
    items = [Refused(key="a", reason="no chosen text"), loaded("b", "A ball.", ("<|im_end|>",)), loaded("c", "A ball.")]
    assert not packs_well(model, collator, items)
