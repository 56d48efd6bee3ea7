"""Images that policy and reference look at once: the same numbers, one pass of the vision tower less."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from pairwright.tasks.training.collate import Collator
from pairwright.tasks.training.pack_answers import Packed, pack_answers
from pairwright.tasks.training.score_answers import score_answers
from pairwright.tasks.training.see_once import seen_once
from tests.fixtures.examples_to_pack import ragged
from tests.fixtures.families_of_models import PACKED, write_gemma3

TOWERS = ("visual", "vision_tower", "vision_model")


@pytest.fixture(scope="module", params=[*PACKED, "gemma3"])
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint of each family."""
    return PACKED.get(request.param, write_gemma3)(tmp_path_factory.mktemp("families") / request.param)


def load(folder: Path) -> Any:
    return AutoModelForImageTextToText.from_pretrained(folder).train()


def packed_for(folder: Path, model: Any) -> Packed:
    collator = Collator(AutoProcessor.from_pretrained(folder), 4096, apart=folder.name == "gemma3")
    return pack_answers(collator(ragged())["batch"], model, width=5)


def freeze_eyes(model: Any) -> None:
    language = set(model.get_decoder().parameters()) | set(model.get_output_embeddings().parameters())
    for parameter in model.parameters():
        parameter.requires_grad = parameter in language


@contextmanager
def counted(*models: Any) -> Iterator[list[bool]]:
    """Give a list that gets whether gradients were on, each time that one of the models' vision towers runs."""
    calls: list[bool] = []
    towers = [part for model in models for name, part in model.named_modules() if name.endswith(TOWERS)]
    hooks = [tower.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled())) for tower in towers]
    yield calls
    for hook in hooks:
        hook.remove()


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: given.grad for name, given in model.named_parameters() if given.grad is not None}


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks for it
def test_adapters_and_their_absence_see_once(family: Path) -> None:
    model = load(family)
    inside = next(name for name, part in model.named_modules() if part is model.get_decoder())
    model = peft.get_peft_model(
        model, peft.LoraConfig(r=2, target_modules=rf"{inside}\..*_proj", init_lora_weights=False)
    )
    packed, results = packed_for(family, model), []
    for once in (nullcontext(), seen_once(model)):
        model.zero_grad()
        with once, counted(model) as calls:
            with torch.no_grad(), model.disable_adapter():
                reference = score_answers(model, packed).logps
            policy = score_answers(model, packed).logps
        (policy - reference).square().sum().backward()
        results.append((reference, policy.detach(), gradients(model), calls))
    (first, second) = results
    assert (len(first[3]), second[3]) == (2, [False])
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], first[1])
    assert all(torch.equal(grad, second[2][name]) for name, grad in first[2].items())


def test_a_copy_gets_the_same_features(family: Path) -> None:
    model, copy = load(family), load(family)
    freeze_eyes(model)
    copy.requires_grad_(requires_grad=False)
    packed = packed_for(family, model)
    with counted(model, copy) as calls:
        with seen_once(model, copy), torch.no_grad():
            found = [score_answers(each, packed).logps for each in (model, copy)]
        assert calls == [False]
        with torch.no_grad():
            assert torch.equal(found[0], score_answers(copy, packed).logps)
    assert torch.equal(*found)


def test_what_sees_and_is_trained_looks_each_time(family: Path) -> None:
    model = load(family)
    packed = packed_for(family, model)
    with counted(model) as calls, seen_once(model):
        with torch.no_grad():
            score_answers(model, packed)
        score_answers(model, packed).logps.sum().backward()
    assert calls == [False, True]
    assert any("vis" in name and float(grad.abs().max()) > 0 for name, grad in gradients(model).items())


def test_it_ends_with_the_context(family: Path) -> None:
    model = load(family)
    freeze_eyes(model)
    packed = packed_for(family, model)
    with counted(model) as calls, torch.no_grad():
        with seen_once(model):
            score_answers(model, packed)
        with pytest.raises(TypeError, match="NoneType"), seen_once(model):
            score_answers(model, replace(packed, owners=None))
        score_answers(model, packed)
    assert len(calls) == 3
    assert all(module.training for module in model.modules())


def test_other_pixels_are_looked_at(family: Path) -> None:
    model = load(family)
    freeze_eyes(model)
    first, second = packed_for(family, model), packed_for(family, model)
    with counted(model) as calls, seen_once(model), torch.no_grad():
        score_answers(model, first)
        score_answers(model, second)
    assert len(calls) == 2
