"""Training on a GPU that computes nothing: rows are packed, scored and lost there, and nothing
stays on the CPU.

The models' own code reads shapes from the device, which has no numbers: logits come without them.
Of a backward pass only the part that is ours is done (``FakeGpu.backward``).
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pairwright.schemas.config import ClipConfig
from pairwright.schemas.training import ModelConfig, TrainConfig
from pairwright.tasks.models.differential import attach, find_tower
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.training.collate import Collator, load_example
from pairwright.tasks.training.fit_preferences import make_trainer
from pairwright.tasks.training.freeze_rows import make_example
from pairwright.tasks.training.load_model import computing, load_model, load_processor
from pairwright.tasks.training.losses import TEXTS, compute_loss, measures_of
from pairwright.tasks.training.namc.train_namc import Training
from pairwright.tasks.training.pack_answers import pack_answers
from pairwright.tasks.training.retriever.encoders import Clip4IdcEncoder
from pairwright.tasks.training.score_answers import _TargetLogProbabilities, score_answers
from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder
from tests.fixtures.families_of_models import write_llava_onevision, write_qwen2_vl
from tests.fixtures.preferences_to_train import preference
from tests.fixtures.retrievers_to_train import LIVELY, write_adpo_run
from tests.fixtures.runs_to_train import settings, write_run
from tests.on_a_gpu.fake_gpu import FakeGpu
from tests.tasks.models.samples import photographs
from tests.tasks.training.namc.test_train_namc import rows as namc_rows
from tests.tasks.training.namc.test_train_namc import settings as namc_settings

ROWS = [preference(number) for number in range(3)]
VOCABULARY = 50


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen2_vl(tmp_path_factory.mktemp("models") / "qwen")


@pytest.mark.parametrize("objective", ["sft", "dpo", "mdpo", "adavip"])
def test_rows_are_packed_scored_and_lost_on_the_gpu(
    objective: str, qwen: Path, fake_gpu: FakeGpu
) -> None:
    config = TrainConfig.model_validate({"objective": objective})
    needs = measures_of(config)
    model = load_model(qwen, ModelConfig(), dtype=torch.bfloat16).to("cuda")
    batch = Collator(load_processor(qwen), 512)(
        [load_example(make_example(row, needs), 200_000) for row in ROWS]
    )["batch"]
    with torch.no_grad(), fake_gpu.computing(), computing(model.device, torch.bfloat16):
        packed = pack_answers(batch, model, width=TEXTS + needs.texts, dtype=torch.bfloat16)
        keep = packed.inputs["logits_to_keep"]
        shown = torch.empty((keep.numel(), VOCABULARY), dtype=torch.bfloat16, device=model.device)
        scored = score_answers(lambda **_: SimpleNamespace(logits=shown), packed)
        loss = compute_loss(scored, None if objective == "sft" else scored, config)
    on_gpu = [one for one in packed.inputs.values() if isinstance(one, torch.Tensor)]
    assert {
        one.device.type for one in (*on_gpu, scored.logps, loss.value, *loss.metrics.values())
    } == {"cuda"}
    assert scored.logps.dtype == loss.value.dtype == torch.float32
    assert torch.float64 not in fake_gpu.kinds


def test_the_way_back_of_log_probabilities_is_on_the_gpu(fake_gpu: FakeGpu) -> None:
    """The only one that is ours; it keeps bfloat16 logits, and computes in float32."""
    with fake_gpu.computing():
        logits = torch.empty(
            (30_000, VOCABULARY * 10), dtype=torch.bfloat16, device="cuda"
        )  # two chunks
        places, targets = (torch.zeros(7, dtype=torch.long, device="cuda") for _ in range(2))
        total, grad = torch.empty(30_000, device="cuda"), torch.empty(7, device="cuda")
        kept = SimpleNamespace(saved_tensors=(logits, total, places, targets))
        with torch.no_grad():
            found, *_ = _TargetLogProbabilities.backward(kept, grad)
    assert (found.device.type, found.dtype, found.shape) == ("cuda", torch.bfloat16, logits.shape)
    assert torch.float64 not in fake_gpu.kinds


def test_the_retriever_that_sees_images_encodes_on_the_gpu(
    tmp_path: Path, fake_gpu: FakeGpu
) -> None:
    """The other one, which has vectors, is part of a step of ADPO."""
    folder = write_clip_folder(tmp_path / "clip", architecture=READING_CLIP)
    config = pin_clip(ClipConfig(checkpoint=str(folder)), download=False)
    shown, device = list(photographs().values())[:2], torch.device("cuda")
    with fake_gpu.computing(), computing(device, torch.bfloat16):
        encoder = Clip4IdcEncoder(
            config, ("a dog", "two cats"), lambda _: shown, seed=0, device=device
        )
        found = encoder.encode_pairs(np.arange(3)), encoder.texts(np.arange(2))
    assert [(one.device.type, len(one)) for one in found] == [("cuda", 3), ("cuda", 2)]
    assert torch.bfloat16 in fake_gpu.products
    assert torch.float64 not in fake_gpu.kinds


def test_a_step_of_namc_is_on_the_gpu(tmp_path: Path, fake_gpu: FakeGpu) -> None:
    job = write_run(tmp_path, namc_settings(), rows=namc_rows())
    with fake_gpu.computing():
        training = Training(job)
        batches = [training.batches.make_batch(part) for part in training._parts(0)]
        measured = training.learner.train_step(batches, number=0, rows=4)
        held_out = training.learner.measure(training.held_out)
        said = training.learner.describe_pairs(training.held_out)
    assert {
        "loss",
        "loss/alignment",
        "loss/reconstruction",
        "grad_norm",
        "grad_norm/noise",
    } <= measured.keys()
    assert list(held_out) == ["loss/description"]
    assert len(said) == len(training.held_out)
    assert torch.bfloat16 in fake_gpu.products
    assert torch.float64 not in fake_gpu.kinds


def test_differences_are_perceived_on_the_gpu(tmp_path: Path, fake_gpu: FakeGpu) -> None:
    """By the hooks of a whole tower; Qwen's reads the sizes of its images from the device."""
    model = load_model(
        write_llava_onevision(tmp_path / "onevision"), ModelConfig(), dtype=torch.bfloat16
    )
    module = attach(model)
    tower = find_tower(model.to("cuda"))
    with fake_gpu.computing(), computing(model.device, torch.bfloat16):
        size = model.config.vision_config.image_size
        pixels = torch.empty(4, 3, size, size, dtype=torch.bfloat16, device="cuda")
        found = tower.after(tower.whole(pixels).last_hidden_state)
        found.sum().backward()
    assert (found.device.type, len(found)) == ("cuda", 4)
    assert {weight.grad.device.type for weight in module.parameters()} == {"cuda"}
    assert torch.bfloat16 in fake_gpu.products
    assert torch.float64 not in fake_gpu.kinds


@pytest.mark.parametrize("objective", ["sft", "adpo"])
def test_the_trainer_s_step_is_on_the_gpu(
    objective: str, qwen: Path, tmp_path: Path, fake_gpu: FakeGpu
) -> None:
    """A whole step but for the model's own forward pass: it packs, scores policy and reference,
    measures, steps."""
    adpo = {"adpo": LIVELY} if objective == "adpo" else {}
    config = settings(
        objective, qwen, **adpo, model={"shared_prompt": "never"}, optimiser={"precision": "bf16"}
    )
    trainer = make_trainer((write_adpo_run if objective == "adpo" else write_run)(tmp_path, config))
    trainer.create_optimizer()
    model = trainer.model
    batch = trainer.data_collator([trainer.train_dataset[place] for place in range(4)])
    trainer._total, trainer.current_gradient_accumulation_steps = trainer._weight(batch["batch"]), 1
    weight = next(weight for weight in model.parameters() if weight.requires_grad)

    def show(**inputs: Any) -> SimpleNamespace:
        kept = inputs["logits_to_keep"].numel()
        return SimpleNamespace(
            logits=weight.sum() + torch.empty((kept, VOCABULARY), device=weight.device)
        )

    model.forward = show
    with fake_gpu.computing():
        loss = trainer.training_step(model, batch)
        trainer._clip_grad_norm(model)
        trainer.optimizer.step()
    if objective == "adpo":
        assert trainer.setup.adversary.retriever.steps == 1
    assert loss.device.type == weight.device.type == "cuda"
    assert torch.float64 not in fake_gpu.kinds
