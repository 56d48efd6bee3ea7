"""The same rows, model and adapters give the same loss and the same gradients as TRL's trainers,
images and all."""

import numpy as np
import pytest
import torch

from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.collate import Collator, load_example
from pairwright.tasks.training.freeze_rows import make_example
from pairwright.tasks.training.load_model import load_model, prepare_model
from pairwright.tasks.training.losses import compute_loss, needs_of
from pairwright.tasks.training.pack_answers import pack_answers
from pairwright.tasks.training.score_answers import Adapters, Copy, score_answers
from tests.bench.train_rows import make_picture, make_row
from tests.bench.train_trl import dpo_trainer, sft_trainer, trl_processor

pytestmark = [
    # Names of settings, as TRL and peft use them.
    pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed in v6:FutureWarning")
]
CLOSE = 1e-6
LONG = "A lamp was taken away, and the table is now of wood."
ROWS = [
    (("What differs?", "The ball is red in the first image.", "A dog."), ((56, 84), (84, 56))),
    (("Say how the two images differ.", "A lamp was added.", LONG), ((56, 56), (112, 56))),
    (("Compare them.", "Nothing has changed.", "The sky is grey."), ((84, 84), (56, 56))),
]
"""Texts of different lengths, and images of different sizes."""


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return [make_row(*texts, [make_picture(size, rng) for size in sizes]) for texts, sizes in ROWS]


@pytest.fixture(scope="module", params=["qwen2_vl", "qwen2_5_vl"])
def folder(request, checkpoint):
    return checkpoint(request.param)


def config_of(objective, *, tuning="lora", sft_weight=0.0):
    model = {"tuning": tuning, "lora": {"rank": 4, "alpha": 8}}
    values = {"model": model, "optimiser": {"precision": "fp32"}, "sft_weight": sft_weight}
    return TrainConfig.model_validate({"objective": objective, **values})


@pytest.fixture
def plain(tmp_path):
    """Return the Trainer's own settings: one batch of all rows, on the CPU, in float32."""
    here = {"bf16": False, "use_cpu": True, "gradient_checkpointing": False, "report_to": "none"}
    return {"output_dir": str(tmp_path), "per_device_train_batch_size": 3, **here}


def load(folder, config):
    return load_model(folder, config.model, dtype=torch.float32)


def policy_of(folder, config):
    """Return a policy that is not the reference, so that the loss is not that of equal models."""
    model = prepare_model(load(folder, config), config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.05 * torch.randn(weight.shape, generator=generator)
    return model


def loss_of_ours(model, folder, rows, config, *, reference=None):
    examples = [load_example(make_example(row, needs_of(config)), 10**7) for row in rows]
    collator = Collator(trl_processor(folder), config.model.max_length)
    batch = collator(examples)["batch"]
    packed = pack_answers(batch, getattr(model, "get_base_model", lambda: model)())
    compared = reference and reference.score(model, packed, batch.keys)
    return compute_loss(score_answers(model, packed), compared, config)


def batch_of_trl(trainer):
    rows = trainer.train_dataset
    return trainer.data_collator([rows[number] for number in range(len(rows))])


def assert_close(ours, theirs, *, scale=1.0, name="loss"):
    """Check for 1e-6, of 1 or of ``scale`` where that is more: float32 has seven digits."""
    assert (ours - theirs).abs().max() <= CLOSE * max(1.0, scale), name


def gradients(model):
    return {name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad}


def compare_steps(trainer, folder, rows, config, *, reference=None, **arguments):
    """Check the loss and the gradient of every weight of a step of ours, and return our loss; a
    gradient's scale is the largest of all weights."""
    model = policy_of(folder, config)
    loss = loss_of_ours(model, folder, rows, config, reference=reference)
    loss.value.backward()
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in trainer.model.named_parameters():
            weight.copy_(own[name])
    expected = trainer.compute_loss(trainer.model, batch_of_trl(trainer), **arguments)
    expected.backward()
    assert_close(loss.value, expected, scale=expected.item())
    ours, theirs = gradients(model), gradients(trainer.model)
    assert ours.keys() == theirs.keys()
    largest = max(gradient.abs().max().item() for gradient in theirs.values())
    assert largest > 1e-2
    for name, gradient in theirs.items():
        assert_close(ours[name], gradient, scale=largest, name=name)
    return loss


def test_dpo_with_adapters_against_the_model_without_them(folder, rows, plain):
    config = config_of("dpo")
    trainer = dpo_trainer(folder, rows, config, loss_type=["sigmoid"], **plain)
    loss = compare_steps(trainer, folder, rows, config, reference=Adapters())
    (margin,) = trainer._metrics["train"]["rewards/margins"]
    assert abs(margin) > 0.01
    assert loss.metrics["margin"].item() == pytest.approx(margin, abs=CLOSE)


def test_dpo_of_all_weights_against_a_copy(folder, rows, plain):
    config = config_of("dpo", tuning="full")
    trainer = dpo_trainer(folder, rows, config, loss_type=["sigmoid"], **plain)
    compare_steps(trainer, folder, rows, config, reference=Copy(load(folder, config)))


@pytest.mark.parametrize("number", [0, 1])
def test_dpo_with_an_sft_term(number, folder, rows, plain):
    """A row at a time: TRL averages over the tokens of a batch, so that long rows weigh more."""
    config, row = config_of("dpo", sft_weight=0.7), rows[number : number + 1]
    mixed = {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.7]}
    trainer = dpo_trainer(folder, row, config, **mixed, **plain)
    compare_steps(trainer, folder, row, config, reference=Adapters())


def test_sft(folder, rows, plain):
    config = config_of("sft")
    trainer = sft_trainer(folder, rows, config, **plain)
    tokens = (batch_of_trl(trainer)["labels"] != -100).sum()
    compare_steps(trainer, folder, rows, config, num_items_in_batch=tokens)
