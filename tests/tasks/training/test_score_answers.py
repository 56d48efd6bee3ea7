"""Log-probabilities against PyTorch's own; a table, adapters switched off and a copy are the same
reference."""

import json
import shutil
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import peft
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from pairwright.schemas.errors import StoreError, TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training import score_answers as module
from pairwright.tasks.training.collate import Collator, load_example
from pairwright.tasks.training.freeze_rows import make_example
from pairwright.tasks.training.load_model import (
    load_model,
    load_processor,
    load_to_train,
    prepare_model,
)
from pairwright.tasks.training.losses import CHOSEN, TEXTS, compute_loss, needs_of
from pairwright.tasks.training.pack_answers import Packed, pack_answers
from pairwright.tasks.training.runs import Run
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


def draw(*shape, dtype=torch.float32):
    return 5 * torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def gather(logits, places, targets):
    return logits.float().log_softmax(-1)[places, targets]


def differentiate(score, logits, weights):
    inputs = logits.clone().requires_grad_()
    values = score(inputs, PLACES, TARGETS)
    (values * weights).sum().backward()
    return values.detach(), inputs.grad


@pytest.mark.parametrize("chunk", [1, 25, 1 << 20])
def test_values_and_gradients_are_those_of_log_softmax(chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", chunk)
    logits, weights = draw(7, 10), draw(7)
    values, grads = differentiate(target_log_probabilities, logits, weights)
    expected, expected_grads = differentiate(gather, logits, weights)
    assert torch.allclose(values, expected, rtol=1e-6, atol=1e-6)
    assert torch.allclose(grads, expected_grads, rtol=1e-5, atol=5e-6)
    assert torch.equal(target_log_probabilities(logits, PLACES, TARGETS), values)


def test_bfloat16_is_rounded_once_at_the_end():
    logits = draw(7, 10, dtype=torch.bfloat16)
    values, grads = differentiate(target_log_probabilities, logits, torch.ones(7))
    expected, expected_grads = differentiate(gather, logits, torch.ones(7))
    assert (values.dtype, grads.dtype) == (torch.float32, torch.bfloat16)
    assert torch.allclose(values, expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(grads, expected_grads)


def test_a_model_that_gives_all_logits_is_scored_at_the_same_places():
    """Of two examples, of two answers and of one, on two rows of three tokens."""
    keep = torch.tensor([[False, True, True], [True, False, False]])
    packed = Packed(
        inputs={"logits_to_keep": keep},
        places=torch.tensor([0, 1, 0, 2]),
        targets=torch.tensor([1, 0, 2, 3]),
        numbers=torch.tensor([0, 0, 1, 2]),
        owners=torch.tensor([0, 0, 1]),
        columns=torch.tensor([CHOSEN, TEXTS, CHOSEN]),
        examples=2,
        width=3,
    )
    every = draw(2, 3, 4)
    all_logits, kept_logits = (
        score_answers(lambda logits=logits, **_: SimpleNamespace(logits=logits), packed)
        for logits in (every, every[keep])
    )
    assert torch.equal(all_logits.logps, kept_logits.logps)


ROWS = [
    preference(0),
    preference(1, images=1),
    preference(2, rejected_images=2),
    replace(preference(3, rejected_images=2), rejected=""),
]
"""Of two images and of one, with rejected images and without a rejected text."""


def settings(objective="adavip", **values):
    return TrainConfig.model_validate({"objective": objective, **values})


def load(qwen, config):
    return load_model(qwen, config.model, dtype=torch.float32)


def batch_of(qwen, config, rows=ROWS):
    examples = [make_example(row, needs_of(config)) for row in rows]
    collator = Collator(load_processor(qwen), config.model.max_length)
    return collator([load_example(item, config.model.max_pixels) for item in examples])["batch"]


def score(reference, policy, batch):
    return reference.score(policy, pack_answers(batch, policy, width=TEXTS + 1), batch.keys)


@pytest.fixture(scope="module")
def reference(qwen):
    """Return the model as it was, which scores."""
    return Copy(load(qwen, settings()).eval())


@pytest.fixture(scope="module")
def table(reference, qwen, tmp_path_factory):
    """Return what it gave the rows, written and read again."""
    batch = batch_of(qwen, settings())
    scored = score(reference, reference.model, batch)
    path = tmp_path_factory.mktemp("table") / "reference.npz"
    rows = zip(batch.keys, scored.logps.tolist(), scored.tokens.tolist(), strict=True)
    ReferenceScores(path).write_scores(rows)
    return ReferenceScores(path)


@pytest.fixture(scope="module")
def policy(qwen):
    """Return a policy whose adapters have learnt something."""
    model = prepare_model(load(qwen, settings()), settings())
    torch.manual_seed(5)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    return model.eval()


@pytest.mark.parametrize("objective", ["adavip", "mdpo"])
def test_three_ways_to_the_same_numbers_and_the_same_loss(
    qwen, objective, policy, reference, table
):
    config = settings(objective)
    batch = batch_of(qwen, config)
    now = score_answers(policy, pack_answers(batch, policy, width=TEXTS + 1))
    first, *others = (score(item, policy, batch) for item in (Adapters(), reference, table))
    assert (now.logps - first.logps).abs().max() > 0.1, "the policy is another by now"
    loss = compute_loss(now, first, config).value
    for scored in others:
        torch.testing.assert_close(scored.logps, first.logps, rtol=1e-5, atol=1e-5)
        assert torch.equal(scored.tokens, first.tokens)
        assert not scored.logps.requires_grad
        other = compute_loss(now, scored, config).value
        torch.testing.assert_close(other, loss, rtol=1e-5, atol=1e-5)


def test_dpo_shows_rejected_images_where_there_is_no_rejected_text(qwen, policy, reference, table):
    """The table holds those of all rows; of others it gives nothing."""
    batch = batch_of(qwen, settings("dpo"))
    scored, copied, expected = (
        score(each, policy, batch) for each in (table, reference, Adapters())
    )
    assert scored.present[:, 1].tolist() == [False, False, False, True]
    assert torch.equal(scored.logps != 0, scored.present)
    for each in (scored, copied):
        torch.testing.assert_close(each.logps, expected.logps, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [1], [2, 0, 2]])
def test_a_table_is_read_in_any_order(order, qwen, policy, table):
    rows = [ROWS[position] for position in order]
    scored = score(table, policy, batch_of(qwen, settings(), rows))
    keys = table.score_arrays["keys"].tolist()
    for logps, row in zip(scored.logps.tolist(), rows, strict=True):
        assert logps == table.score_arrays["logps"][keys.index(bytes.fromhex(row.key))].tolist()


@pytest.mark.parametrize(
    "other", [replace(ROWS[0], chosen="A red ball is new, and a blue one."), preference(9)]
)
def test_rows_that_are_not_as_they_were_scored_are_refused(other, qwen, policy, table):
    with pytest.raises(TrainingError, match=f"row {other.key}: "):
        score(table, policy, batch_of(qwen, settings(), [ROWS[1], other]))


@pytest.mark.parametrize(
    ("objective", "tuning", "kind"),
    [
        ("sft", "lora", type(None)),
        ("dpo", "lora", Adapters),
        ("adpo", "lora", Adapters),
        ("dpo", "full", ReferenceScores),
        ("adpo", "full", Copy),
    ],
)
def test_what_a_run_is_compared_with(objective, tuning, kind, qwen, tmp_path):
    config = settings(objective, model={"tuning": tuning})
    assert type(open_reference(config, qwen, Run(tmp_path))) is kind


def test_a_reference_that_is_a_copy_is_not_trained(qwen, tmp_path):
    copy = open_reference(settings("adpo", model={"tuning": "full"}), qwen, Run(tmp_path))
    assert not any(parameter.requires_grad for parameter in copy.model.parameters())
    assert not copy.model.training


@pytest.mark.parametrize("content", [None, b"no table", b""])
def test_a_table_that_is_none_is_named(content, tmp_path):
    table = ReferenceScores(tmp_path / "reference.npz")
    if content is not None:
        table.path.write_bytes(content)
    with pytest.raises(StoreError, match=r"reference\.npz"):
        _ = table.score_arrays


TOWERS = ("visual", "vision_tower", "vision_model")


def load_whole(folder):
    return AutoModelForImageTextToText.from_pretrained(folder).train()


def packed_for(folder, model):
    collator = Collator(AutoProcessor.from_pretrained(folder), 4096, apart=folder.name == "gemma3")
    return pack_answers(collator(ragged())["batch"], model, width=5)


@contextmanager
def looks(*models):
    """Give a list that gets whether gradients were on, each time that a vision tower runs."""
    calls = []
    hooks = [
        part.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
        for model in models
        for name, part in model.named_modules()
        if name.endswith(TOWERS)
    ]
    yield calls
    for hook in hooks:
        hook.remove()


def gradients(model):
    return {name: item.grad for name, item in model.named_parameters() if item.grad is not None}


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_adapters_and_their_absence_see_once(family):
    base = load_whole(family)
    inside = next(name for name, part in base.named_modules() if part is base.get_decoder())
    config = peft.LoraConfig(r=2, target_modules=rf"{inside}\..*_proj", init_lora_weights=False)
    model = peft.get_peft_model(base, config)
    packed, results, counts = packed_for(family, model), [], []
    for once in (nullcontext(), sharing_features(model)):
        model.zero_grad()
        with once, looks(model) as calls:
            with torch.no_grad(), model.disable_adapter():
                reference = score_answers(model, packed).logps
            policy = score_answers(model, packed).logps
        assert not torch.equal(reference, policy)
        (policy - reference).square().sum().backward()
        results.append({"reference": reference, "policy": policy.detach(), **gradients(model)})
        counts.append(len(calls))
    assert (counts, calls) == ([2, 1], [False])
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_a_copy_gets_the_same_features(family):
    model, copy = load_whole(family), load_whole(family).requires_grad_(requires_grad=False)
    model.requires_grad_(requires_grad=False)
    for part in (model.get_decoder(), model.get_output_embeddings()):
        part.requires_grad_(requires_grad=True)
    packed = packed_for(family, model)
    with torch.no_grad(), looks(model, copy) as calls:
        with sharing_features(model, copy):
            first, second = (score_answers(each, packed).logps for each in (model, copy))
        assert calls == [False]
        assert torch.equal(first, score_answers(copy, packed).logps)
    assert torch.equal(first, second)


def test_what_sees_and_is_trained_looks_each_time(family):
    model = load_whole(family)
    packed = packed_for(family, model)
    with looks(model) as calls, sharing_features(model):
        with torch.no_grad():
            score_answers(model, packed)
        score_answers(model, packed).logps.sum().backward()
    assert calls == [False, True]
    assert any(grad.any() for name, grad in gradients(model).items() if "vis" in name)


@pytest.fixture
def dropped(family, tmp_path):
    """Return a copy of a checkpoint whose configuration has dropout everywhere."""
    folder = shutil.copytree(family, tmp_path / family.name)
    content = json.loads((folder / "config.json").read_text())
    for section in ("text_config", "vision_config"):
        content[section]["attention_dropout"] = 0.3
    (folder / "config.json").write_text(json.dumps(content))
    return folder


def load_in_training(folder, config):
    return prepare_model(load_to_train(folder, config), config).train()


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_rewards_start_at_0_whatever_the_configuration_drops(tuning, dropped, tmp_path):
    config = settings("dpo", model={"tuning": tuning, "max_length": 4096})
    model = load_in_training(dropped, config)
    packed = packed_for(dropped, model)
    reference = Copy(load_model(dropped, config.model, dtype=torch.float32).eval())
    if tuning == "lora":
        reference = open_reference(config, dropped, Run(tmp_path))
    policy = score_answers(model, packed)
    compared = reference.score(model, packed, ())
    torch.testing.assert_close(policy.logps, compared.logps, rtol=0, atol=1e-5)
    assert model.training


def test_dropout_is_kept_for_sft_and_never_reaches_the_reference(dropped, tmp_path):
    config = settings("sft")
    packed = packed_for(dropped, load_in_training(dropped, config))
    model = load_in_training(dropped, config)
    reference = load_model(dropped, config.model, dtype=torch.float32).eval()
    expected = score_answers(reference, packed).logps
    assert (score_answers(model, packed).logps - expected).abs().max() > 0.01
    torch.testing.assert_close(Adapters().score(model, packed, ()).logps, expected)
    kept = load_in_training(dropped, settings("dpo", model={"dropout": "keep"}))
    assert (score_answers(kept, packed).logps - expected).abs().max() > 0.01
    zero = load_in_training(dropped, settings("sft", model={"dropout": "zero"}))
    torch.testing.assert_close(score_answers(zero, packed).logps, expected)
