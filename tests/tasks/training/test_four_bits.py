"""QLoRA and bitsandbytes' optimisers, really: 4 bits on this CPU, a run, its finished model, what
is refused."""

from dataclasses import replace

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
from tests.fixtures.runs_to_train import At, curve, settings, train_run, write_run

PAGED = "ignore:Paged optimizers are not supported on CPU"
LEVELS = [
    *(-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0),
    *(0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0),
]
"""NF4's, of the paper's Appendix E."""


def load(folder, **model):
    return load_model(folder, ModelConfig(**model), dtype=torch.float32)


def small_weights(model):
    return {name: one for name, one in model.named_parameters() if one.dtype is torch.uint8}


def blocks_of(weight):
    return weight.flatten().unfold(0, 64, 64)


def test_linear_layers_of_the_language_model_have_the_papers_levels(start):
    model, whole = load(start, load_in_4bit=True), load(start)
    names = [name for name in small_weights(model) if "language_model" in name]
    assert (
        len(names)
        == len(small_weights(model))
        == 7 * Sizes.from_published(*read_model(start)).layers
    )
    # bitsandbytes' CPU kernel gives other rows others' scales.
    for name in (name for name in names if whole.get_parameter(name).shape[1] % 64 == 0):
        layer = model.get_submodule(name.removesuffix(".weight"))
        bias = 0 if layer.bias is None else layer.bias.detach()
        blocks = blocks_of(whole.get_parameter(name).detach())
        scales = blocks.abs().amax(1, keepdim=True)
        nearest = (blocks / scales)[..., None].sub(torch.tensor(LEVELS)).abs().argmin(-1)
        stored = (layer(torch.eye(layer.in_features)).detach() - bias).T
        difference = blocks_of(stored) - torch.tensor(LEVELS)[nearest] * scales
        assert difference.abs().max() < 0.02 * scales.max(), "scales have 8 bits"


def test_weights_in_4_bits_take_the_estimated_bytes(start):
    small = small_weights(load(start, load_in_4bit=True)).values()
    sizes = Sizes.from_published(*read_model(start))
    held = sum(weight.nbytes + weight.quant_state.absmax.nbytes for weight in small)
    assert held == sizes.layers * sizes.layer * (NF4[0] + NF4[1])


@pytest.mark.parametrize("optim", ["paged_adamw_8bit", "adamw_torch_fused"])
@pytest.mark.usefixtures("no_samples")
@pytest.mark.filterwarnings(PAGED)
def test_four_bit_run_resumes_and_saves_the_trained_model(optim, qwen, tmp_path):
    bits = {"load_in_4bit": True, "lora": {"rank": 64, "alpha": 128}}
    optimiser = {"optim": optim, "max_steps": 4}
    config = settings("dpo", qwen, model=bits, optimiser=optimiser, output={"merge_adapters": True})
    alone, job = train_run(tmp_path / "alone", config), write_run(tmp_path / "stopped", config)
    with pytest.raises(ZeroDivisionError):
        fit_preferences(replace(job, watcher=At(3, lambda: 1 / 0)))
    assert job.run.steps() == [2]
    assert fit_preferences(job).finished
    losses = curve(alone.run)
    assert curve(job.run) == pytest.approx(losses, rel=1e-6)
    assert losses[-1] < losses[0]
    merged = train_run(
        tmp_path / "merged", settings("dpo", alone.run.model, optimiser={"max_steps": 1})
    )
    before, after = (curve(each.run, "logp/chosen", HELD_OUT) for each in (alone, merged))
    assert after[0] == pytest.approx(before[-1], rel=1e-4)


def config_of(**values):
    return TrainConfig.model_validate({"objective": "sft", **values})


def test_weights_in_4_bits_are_not_trained_in_full():
    with pytest.raises(ValueError, match="weights in 4 bits cannot be trained"):
        config_of(model={"load_in_4bit": True, "tuning": "full"})


@pytest.mark.parametrize("name", ["adamw_torch_fused", "adafactor", "paged_lion_8bit"])
def test_optimisers_of_the_trainer_are_taken(name):
    check_libraries(config_of(optimiser={"optim": name}))


def test_an_unknown_optimiser_is_refused_with_the_others():
    with pytest.raises(ConfigError, match=r"'adamw_8bits'; choose from .*adamw_8bit"):
        check_libraries(config_of(optimiser={"optim": "adamw_8bits"}))


def test_an_optimiser_of_bitsandbytes_needs_it(monkeypatch):
    monkeypatch.setattr(find_model.importlib.util, "find_spec", lambda name: None)
    check_libraries(config_of(optimiser={"optim": "adamw_torch_8bit"}))
    with pytest.raises(ConfigError, match=r"optim: adamw_8bit: needs bitsandbytes.*train,qlora"):
        check_libraries(config_of(optimiser={"optim": "adamw_8bit"}))
