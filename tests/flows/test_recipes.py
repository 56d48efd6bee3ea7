"""Recipes: each loads, fits the GPU that it is for, and trains a tiny model of its family."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pairwright.flows.pipeline.load_profile import (
    RECIPES,
    choose_objective,
    load_recipe,
    profile_names,
)
from pairwright.flows.training.make_train_config import list_recipes, make_config
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.training import fit_preferences as training
from pairwright.tasks.training.estimate_memory import Sizes, demand_of
from pairwright.tasks.training.fit_preferences import fit_preferences
from tests.fixtures.command import run
from tests.fixtures.families_of_models import PACKED
from tests.fixtures.runs_to_train import write_run

NAMES = profile_names(RECIPES)
PAPERS = ("adpo", "adpo-sft", "adavip", "m3diff", "namc")
BUILT = {"qwen2-vl": "qwen2_vl", "qwen2.5-vl": "qwen2_5_vl", "llava-onevision": "llava_onevision"}


def family(recipe: str) -> str:
    model = make_config(choose_objective("", recipe), [], recipe=recipe).model.name.lower()
    return next(own for name, own in BUILT.items() if name in model)


def test_recipes_fit_what_they_are_for() -> None:
    found = list_recipes()
    assert [one["name"] for one in found] == NAMES
    for one in found:
        assert (
            one["needs_gb"] is None
            if one["name"] == "namc"
            else 5 < (one["needs_gb"] or 0) <= one["memory_gb"]
        )
        if one["name"] in PAPERS:
            continue
        for objective in ("sft", "dpo", "mdpo", "adavip", "adpo"):
            config = make_config(objective, [], recipe=one["name"])
            assert config.objective == objective
            need = demand_of(Sizes(**load_recipe(one["name"])[0].sizes), config).total
            assert need <= one["memory_gb"] * 10**9, (one["name"], objective, need)


def test_what_is_named_after_a_paper_has_its_settings() -> None:
    config = {name: make_config(choose_objective("", name), [], recipe=name) for name in PAPERS}
    assert {one.sft_weight for one in config.values()} == {0}
    adpo, first, m3diff = config["adpo"], config["adpo-sft"], config["m3diff"]
    assert (adpo.optimiser.learning_rate, adpo.adpo.candidates, adpo.adpo.temperature) == (
        3e-6,
        128,
        2,
    )
    assert (first.optimiser.learning_rate, first.optimiser.precision) == (5e-7, "fp32")
    assert (config["adavip"].optimiser.max_steps, config["adavip"].adavip.beta) == (5000, 0.1)
    assert (
        m3diff.model.lora.rank,
        m3diff.optimiser.learning_rate,
        m3diff.optimiser.vision_learning_rate,
    ) == (*(128, 1e-5, 2e-6),)
    assert (config["namc"].namc.size, config["namc"].optimiser.learning_rate) == ("paper", 3e-4)


@pytest.mark.parametrize("name", sorted(path.stem for path in (RECIPES / "models").glob("*.yaml")))
def test_published_numbers_are_those_of_the_libraries_models(name: str) -> None:
    import transformers as hf

    recipe, _ = load_recipe(str(RECIPES / "models" / f"{name}.yaml"))
    own = Sizes(**recipe.sizes)
    text: dict[str, Any] = {
        "hidden_size": own.hidden,
        "intermediate_size": own.inner,
        "num_hidden_layers": own.layers,
        "num_attention_heads": own.queries // 128,
        "num_key_value_heads": own.keys // 128,
        "vocab_size": own.vocabulary,
    }
    tied = {"tie_word_embeddings": bool(own.tied)}
    if name.startswith("llava"):
        seen = {
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_hidden_layers": 26,
            "num_attention_heads": 16,
        }
        seen |= {
            "model_type": "siglip_vision_model",
            "image_size": 384,
            "patch_size": 14,
            "vision_use_head": False,
        }
        config = hf.LlavaOnevisionConfig(
            text_config={**text, "model_type": "qwen2"}, vision_config=seen, **tied
        )
    elif name.startswith("qwen2.5"):
        seen = {"hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": own.hidden}
        config = hf.Qwen2_5_VLConfig(text_config={**text, **tied}, vision_config=seen, **tied)
    else:
        config = hf.Qwen2VLConfig(
            text_config={**text, **tied}, vision_config={"hidden_size": own.hidden}, **tied
        )
    with torch.device("meta"):
        model: Any = hf.AutoModelForImageTextToText.from_config(config)
    assert sum(weight.numel() for weight in model.parameters()) == own.whole


@pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")
@pytest.mark.parametrize(
    "name", ["adavip", "m3diff", *(name for name in NAMES if name.endswith("24gb"))]
)
def test_a_recipe_trains_a_tiny_model_of_its_family(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        training, "sample_answers", lambda trainer, folder: None
    )  # half of the time
    monkeypatch.setattr(training, "measure_unreadable", lambda trainer: {})
    model = PACKED[family(name)](tmp_path / "model")
    few = [
        "optimiser.max_steps=2",
        "optimiser.per_device_train_batch_size=2",
        "optimiser.precision=fp32",
    ]
    few += [
        "optimiser.gradient_accumulation_steps=1",
        "output.merge_adapters=false",
        "output.write_answers=false",
    ]
    config = make_config(choose_objective("", name), few, model=str(model), recipe=name)
    assert fit_preferences(write_run(tmp_path, config)).step == 2


def test_a_recipe_gives_way_to_what_is_said(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("{extends: qwen2-vl-7b-24gb, objective: dpo, dpo: {beta: 0.3}}")
    config = make_config("dpo", ["dpo.beta=0.2"], recipe=str(mine), model="tiny")
    assert (config.dpo.beta, config.model.name, config.model.load_in_4bit) == (0.2, "tiny", True)
    assert choose_objective("", str(mine)) == "dpo"
    with pytest.raises(ConfigError, match=r"nope: no such recipe\. There are adavip, .*namc"):
        make_config("sft", [], recipe="nope")
    with pytest.raises(ConfigError, match="--objective is missing"):
        choose_objective("", "")
    mine.write_text("{extends: adpo, adpo: {temprature: 1}}")
    with pytest.raises(
        ConfigError,
        match=r"mine\.yaml.*adpo\.temprature: no such field\. Did you mean temperature\?",
    ):
        make_config("adpo", [], recipe=str(mine))


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("recipes", "--json") == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == NAMES
    assert run("recipes") == 0
    assert "2 x 48 GB" in capsys.readouterr().out
