"""The tower that sees learns at a rate of its own; the projector, the module and the rest at the other one."""

from pathlib import Path

import pytest
import torch

from pairwright.schemas.differential import NAME
from pairwright.schemas.errors import ModelError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.differential.attach import attach, find_tower
from pairwright.tasks.training.load_model import load_model
from pairwright.tasks.training.split_rates import split_rates
from tests.fixtures.families_of_models import PACKED, write_smolvlm


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "llava_onevision"])
def test_each_weight_has_its_rate(family: str, tmp_path: Path) -> None:
    folder = PACKED[family](tmp_path / family)
    model = load_model(folder, TrainConfig(objective="sft").model, dtype=torch.float32)
    attach(model)
    weights = list(model.parameters())
    groups = [{"params": weights[::2], "weight_decay": 0.1}, {"params": weights[1::2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-5)
    split_rates(optimizer, model, 2e-6)
    found = {
        id(weight): (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for weight in group["params"]
    }
    assert len(found) == len(weights) == sum(len(group["params"]) for group in optimizer.param_groups)
    projector = {id(weight) for weight in find_tower(model).after.parameters()}
    for place, (name, weight) in enumerate(model.named_parameters()):
        seeing = name.startswith(("model.visual.", "model.vision_tower.")) and id(weight) not in projector
        assert found[id(weight)] == (2e-6 if seeing else 1e-5, 0.0 if place % 2 else 0.1), name
    assert found[id(getattr(model, NAME).out.weight)][0] == 1e-5
    assert {found[key][0] for key in projector} == {1e-5}


def test_a_family_that_is_not_known_is_refused(tmp_path: Path) -> None:
    folder = write_smolvlm(tmp_path / "smolvlm")
    model = load_model(folder, TrainConfig(objective="sft").model, dtype=torch.float32)
    with pytest.raises(ModelError, match=r"^optimiser\.vision_learning_rate: .*qwen2_vl"):
        split_rates(torch.optim.AdamW(model.parameters()), model, 1e-6)
