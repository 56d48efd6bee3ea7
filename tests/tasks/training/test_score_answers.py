"""Log-probabilities of tokens and their gradients, against PyTorch's own on the whole of the logits."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from pairwright.schemas.errors import TrainingError
from pairwright.tasks.training import score_answers as module
from pairwright.tasks.training.collate import Collator
from pairwright.tasks.training.losses import CHOSEN, TEXTS
from pairwright.tasks.training.pack_answers import Packed
from pairwright.tasks.training.score_answers import packs_well, score_answers, target_log_probabilities
from tests.fixtures.examples_to_pack import ragged
from tests.fixtures.families_of_models import PACKED

PLACES, TARGETS = torch.tensor([0, 1, 2, 0, 3, 0, 6]), torch.tensor([4, 0, 9, 4, 3, 7, 1])
"""Three tokens share a place, two of them are the same token."""


def both(logits: torch.Tensor, weights: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return values and gradients: ours, PyTorch's."""
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for score in (
        target_log_probabilities,
        lambda given, places, targets: given.float().log_softmax(-1)[places, targets],
    ):
        given = logits.clone().requires_grad_()
        values = score(given, PLACES, TARGETS)
        (values * weights).sum().backward()
        assert given.grad is not None
        found.append((values.detach(), given.grad))
    return found


@pytest.mark.parametrize("chunk", [1, 25, 1 << 20])
def test_values_and_gradients_are_those_of_log_softmax(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    generator = torch.Generator().manual_seed(0)
    logits, weights = 5 * torch.randn(7, 10, generator=generator), torch.randn(7, generator=generator)
    (values, grads), (expected, expected_grads) = both(logits, weights)
    assert torch.allclose(values, expected, rtol=1e-6, atol=1e-6)
    assert torch.allclose(grads, expected_grads, rtol=1e-5, atol=1e-6)
    assert torch.equal(target_log_probabilities(logits, PLACES, TARGETS), values)


def test_bfloat16_is_rounded_once_at_the_end() -> None:
    logits = 5 * torch.randn(7, 10, generator=torch.Generator().manual_seed(0), dtype=torch.bfloat16)
    (values, grads), (expected, expected_grads) = both(logits, torch.ones(7))
    assert (values.dtype, grads.dtype) == (torch.float32, torch.bfloat16)
    assert torch.allclose(values, expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(grads, expected_grads)


def packed() -> Packed:
    """Return two examples, of two answers and of one, on two rows of three tokens."""
    keep = torch.tensor([[False, True, True], [True, False, False]])
    return Packed(
        inputs={"logits_to_keep": keep},
        places=torch.tensor([0, 1, 0, 2]),
        targets=torch.tensor([1, 0, 2, 3]),
        numbers=torch.tensor([0, 0, 1, 2]),
        owners=torch.tensor([0, 0, 1]),
        columns=torch.tensor([CHOSEN, TEXTS, CHOSEN]),
        examples=2,
        width=3,
    )


def test_tokens_are_summed_by_answer() -> None:
    logits = torch.tensor([[0.5, 0.2, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1], [0.25] * 4]).log()
    scored = score_answers(lambda **_: SimpleNamespace(logits=logits), packed())
    expected = torch.tensor([[0.2 * 0.4, 1, 0.2], [0.25, 1, 1]]).log()
    assert torch.allclose(scored.logps, expected)
    assert scored.tokens.tolist() == [[2, 0, 1], [1, 0, 0]]


def test_a_model_that_gives_all_logits_is_scored_at_the_same_places() -> None:
    every = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    kept = every[packed().inputs["logits_to_keep"]]
    found, expected = (
        score_answers(lambda logits=logits, **_: SimpleNamespace(logits=logits), packed()) for logits in (every, kept)
    )
    assert torch.equal(found.logps, expected.logps)


def test_logits_of_another_shape_are_refused() -> None:
    def model(**_: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=torch.zeros(2, 7, 4))

    with pytest.raises(TrainingError, match=r"\(2, 7, 4\) .*\(2, 3\)"):
        score_answers(model, packed())


def opened(folder: Path) -> tuple[Any, Collator]:
    return AutoModelForImageTextToText.from_pretrained(folder), Collator(AutoProcessor.from_pretrained(folder), 4096)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_families_that_can_be_packed_are(name: str, dtype: torch.dtype, checkpoint: Any) -> None:
    model, collator = opened(checkpoint(name))
    assert not packs_well(model.to(dtype), collator, ragged())


def test_scores_that_differ_are_found(checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, collator = opened(checkpoint("gemma3"))
    monkeypatch.setattr("pairwright.tasks.training.score_answers.why_not_packed", lambda _: "")
    why = packs_well(model, collator, ragged())
    assert re.search(r"differ by 0\..*float32.* 0\.001\b", why)


def test_the_model_stays_as_it_was(qwen: Path) -> None:
    model, collator = opened(qwen)
    model.train()
    model.model.visual.eval()
    before = [module.training for module in model.modules()]
    assert not packs_well(model, replace(collator, apart=True, late=3), ragged())
    assert [module.training for module in model.modules()] == before
    assert {parameter.grad for parameter in model.parameters()} == {None}
