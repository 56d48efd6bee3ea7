"""Recipes: each loads, fits the GPU that it is for, and trains a tiny model of its family."""

import json

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
from tests.fixtures.families_of_models import FAMILIES
from tests.fixtures.runs_to_train import write_run

NAMES = profile_names(RECIPES)
PAPERS = ("adpo", "adpo-sft", "adavip", "m3diff", "namc", "symmpo")
OBJECTIVES = ("sft", "dpo", "mdpo", "adavip", "symmpo", "adpo")
BUILT = {
    "qwen2-vl": "qwen2_vl",
    "qwen2.5-vl": "qwen2_5_vl",
    "qwen3-vl": "qwen3_vl",
    "qwen3.5": "qwen3_5",
    "llava-onevision": "llava_onevision",
    "llava-1.5": "llava",
    "internvl3_5": "internvl",
}
TRAINED = ["adavip", "m3diff", *(name for name in NAMES if name.endswith("24gb"))]
FEW = [
    "optimiser.max_steps=2",
    "optimiser.per_device_train_batch_size=2",
    "optimiser.gradient_accumulation_steps=1",
    "optimiser.precision=fp32",
    "output.merge_adapters=false",
    "output.write_answers=false",
]


def config_of(recipe, settings=(), **how):
    return make_config(choose_objective("", recipe), settings, recipe=recipe, **how)


def test_every_recipe_is_listed_with_what_it_needs():
    recipes = {recipe["name"]: recipe for recipe in list_recipes()}
    assert list(recipes) == NAMES
    assert recipes.pop("namc")["needs_gb"] is None
    assert all(5 < recipe["needs_gb"] <= recipe["memory_gb"] for recipe in recipes.values())


@pytest.mark.parametrize("recipe", [name for name in NAMES if name not in PAPERS])
def test_recipes_fit_what_they_are_for(recipe):
    about, _ = load_recipe(recipe)
    for objective in OBJECTIVES:
        config = make_config(objective, [], recipe=recipe)
        assert config.objective == objective
        assert demand_of(Sizes(**about.sizes), config).total <= about.memory_gb * 10**9, objective


def test_what_is_named_after_a_paper_has_its_settings():
    configs = {name: config_of(name) for name in PAPERS}
    assert {config.sft_weight for config in configs.values()} == {0}
    adpo, first, adavip, m3diff, namc, symmpo = configs.values()
    assert (adpo.adpo.candidates, adpo.adpo.temperature) == (128, 2)
    assert (adpo.optimiser.learning_rate, first.optimiser.learning_rate) == (3e-6, 5e-7)
    assert first.optimiser.precision == "fp32"
    assert (adavip.optimiser.max_steps, adavip.adavip.beta) == (5000, 0.1)
    rates = m3diff.optimiser
    assert (rates.learning_rate, rates.vision_learning_rate) == (1e-5, 2e-6)
    assert m3diff.model.lora.rank == 128
    assert (symmpo.optimiser.learning_rate, symmpo.symmpo.symmetric_weight) == (5e-6, 0.5)
    assert (namc.namc.size, namc.optimiser.learning_rate) == ("paper", 3e-4)


def siglip():
    return {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 26,
        "num_attention_heads": 16,
        "model_type": "siglip_vision_model",
        "image_size": 384,
        "patch_size": 14,
        "vision_use_head": False,
    }


QWEN3_TOWERS = {
    2560: {
        "depth": 24,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "deepstack_visual_indexes": [5, 11, 17],
    },
    4096: {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304},
}
"""Towers of Qwen3-VL-4B and -8B, by the channels of the language model."""


def published_config(name, sizes):
    """Return the library's configuration of a model with these sizes."""
    import transformers as hf

    text = {
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.queries // 128,
        "num_key_value_heads": sizes.keys // 128,
        "vocab_size": sizes.vocabulary,
    }
    tied = {"tie_word_embeddings": bool(sizes.tied)}
    if name.startswith("llava-1.5"):  # its tower is the library's default
        return hf.LlavaConfig(text_config=text | {"model_type": "llama"}, **tied)
    if name.startswith("internvl3.5"):
        text |= {"model_type": "qwen3", "head_dim": 128}
        return hf.InternVLConfig(text_config=text | tied, vision_config={}, **tied)
    if name.startswith("qwen3.5"):  # the library's default, but for the tower's output
        return hf.Qwen3_5Config(vision_config={"out_hidden_size": sizes.hidden}, **tied)
    if name.startswith("qwen3-vl"):
        return hf.Qwen3VLConfig(
            text_config=text | tied | {"head_dim": 128},
            vision_config=QWEN3_TOWERS[sizes.hidden] | {"out_hidden_size": sizes.hidden},
            **tied,
        )
    if name.startswith("llava"):
        text["model_type"] = "qwen2"
        return hf.LlavaOnevisionConfig(text_config=text, vision_config=siglip(), **tied)
    if name.startswith("qwen2.5"):
        seen = {"hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": sizes.hidden}
        return hf.Qwen2_5_VLConfig(text_config=text | tied, vision_config=seen, **tied)
    seen = {"hidden_size": sizes.hidden}
    return hf.Qwen2VLConfig(text_config=text | tied, vision_config=seen, **tied)


@pytest.mark.parametrize("name", sorted(path.stem for path in (RECIPES / "models").glob("*.yaml")))
def test_published_numbers_are_those_of_the_libraries_models(name):
    import transformers as hf

    recipe, _ = load_recipe(str(RECIPES / "models" / f"{name}.yaml"))
    sizes = Sizes(**recipe.sizes)
    with torch.device("meta"):
        model = hf.AutoModelForImageTextToText.from_config(published_config(name, sizes))
    assert sum(weight.numel() for weight in model.parameters()) == sizes.whole


@pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")
@pytest.mark.parametrize("recipe", TRAINED)
def test_a_recipe_trains_a_tiny_model_of_its_family(recipe, tmp_path, monkeypatch):
    # Half of the time.
    monkeypatch.setattr(training, "sample_answers", lambda trainer, folder: None)
    monkeypatch.setattr(training, "measure_unreadable", lambda trainer: {})
    published = config_of(recipe).model.name.lower()
    write_model = FAMILIES[next(own for name, own in BUILT.items() if name in published)]
    config = config_of(recipe, FEW, model=str(write_model(tmp_path / "model")))
    assert fit_preferences(write_run(tmp_path, config)).step == 2


def test_a_recipe_gives_way_to_what_is_said(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("{extends: qwen2-vl-7b-24gb, objective: dpo, dpo: {beta: 0.3}}")
    config = make_config("dpo", ["dpo.beta=0.2"], recipe=str(mine), model="tiny")
    assert (config.dpo.beta, config.model.name, config.model.load_in_4bit) == (0.2, "tiny", True)
    assert choose_objective("", str(mine)) == "dpo"


def test_an_unknown_recipe_gives_the_known_ones():
    with pytest.raises(ConfigError, match=r"nope: .* adavip, .*namc"):
        make_config("sft", [], recipe="nope")


def test_an_objective_is_needed():
    with pytest.raises(ConfigError, match="--objective"):
        choose_objective("", "")


def test_an_unknown_field_of_a_recipe_gives_file_and_nearest_name(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("{extends: adpo, adpo: {temprature: 1}}")
    with pytest.raises(ConfigError, match=r"mine\.yaml.*adpo\.temprature: .* temperature\?"):
        make_config("adpo", [], recipe=str(mine))


def test_the_command_lists_them(capsys):
    assert run("recipes", "--json") == 0
    assert [recipe["name"] for recipe in json.loads(capsys.readouterr().out)] == NAMES
    assert run("recipes") == 0
    assert "2 x 48 GB" in capsys.readouterr().out
