"""Training on a GPU that computes nothing: rows are packed, scored and lost there, and nothing stays on the CPU.

The models' own code reads shapes from the device, which has no numbers: logits come without them.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pairwright.schemas.training import ModelConfig, TrainConfig
from pairwright.tasks.training.collate import Collator, load_row
from pairwright.tasks.training.load_model import computing, load_model, load_processor
from pairwright.tasks.training.losses import TEXTS, compute_loss, measures_of
from pairwright.tasks.training.pack_answers import pack_answers
from pairwright.tasks.training.score_answers import score_answers
from tests.fixtures.families_of_models import write_qwen2_vl
from tests.fixtures.preferences_to_train import preference
from tests.on_a_gpu.fake_gpu import FakeGpu

ROWS = [preference(number) for number in range(3)]
VOCABULARY = 50


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen2_vl(tmp_path_factory.mktemp("models") / "qwen")


@pytest.mark.parametrize("objective", ["sft", "dpo", "mdpo", "adavip"])
def test_rows_are_packed_scored_and_lost_on_the_gpu(objective: str, qwen: Path, fake_gpu: FakeGpu) -> None:
    config = TrainConfig.model_validate({"objective": objective})
    needs = measures_of(config)
    model = load_model(qwen, ModelConfig(), dtype=torch.bfloat16).to("cuda")
    batch = Collator(load_processor(qwen), 512)([load_row(row, needs, 200_000) for row in ROWS])["batch"]
    with torch.no_grad(), fake_gpu.computing(), computing(model.device, torch.bfloat16):
        packed = pack_answers(batch.to(model.device), model, width=TEXTS + needs.texts, dtype=torch.bfloat16)
        keep = packed.inputs["logits_to_keep"]
        shown = torch.empty((keep.numel(), VOCABULARY), dtype=torch.bfloat16, device=model.device)
        scored = score_answers(lambda **_: SimpleNamespace(logits=shown), packed)
        loss = compute_loss(scored, None if objective == "sft" else scored, config)
    on_gpu = [one for one in packed.inputs.values() if isinstance(one, torch.Tensor)]
    assert {one.device.type for one in (*on_gpu, scored.logps, loss.value, *loss.metrics.values())} == {"cuda"}
    assert scored.logps.dtype == loss.value.dtype == torch.float32
    assert torch.float64 not in fake_gpu.kinds
