"""The same rows, model and adapters give the same loss and the same gradients as TRL's trainers,
images and all."""

import numpy as np
import pytest
import torch

from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.collate import Collator, load_example
from pairwright.tasks.training.freeze_rows import make_example
from pairwright.tasks.training.load_model import load_model, prepare_model
from pairwright.tasks.training.losses import LOSSES, compute_loss, needs_of
from pairwright.tasks.training.pack_answers import pack_answers
from pairwright.tasks.training.score_answers import Adapters, Copy, score_answers
from tests.bench.train_rows import make_picture, make_row
from tests.bench.train_trl import dpo_trainer, sft_trainer, trl_processor

pytestmark = [
    # Names of settings, as TRL and peft use them.
    pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed in v6:FutureWarning")
]
CLOSE = 1e-6
TEXTS_OF_ROWS = [
    ("What differs?", "The ball is red in the first image.", "There is a dog."),
    (
        "Say how the two images differ.",
        "A lamp was added.",
        "A lamp was taken away, and the table is now of wood.",
    ),
    ("Compare them.", "Nothing has changed.", "The sky is grey."),
]
SIZES = [((56, 84), (84, 56)), ((56, 56), (112, 56)), ((84, 84), (56, 56))]


@pytest.fixture(scope="module")
def rows():
    """Return rows of two images each, of different sizes; texts of different lengths."""
    rng = np.random.default_rng(0)
    return [
        make_row(*texts, [make_picture(size, rng) for size in sizes])
        for texts, sizes in zip(TEXTS_OF_ROWS, SIZES, strict=True)
    ]


@pytest.fixture(scope="module", params=["qwen2_vl", "qwen2_5_vl"])
def folder(request, checkpoint):
    return checkpoint(request.param)


def config_of(objective, **sections):
    model = {"tuning": "lora", "lora": {"rank": 4, "alpha": 8}} | sections.pop("model", {})
    given = {
        "objective": objective,
        "model": model,
        "optimiser": {"precision": "fp32"},
        "sft_weight": 0.0,
    }
    return TrainConfig.model_validate(given | sections)


def settings_of(path):
    """Return the Trainer's own settings: one batch of all rows, on the CPU, in float32."""
    plain = {"bf16": False, "use_cpu": True, "gradient_checkpointing": False, "report_to": "none"}
    return {"output_dir": str(path), "per_device_train_batch_size": 3, **plain}


def batch_of(folder, rows, config):
    examples = [make_example(row, needs_of(config)) for row in rows]
    return Collator(trl_processor(folder), config.model.max_length)(
        [load_example(one, 10**7) for one in examples]
    )["batch"]


def policy_of(folder, config):
    """Return a policy that is not the reference, so that the loss is not that of equal models."""
    model = prepare_model(load_model(folder, config.model, dtype=torch.float32), config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.05 * torch.randn(weight.shape, generator=generator)
    return model


def loss_of_ours(model, batch, config, *, frozen=None):
    inner = model.get_base_model() if frozen is None else model
    packed = pack_answers(batch, inner)
    needed = config.objective in LOSSES
    reference = (Copy(frozen) if frozen else Adapters()) if needed else None
    compared = reference.score(model, packed, batch.keys) if reference else None
    return compute_loss(score_answers(model, packed), compared, config)


def batch_of_trl(trainer):
    return trainer.data_collator(
        [trainer.train_dataset[number] for number in range(len(trainer.train_dataset))]
    )


def take_weights(trainer, model):
    """Give TRL's policy the weights of ours, by name."""
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in trainer.model.named_parameters():
            weight.copy_(own[name])


def assert_close(ours, theirs, *, scale=1.0, name="loss"):
    """Check for 1e-6, of 1 or of ``scale`` where that is more: float32 has seven digits."""
    assert (ours - theirs).abs().max() <= CLOSE * max(1.0, scale), name


def assert_same_step(model, loss, other, wanted):
    """Check the loss and the gradient of every weight; a gradient's scale is its largest of all
    weights."""
    assert_close(loss, wanted, scale=wanted.item())
    theirs = {
        name: weight.grad for name, weight in other.named_parameters() if weight.requires_grad
    }
    ours = {name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad}
    assert ours.keys() == theirs.keys()
    largest = max(gradient.abs().max().item() for gradient in theirs.values())
    assert largest > 1e-2
    for name, gradient in theirs.items():
        assert_close(ours[name], gradient, scale=largest, name=name)


def compare_steps(trainer, folder, rows, config, *, frozen=None, **words):
    """Check a step of ours against TRL's, and return our loss."""
    model = policy_of(folder, config)
    loss = loss_of_ours(model, batch_of(folder, rows, config), config, frozen=frozen)
    loss.value.backward()
    take_weights(trainer, model)
    wanted = trainer.compute_loss(trainer.model, batch_of_trl(trainer), **words)
    wanted.backward()
    assert_same_step(model, loss.value, trainer.model, wanted)
    return loss


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_loss_and_gradients_of_dpo(tuning, folder, rows, tmp_path):
    """With adapters against the model without them, with all weights against a copy."""
    config = config_of("dpo", model={"tuning": tuning})
    copy = load_model(folder, config.model, dtype=torch.float32) if tuning == "full" else None
    trainer = dpo_trainer(folder, rows, config, loss_type=["sigmoid"], **settings_of(tmp_path))
    loss = compare_steps(trainer, folder, rows, config, frozen=copy)
    if tuning == "lora":
        (margin,) = trainer._metrics["train"]["rewards/margins"]
        assert abs(margin) > 0.01
        assert loss.metrics["margin"].item() == pytest.approx(margin, abs=CLOSE)


@pytest.mark.parametrize("number", [0, 1])
def test_loss_and_gradients_of_dpo_with_an_sft_term(number, folder, rows, tmp_path):
    """A row at a time: TRL averages over the tokens of a batch, so that long rows weigh more."""
    config = config_of("dpo", sft_weight=0.7)
    one = rows[number : number + 1]
    mixed = {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.7]}
    compare_steps(
        dpo_trainer(folder, one, config, **mixed, **settings_of(tmp_path)), folder, one, config
    )


def test_loss_and_gradients_of_sft(folder, rows, tmp_path):
    config = config_of("sft")
    trainer = sft_trainer(folder, rows, config, **settings_of(tmp_path))
    labels = batch_of_trl(trainer)["labels"]
    compare_steps(trainer, folder, rows, config, num_items_in_batch=(labels != -100).sum())
