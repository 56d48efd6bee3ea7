"""What a run starts from: a model by name, a stand-in, another run's; and what it goes on with
after a stop."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from pairwright.flows.pipeline.load_profile import choose_objective
from pairwright.flows.training.make_train_config import make_config, warn_of_batch
from pairwright.flows.training.version_tables import VersionTables
from pairwright.flows.versions.version import open_version
from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.training import OptimiserConfig, TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import RECORD
from pairwright.tasks.training import find_start as starts
from pairwright.tasks.training.find_model import find_model
from pairwright.tasks.training.namc.namc_objective import namc_defaults
from pairwright.tasks.training.runs import Run, find_run

TEMPLATE = "chat_template.jinja"


@pytest.fixture
def model(qwen, tmp_path):
    """Return a copy that a test may change."""
    return Path(shutil.copytree(qwen, tmp_path / "models" / "qwen"))


@pytest.fixture
def dataset(tmp_path):
    return Folder(str(tmp_path / "dataset"))


def run_of(dataset, name="new"):
    return Run(Path(dataset.path(f"runs/{name}")))


def find_start(dataset, start="", run=None, **model):
    """Return the model that a run starts from, and its settings."""
    config = TrainConfig.model_validate({"objective": "dpo", "start": start, "model": model})
    tables = SimpleNamespace(folder=dataset)
    if dataset.exists(RECORD):
        tables = VersionTables(open_version(dataset))
    return starts.find_start(config, run or run_of(dataset), tables)


def begin(dataset, start, name="new"):
    """Return a run that has begun from a start."""
    run, (model, config) = run_of(dataset, name), start
    run.record_start(
        config, {"start": {"folder": str(model.folder), "revision": model.revision}}, []
    )
    return run


def finish(dataset, model, name):
    """Return a finished run whose model is that of the folder, changed."""
    run = begin(dataset, find_start(dataset, name=str(model), run=run_of(dataset, name)), name)
    shutil.copytree(model, run.model)
    (run.model / TEMPLATE).write_text("{# trained #}" + (model / TEMPLATE).read_text())
    return run


def test_a_run_writes_down_which_model_it_began_with(dataset, model, monkeypatch):
    monkeypatch.chdir(model.parent)
    base, config = find_start(dataset, name="./qwen")
    assert base.folder == model
    assert config.model.name == str(model)
    assert config.model.revision == find_model(str(model)).revision
    run = begin(dataset, (base, config))
    assert find_start(dataset, name="./qwen", run=run)[1] == config


def test_a_run_does_not_go_on_with_a_model_that_has_changed(dataset, model):
    run = begin(dataset, find_start(dataset, name=str(model)))
    (model / TEMPLATE).write_text("{{ messages }}")
    with pytest.raises(ModelError, match="--name"):
        find_start(dataset, name=str(model), run=run)


def test_a_run_keeps_its_commit_when_the_hub_has_moved_on(dataset, qwen, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--owner--name"
    (repository / "refs").mkdir(parents=True)

    def publish(commit):
        shutil.copytree(qwen, repository / "snapshots" / commit)
        (repository / "refs" / "main").write_text(commit)

    publish("a" * 40)
    run = begin(dataset, find_start(dataset, name="owner/name"))
    publish("b" * 40)
    _, config = find_start(dataset, name="owner/name", run=run)
    assert (config.model.name, config.model.revision) == ("owner/name", "a" * 40)
    _, fresh = find_start(dataset, name="owner/name", run=run_of(dataset, "other"))
    assert fresh.model.revision == "b" * 40


def test_another_runs_model_is_what_is_trained_and_compared_with(dataset, model):
    sft = finish(dataset, model, "sft")
    for name in ("sft", str(sft.folder)):
        base, config = find_start(dataset, name)
        assert base.folder == sft.model
        assert config.model.name == str(model)
        assert config.model.revision == find_model(str(model)).revision != base.revision
    assert find_start(dataset, "sft", name=str(model))[0].folder == sft.model
    elsewhere = Folder(dataset.path("elsewhere"))
    assert find_start(elsewhere, str(sft.folder))[0].folder == sft.model


def test_runs_that_cannot_be_started_from(dataset, model):
    with pytest.raises(ConfigError, match=r"--from sft: .*none"):
        find_run(dataset, "sft")
    finish(dataset, model, "sft")
    begin(dataset, find_start(dataset, name=str(model)), "half")
    with pytest.raises(ConfigError, match=r"--from half: .*runs/half .*\bsft\b"):
        find_start(dataset, "half")
    with pytest.raises(ConfigError, match=r"--from nope: .*\bsft\b"):
        find_start(dataset, "nope")


def test_a_run_of_another_model_than_the_one_named_is_refused(dataset, model, tmp_path):
    finish(dataset, model, "sft")
    other = Path(shutil.copytree(model, tmp_path / "other"))
    find_start(dataset, "sft", name=str(other))  # the same bytes elsewhere
    (other / TEMPLATE).write_text("{{ messages }}")
    for name in (str(other), "tiny"):
        with pytest.raises(ConfigError, match=rf"--from sft: .*{model}.*--model .*{name}"):
            find_start(dataset, "sft", name=name)


def test_the_stand_in_learns_its_tokens_from_the_dataset_and_stays(copy):
    dataset = Folder(str(copy))
    start = model, config = find_start(dataset)
    assert model.folder.parent == copy / "models"
    assert (config.model.name, config.model.revision) == ("tiny", model.revision)
    run = begin(dataset, start)
    assert find_start(dataset, run=run)[0] == model
    (model.folder / "chat_template.json").write_text("{}")
    with pytest.raises(ModelError, match="--name"):
        find_start(dataset, run=run)


def test_the_defaults_are_those_of_the_model_that_is_started_from(dataset, model):
    """Stand-ins are trained in full at high rates, which would ruin what has learnt something."""
    finish(dataset, model, "sft")
    base, _ = find_start(dataset, name=str(model))
    stand_in = begin(dataset, (base, TrainConfig(objective="dpo")))
    shutil.copytree(model, stand_in.model)
    own, small = (
        make_config("dpo", [], start=name, dataset=dataset.url) for name in ("sft", "new")
    )
    assert (own.model.tuning, own.optimiser) == ("lora", OptimiserConfig())
    assert (small.model.tuning, small.optimiser.learning_rate) == ("full", 3e-4)
    with pytest.raises(ConfigError, match="--from nope: "):
        make_config("dpo", [], start="nope", dataset=dataset.url)


def rows_per_step(optimiser):
    return optimiser.per_device_train_batch_size * optimiser.gradient_accumulation_steps


def test_namc_has_its_published_schedules():
    """Paper 001, Appendix F; 512 and 128 rows to a step."""
    first, tuned = (make_config("namc", ["namc.size=paper"], start=start) for start in ("", "namc"))
    assert (first.optimiser.learning_rate, first.optimiser.num_train_epochs) == (3e-4, 20)
    assert tuned.optimiser.learning_rate == 2e-4
    assert (tuned.namc.noise_enabled, tuned.namc.max_new_tokens) == (False, 23)
    assert [rows_per_step(config.optimiser) for config in (first, tuned)] == [512, 128]
    assert namc_defaults("small", starts=False)["namc.noise_enabled"]


@pytest.mark.parametrize(
    ("recipe", "processes", "settings", "what"),
    [
        ("adpo-sft", 1, [], "64 rows a step on 1 .*adpo-sft has 128 on 2 .*accumulation_steps=64"),
        ("adpo-sft", 3, [], r"192 rows a step on 3 .*128 on 2 GPU\(s\): .* train$"),
        ("adpo-sft", 2, [], ""),
        ("adpo-sft", 1, ["optimiser.gradient_accumulation_steps=64"], ""),
        ("adpo-sft", 1, ["optimiser.per_device_train_batch_size=1"], ""),
        ("adavip", 1, [], "4 rows a step on 1 .*32 on 8 .*accumulation_steps=8"),
        ("m3diff", 4, [], ""),
    ],
)
def test_other_rows_per_step_than_the_recipes_are_said(
    recipe, processes, settings, what, monkeypatch, caplog
):
    """M3Diff's batch fits itself to the processes; a batch that is set is left alone."""
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    objective = choose_objective("", recipe)
    warn_of_batch(make_config(objective, settings, recipe=recipe), recipe, settings)
    assert bool(caplog.messages) == bool(what)
    assert re.search(what, " ".join(caplog.messages))


DIFFERENTIAL = ["model.differential.enabled=true", "optimiser.per_device_train_batch_size=8"]


def test_differential_perception_has_the_papers_settings(monkeypatch):
    """Table 10, on four devices."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    config = make_config("sft", DIFFERENTIAL, model="some/model")
    model, optimiser = config.model, config.optimiser
    assert (model.lora.rank, model.lora.alpha) == (128, 256)
    assert (model.tuning, model.vision_tuning, model.train_vision) == ("lora", "full", True)
    assert (optimiser.learning_rate, optimiser.vision_learning_rate) == (1e-5, 2e-6)
    assert (optimiser.num_train_epochs, 4 * rows_per_step(optimiser)) == (1, 256)


def test_what_is_set_stays_with_differential_perception(monkeypatch):
    """The stand-ins keep their own; without the module, nothing changes."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    command = [*DIFFERENTIAL, "optimiser.gradient_accumulation_steps=1"]
    own = make_config("sft", command, model="some/model").optimiser
    assert own.gradient_accumulation_steps == 1
    command = [*DIFFERENTIAL, "model.train_vision=false"]
    blind = make_config("sft", command, model="some/model").optimiser
    assert (blind.learning_rate, blind.vision_learning_rate) == (1e-5, 0.0)
    small = make_config("sft", DIFFERENTIAL)
    assert (small.model.tuning, small.output.write_answers) == ("full", True)
    assert small.optimiser.vision_learning_rate == 0.0
    plain = {"objective": "sft", "model": {"name": "some/model"}}
    assert make_config("sft", [], model="some/model") == TrainConfig.model_validate(plain)


@pytest.mark.parametrize(
    ("objective", "settings", "what"),
    [
        ("dpo", ["model.differential.enabled=true"], "objective sft"),
        ("namc", ["model.differential.enabled=true"], "^--differential: "),
        ("namc", ["model.name=tiny"], "^--model: "),
        ("adavip", ["model.tuning=lora", "model.vision_tuning=full"], "LoRA .*objective sft"),
        ("sft", ["model.train_vision=0", "optimiser.vision_learning_rate=1e-6"], "train_vision"),
        ("sft", ["model.differential.depth=9"], "model.differential.depth"),
    ],
)
def test_what_does_not_go_together_is_refused(objective, settings, what):
    with pytest.raises(ConfigError, match=what):
        make_config(objective, settings)
