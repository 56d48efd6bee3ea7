"""What a run starts from: a model by name, a stand-in, another run's; and what it goes on with
after a stop."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pairwright.flows.training.make_train_config import make_config
from pairwright.flows.training.version_tables import VersionTables
from pairwright.flows.versions.version import open_version
from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.training import OptimiserConfig, TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import RECORD
from pairwright.tasks.training import find_start as starts
from pairwright.tasks.training.find_model import Found, find_model
from pairwright.tasks.training.namc.namc_objective import namc_defaults
from pairwright.tasks.training.runs import Run, find_run


@pytest.fixture
def model(qwen: Path, tmp_path: Path) -> Path:
    """Return a copy that a test may change."""
    return Path(shutil.copytree(qwen, tmp_path / "models" / "qwen"))


@pytest.fixture
def dataset(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "dataset"))


def settings(start: str = "", **model: Any) -> TrainConfig:
    return TrainConfig.model_validate({"objective": "dpo", "start": start, "model": model})


def find_start(dataset: Folder, config: TrainConfig, run: Run) -> tuple[Found, TrainConfig]:
    tables: Any = SimpleNamespace(folder=dataset)
    if dataset.exists(RECORD):
        tables = VersionTables(open_version(dataset))
    return starts.find_start(config, run, tables)


def run_of(dataset: Folder, name: str = "new") -> Run:
    return Run(Path(dataset.path(f"runs/{name}")))


def begun(dataset: Folder, start: tuple[Found, TrainConfig], name: str = "new") -> Run:
    """Return a run that has begun from a start."""
    run, (found, config) = run_of(dataset, name), start
    run.begin(config, {"start": {"folder": str(found.folder), "revision": found.revision}}, [])
    return run


def finished(dataset: Folder, model: Path, name: str) -> Run:
    """Return a finished run whose model is that of the folder, changed."""
    run = begun(
        dataset, find_start(dataset, settings(name=str(model)), run_of(dataset, name)), name
    )
    shutil.copytree(model, run.model)
    (run.model / "chat_template.jinja").write_text(
        "{# trained #}" + (model / "chat_template.jinja").read_text()
    )
    return run


def test_a_run_writes_down_which_model_it_began_with(
    dataset: Folder, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    start = find_start(dataset, settings(name="./qwen"), run_of(dataset))
    assert start[0].folder == model
    assert (start[1].model.name, start[1].model.revision) == (
        str(model),
        find_model(str(model)).revision,
    )
    again = find_start(dataset, settings(name="./qwen"), begun(dataset, start))
    assert again[1] == start[1]


def test_a_run_does_not_go_on_with_a_model_that_has_changed(dataset: Folder, model: Path) -> None:
    run = begun(dataset, find_start(dataset, settings(name=str(model)), run_of(dataset)))
    (model / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(ModelError, match="--name"):
        find_start(dataset, settings(name=str(model)), run)


def test_a_run_goes_on_with_its_commit_when_the_hub_has_moved_on(
    dataset: Folder, qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    place = tmp_path / "hub" / "models--owner--name"
    (place / "refs").mkdir(parents=True)
    run = run_of(dataset)
    for commit in ("a" * 40, "b" * 40):
        shutil.copytree(qwen, place / "snapshots" / commit)
        (place / "refs" / "main").write_text(commit)
        start = find_start(dataset, settings(name="owner/name"), run)
        assert (start[1].model.name, start[1].model.revision) == ("owner/name", "a" * 40)
        if not run.config():
            begun(dataset, start)
    fresh = find_start(dataset, settings(name="owner/name"), run_of(dataset, "other"))
    assert fresh[1].model.revision == "b" * 40


def test_another_runs_model_is_what_is_trained_and_compared_with(
    dataset: Folder, model: Path
) -> None:
    sft = finished(dataset, model, "sft")
    for name in ("sft", str(sft.folder)):
        start = find_start(dataset, settings(start=name), run_of(dataset))
        assert start[0].folder == sft.model
        assert start[1].model.name == str(model)
        assert start[1].model.revision == find_model(str(model)).revision != start[0].revision
    assert (
        find_start(dataset, settings(start="sft", name=str(model)), run_of(dataset))[0].folder
        == sft.model
    )
    elsewhere = Folder(dataset.path("elsewhere"))
    assert (
        find_start(elsewhere, settings(start=str(sft.folder)), run_of(elsewhere))[0].folder
        == sft.model
    )


def test_runs_that_cannot_be_started_from(dataset: Folder, model: Path) -> None:
    with pytest.raises(ConfigError, match=r"--from sft: .*none"):
        find_run(dataset, "sft")
    finished(dataset, model, "sft")
    begun(dataset, find_start(dataset, settings(name=str(model)), run_of(dataset, "half")), "half")
    with pytest.raises(ConfigError, match=r"--from half: .*runs/half .*\bsft\b"):
        find_start(dataset, settings(start="half"), run_of(dataset))
    with pytest.raises(ConfigError, match=r"--from nope: .*\bsft\b"):
        find_start(dataset, settings(start="nope"), run_of(dataset))


def test_a_run_of_another_model_than_the_one_named_is_refused(
    dataset: Folder, model: Path, tmp_path: Path
) -> None:
    finished(dataset, model, "sft")
    other = Path(shutil.copytree(model, tmp_path / "other"))
    find_start(
        dataset, settings(start="sft", name=str(other)), run_of(dataset)
    )  # the same bytes elsewhere
    (other / "chat_template.jinja").write_text("{{ messages }}")
    for name in (str(other), "tiny"):
        with pytest.raises(ConfigError, match=rf"--from sft: .*{model}.*--model .*{name}"):
            find_start(dataset, settings(start="sft", name=name), run_of(dataset))


def test_the_stand_in_learns_its_tokens_from_the_dataset_and_stays(
    rendered: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(rendered, tmp_path / "demo"))
    dataset = Folder(str(out))
    start = find_start(dataset, settings(), run_of(dataset))
    assert start[0].folder.parent == out / "models"
    assert start[1].model.name == "tiny"
    assert start[1].model.revision == start[0].revision
    run = begun(dataset, start)
    assert find_start(dataset, settings(), run)[0] == start[0]
    (start[0].folder / "chat_template.json").write_text("{}")
    with pytest.raises(ModelError, match="--name"):
        find_start(dataset, settings(), run)


def test_the_defaults_are_those_of_the_model_that_is_started_from(
    dataset: Folder, model: Path
) -> None:
    """Stand-ins are trained in full at high rates, which would ruin a model that has learnt
    something."""
    finished(dataset, model, "sft")
    start = find_start(dataset, settings(name=str(model)), run_of(dataset))
    stand_in = begun(dataset, (start[0], settings()))
    shutil.copytree(model, stand_in.model)
    own, small = (
        make_config("dpo", [], start=name, dataset=dataset.url) for name in ("sft", "new")
    )
    assert (own.model.tuning, own.optimiser) == ("lora", OptimiserConfig())
    assert (small.model.tuning, small.optimiser.learning_rate) == ("full", 3e-4)
    with pytest.raises(ConfigError, match="--from nope: "):
        make_config("dpo", [], start="nope", dataset=dataset.url)


def test_namc_has_its_published_schedules() -> None:
    """Paper 001, Appendix F; 512 and 128 rows to a step."""
    first, tuned = (make_config("namc", ["namc.size=paper"], start=start) for start in ("", "namc"))
    assert (first.optimiser.learning_rate, first.optimiser.num_train_epochs) == (3e-4, 20)
    assert (tuned.optimiser.learning_rate, tuned.namc.noise_enabled, tuned.namc.max_new_tokens) == (
        2e-4,
        False,
        23,
    )
    for config, rows in ((first, 512), (tuned, 128)):
        assert (
            config.optimiser.per_device_train_batch_size
            * config.optimiser.gradient_accumulation_steps
            == rows
        )
    assert namc_defaults("small", starts=False)["namc.noise_enabled"]


def test_differential_perception_has_the_papers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 10, on four devices; the stand-ins keep their own."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    asked = ["model.differential.enabled=true", "optimiser.per_device_train_batch_size=8"]
    config = make_config("sft", asked, model="some/model")
    model, optimiser = config.model, config.optimiser
    assert (model.lora.rank, model.lora.alpha, model.tuning, model.vision_tuning) == (
        128,
        256,
        "lora",
        "full",
    )
    assert (
        optimiser.learning_rate,
        optimiser.vision_learning_rate,
        optimiser.num_train_epochs,
    ) == (1e-5, 2e-6, 1)
    assert 4 * optimiser.per_device_train_batch_size * optimiser.gradient_accumulation_steps == 256
    assert model.train_vision
    own = make_config(
        "sft", [*asked, "optimiser.gradient_accumulation_steps=1"], model="some/model"
    )
    assert own.optimiser.gradient_accumulation_steps == 1
    blind = make_config("sft", [*asked, "model.train_vision=false"], model="some/model")
    assert (blind.optimiser.learning_rate, blind.optimiser.vision_learning_rate) == (1e-5, 0.0)
    small = make_config("sft", asked)
    assert (
        small.model.tuning,
        small.optimiser.vision_learning_rate,
        small.output.write_answers,
    ) == ("full", 0.0, True)
    assert make_config("sft", [], model="some/model") == TrainConfig.model_validate(
        {"objective": "sft", "model": {"name": "some/model"}}
    )


@pytest.mark.parametrize(
    ("objective", "settings", "why"),
    [
        ("dpo", ["model.differential.enabled=true"], "objective sft"),
        ("namc", ["model.differential.enabled=true"], "^--differential: "),
        ("namc", ["model.name=tiny"], "^--model: "),
        ("adavip", ["model.tuning=lora", "model.vision_tuning=full"], "LoRA .*objective sft"),
        (
            "sft",
            ["model.train_vision=false", "optimiser.vision_learning_rate=1e-6"],
            "model.train_vision",
        ),
        ("sft", ["model.differential.depth=9"], "model.differential.depth"),
    ],
)
def test_what_does_not_go_together_is_refused(
    objective: str, settings: list[str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        make_config(objective, settings)
