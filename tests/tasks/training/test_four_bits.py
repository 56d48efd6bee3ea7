"""QLoRA and bitsandbytes' optimisers, really: 4 bits on this CPU, a run, its finished model, what
is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import ModelConfig, TrainConfig
from pairwright.tasks.serving.gpu_memory import read_model
from pairwright.tasks.training import find_model
from pairwright.tasks.training.check_environment import check_libraries
from pairwright.tasks.training.estimate_memory import NF4, Sizes
from pairwright.tasks.training.fit_preferences import fit_preferences
from pairwright.tasks.training.load_model import load_model
from pairwright.tasks.training.runs import HELD_OUT
from tests.fixtures.runs_to_train import At, curve, settings, write_run

BITS = {"load_in_4bit": True, "lora": {"rank": 64, "alpha": 128}}
PAGED = "ignore:Paged optimizers are not supported on CPU"
LEVELS = [
    *(-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0),
    *(0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0),
]
"""NF4's, of the paper's Appendix E."""


def load(folder: Path, **model: Any) -> Any:
    return load_model(folder, ModelConfig(**model), dtype=torch.float32)


def test_linear_layers_of_the_language_model_have_the_papers_levels(start: Path) -> None:
    model, whole = load(start, load_in_4bit=True), load(start)
    small = {name: one for name, one in model.named_parameters() if one.dtype is torch.uint8}
    own = Sizes.of(*read_model(start))
    assert len(small) == 7 * own.layers
    assert not [name for name in small if "language_model" not in name]
    for name in small:
        if (
            whole.get_parameter(name).shape[1] % 64
        ):  # bitsandbytes' CPU kernel gives such rows others' scales
            continue
        layer, weight = (
            model.get_submodule(name.removesuffix(".weight")),
            whole.get_parameter(name).detach(),
        )
        found = layer(torch.eye(weight.shape[1])).detach() - (
            0 if layer.bias is None else layer.bias.detach()
        )
        blocks = weight.flatten().unfold(0, 64, 64)
        scales = blocks.abs().amax(1, keepdim=True)
        nearest = (blocks / scales)[..., None].sub(torch.tensor(LEVELS)).abs().argmin(-1)
        wanted = torch.tensor(LEVELS)[nearest] * scales
        assert (found.T.flatten().unfold(0, 64, 64) - wanted).abs().max() < 0.02 * scales.max(), (
            "scales have 8 bits"
        )
    linear, states = own.layers * own.layer, [one.quant_state for one in small.values()]
    held = sum(one.nbytes for one in small.values()) + sum(one.absmax.nbytes for one in states)
    assert held == linear * (NF4[0] + NF4[1])


@pytest.mark.parametrize("optim", ["paged_adamw_8bit", "adamw_torch_fused"])
@pytest.mark.usefixtures("no_samples")
@pytest.mark.filterwarnings(PAGED)
def test_four_bit_run_resumes_and_saves_the_trained_model(
    optim: str, qwen: Path, tmp_path: Path
) -> None:
    config = settings(
        "dpo", qwen, model=BITS, optimiser={"optim": optim}, output={"merge_adapters": True}
    )
    job, alone = write_run(tmp_path / "a", config), write_run(tmp_path / "b", config)
    fit_preferences(alone)
    with pytest.raises(ZeroDivisionError):
        fit_preferences(replace(job, watcher=At(3, lambda: 1 / 0)))
    assert job.run.steps() == [2]
    assert fit_preferences(job).finished
    assert curve(job.run) == pytest.approx(curve(alone.run), rel=1e-6)
    assert curve(alone.run)[-1] < curve(alone.run)[0]
    measured = curve(alone.run, "logp/chosen", HELD_OUT)[-1]
    merged = write_run(tmp_path / "c", settings("dpo", alone.run.model, optimiser={"max_steps": 1}))
    fit_preferences(merged)
    assert curve(merged.run, "logp/chosen", HELD_OUT)[0] == pytest.approx(measured, rel=1e-4)


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(**values: Any) -> TrainConfig:
        return TrainConfig.model_validate({"objective": "sft", **values})

    with pytest.raises(ValueError, match="weights in 4 bits cannot be trained"):
        given(model={"load_in_4bit": True, "tuning": "full"})
    with pytest.raises(
        ConfigError, match=r"unknown optimiser 'adamw_8bits'; choose from .*adamw_8bit"
    ):
        check_libraries(given(optimiser={"optim": "adamw_8bits"}))
    for name in ("adamw_torch_fused", "adafactor", "paged_lion_8bit"):
        check_libraries(given(optimiser={"optim": name}))
    monkeypatch.setattr(find_model.importlib.util, "find_spec", lambda name: None)
    check_libraries(given(optimiser={"optim": "adamw_torch_8bit"}))
    with pytest.raises(ConfigError, match=r"optim: adamw_8bit: needs bitsandbytes.*train,qlora"):
        check_libraries(given(optimiser={"optim": "adamw_8bit"}))
