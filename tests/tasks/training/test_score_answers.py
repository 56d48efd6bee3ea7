"""Log-probabilities against PyTorch's own; a table, adapters switched off and a copy are the same
reference."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from pairwright.schemas.errors import StoreError, TrainingError
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import ObjectiveName, TrainConfig
from pairwright.tasks.training import score_answers as module
from pairwright.tasks.training.collate import Batch, Collator, load_example
from pairwright.tasks.training.freeze_rows import make_example
from pairwright.tasks.training.load_model import load_model, load_processor, prepare_model
from pairwright.tasks.training.losses import CHOSEN, TEXTS, compute_loss, needs_of
from pairwright.tasks.training.pack_answers import Packed, pack_answers
from pairwright.tasks.training.score_answers import (
    Adapters,
    Copy,
    ReferenceScores,
    open_reference,
    score_answers,
    sharing_features,
    target_log_probabilities,
)
from tests.fixtures.examples_to_pack import ragged
from tests.fixtures.preferences_to_train import preference

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
def test_values_and_gradients_are_those_of_log_softmax(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    generator = torch.Generator().manual_seed(0)
    logits, weights = (
        5 * torch.randn(7, 10, generator=generator),
        torch.randn(7, generator=generator),
    )
    (values, grads), (expected, expected_grads) = both(logits, weights)
    assert torch.allclose(values, expected, rtol=1e-6, atol=1e-6)
    assert torch.allclose(grads, expected_grads, rtol=1e-5, atol=1e-6)
    assert torch.equal(target_log_probabilities(logits, PLACES, TARGETS), values)


def test_bfloat16_is_rounded_once_at_the_end() -> None:
    logits = 5 * torch.randn(
        7, 10, generator=torch.Generator().manual_seed(0), dtype=torch.bfloat16
    )
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


def test_a_model_that_gives_all_logits_is_scored_at_the_same_places() -> None:
    every = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    kept = every[packed().inputs["logits_to_keep"]]
    found, expected = (
        score_answers(lambda logits=logits, **_: SimpleNamespace(logits=logits), packed())
        for logits in (every, kept)
    )
    assert torch.equal(found.logps, expected.logps)


ROWS = [
    preference(0),
    preference(1, images=1),
    preference(2, rejected_images=2),
    replace(preference(3, rejected_images=2), rejected=""),
]
"""Of two images and of one, with rejected images and without a rejected text."""


def settings(objective: str = "adavip", **values: Any) -> TrainConfig:
    return TrainConfig.model_validate({"objective": objective, **values})


def batch_of(qwen: Path, config: TrainConfig, rows: Sequence[PreferenceRow] = ROWS) -> Batch:
    needs = needs_of(config)
    collator = Collator(load_processor(qwen), config.model.max_length)
    return collator(
        [load_example(make_example(row, needs), config.model.max_pixels) for row in rows]
    )["batch"]


def packed_of(batch: Batch, model: Any, width: int = TEXTS + 1) -> Packed:
    return pack_answers(batch, model, width=width)


def table_of(
    qwen: Path, config: TrainConfig, folder: Path, rows: Sequence[PreferenceRow] = ROWS
) -> ReferenceScores:
    copy, batch = (
        Copy(load_model(qwen, config.model, dtype=torch.float32).eval()),
        batch_of(qwen, config, rows),
    )
    scored = copy.score(None, packed_of(batch, copy.model), batch.keys)
    table = ReferenceScores(folder / "reference.npz")
    table.write(zip(batch.keys, scored.logps.tolist(), scored.tokens.tolist(), strict=True))
    return ReferenceScores(table.path)


def policy_of(qwen: Path, config: TrainConfig) -> Any:
    """Return a policy whose adapters have learnt something."""
    policy = prepare_model(load_model(qwen, config.model, dtype=torch.float32), config)
    torch.manual_seed(5)
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    return policy.eval()


@pytest.mark.parametrize("objective", ["adavip", "mdpo", "dpo"])
def test_three_ways_to_the_same_numbers_and_the_same_loss(
    qwen: Path, objective: ObjectiveName, tmp_path: Path
) -> None:
    config = settings(objective)
    policy, batch = policy_of(qwen, config), batch_of(qwen, config)
    packed = packed_of(batch, policy)
    copy = Copy(load_model(qwen, config.model, dtype=torch.float32).eval())
    scored = [
        one.score(policy, packed, batch.keys)
        for one in (Adapters(), copy, table_of(qwen, config, tmp_path))
    ]
    now = score_answers(policy, packed)
    assert (now.logps - scored[0].logps).abs().max() > 0.1, "the policy is another by now"
    losses = [compute_loss(now, one, config).value for one in scored]
    for one, loss in zip(scored, losses, strict=True):
        torch.testing.assert_close(one.logps, scored[0].logps, rtol=1e-5, atol=1e-5)
        assert torch.equal(one.tokens, scored[0].tokens)
        assert not one.logps.requires_grad
        torch.testing.assert_close(loss, losses[0], rtol=1e-5, atol=1e-5)


def test_a_table_is_read_in_any_order_and_only_where_asked(qwen: Path, tmp_path: Path) -> None:
    config = settings()
    table, policy = table_of(qwen, config, tmp_path), policy_of(qwen, config)
    for rows in (ROWS[::-1], ROWS[1:2], [ROWS[2], ROWS[0], ROWS[2]]):
        batch = batch_of(qwen, config, rows)
        found = table.score(policy, packed_of(batch, policy), batch.keys)
        for place, row in enumerate(rows):
            own = table.scores["logps"][table.scores["keys"].tolist().index(bytes.fromhex(row.key))]
            assert found.logps[place].tolist() == own.tolist()
    # The table holds the rejected images of all rows; DPO shows them where there is no rejected
    # text.
    batch = batch_of(qwen, settings("dpo"))
    found = table.score(policy, packed_of(batch, policy), batch.keys)
    assert found.present[:, 1].tolist() == [False, False, False, True]
    assert torch.equal(found.logps != 0, found.present)


def test_rows_that_are_not_as_they_were_scored_are_refused(qwen: Path, tmp_path: Path) -> None:
    config = settings()
    table, policy = table_of(qwen, config, tmp_path), policy_of(qwen, config)
    for other in (replace(ROWS[0], chosen="A red ball is new, and a blue one."), preference(9)):
        batch = batch_of(qwen, config, [ROWS[1], other])
        with pytest.raises(TrainingError, match=f"row {other.key}: "):
            table.score(policy, packed_of(batch, policy), batch.keys)


def test_what_a_run_is_compared_with(qwen: Path, tmp_path: Path) -> None:
    full = {"model": {"tuning": "full"}}
    assert open_reference(settings("sft"), qwen, tmp_path) is None
    assert isinstance(open_reference(settings("dpo"), qwen, tmp_path), Adapters)
    assert isinstance(open_reference(settings("adpo"), qwen, tmp_path), Adapters)
    table = open_reference(settings("dpo", **full), qwen, tmp_path)
    assert isinstance(table, ReferenceScores)
    copy = open_reference(settings("adpo", **full), qwen, tmp_path)
    assert isinstance(copy, Copy)
    assert not any(parameter.requires_grad for parameter in copy.model.parameters())
    assert not copy.model.training
    for content in (None, b"no table", b""):
        if content is not None:
            table.path.write_bytes(content)
        with pytest.raises(StoreError, match=r"reference\.npz"):
            _ = table.scores


TOWERS = ("visual", "vision_tower", "vision_model")


def load(folder: Path) -> Any:
    return AutoModelForImageTextToText.from_pretrained(folder).train()


def packed_for(folder: Path, model: Any) -> Packed:
    collator = Collator(AutoProcessor.from_pretrained(folder), 4096, apart=folder.name == "gemma3")
    return pack_answers(collator(ragged())["batch"], model, width=5)


def freeze_eyes(model: Any) -> None:
    language = set(model.get_decoder().parameters()) | set(
        model.get_output_embeddings().parameters()
    )
    for parameter in model.parameters():
        parameter.requires_grad = parameter in language


@contextmanager
def counted(*models: Any) -> Iterator[list[bool]]:
    """Give a list that gets whether gradients were on, each time that one of the models' vision
    towers runs."""
    calls: list[bool] = []
    towers = [
        part for model in models for name, part in model.named_modules() if name.endswith(TOWERS)
    ]
    hooks = [
        tower.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
        for tower in towers
    ]
    yield calls
    for hook in hooks:
        hook.remove()


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: given.grad for name, given in model.named_parameters() if given.grad is not None}


@pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"
)  # peft asks for it
def test_adapters_and_their_absence_see_once(family: Path) -> None:
    model = load(family)
    inside = next(name for name, part in model.named_modules() if part is model.get_decoder())
    model = peft.get_peft_model(
        model, peft.LoraConfig(r=2, target_modules=rf"{inside}\..*_proj", init_lora_weights=False)
    )
    packed, results = packed_for(family, model), []
    for once in (nullcontext(), sharing_features(model)):
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
        with sharing_features(model, copy), torch.no_grad():
            found = [score_answers(each, packed).logps for each in (model, copy)]
        assert calls == [False]
        with torch.no_grad():
            assert torch.equal(found[0], score_answers(copy, packed).logps)
    assert torch.equal(*found)


def test_what_sees_and_is_trained_looks_each_time(family: Path) -> None:
    model = load(family)
    packed = packed_for(family, model)
    with counted(model) as calls, sharing_features(model):
        with torch.no_grad():
            score_answers(model, packed)
        score_answers(model, packed).logps.sum().backward()
    assert calls == [False, True]
    assert any(
        "vis" in name and float(grad.abs().max()) > 0 for name, grad in gradients(model).items()
    )
