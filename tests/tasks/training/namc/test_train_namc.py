"""NAMC is trained on a run's rows, goes on where it was stopped, and is fine-tuned from a finished
run."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.namc.captioner import answer_pairs, identify_captioner, is_namc
from pairwright.tasks.training.namc.namc_objective import check_settings
from pairwright.tasks.training.namc.train_namc import train_namc
from pairwright.tasks.training.runs import HELD_OUT, PLACES, TRAIN, MetricsFile, Run
from tests.fixtures.preferences_to_train import preference
from tests.fixtures.runs_to_train import logged, merge, read_lines, write_run

THINGS = ("a red ball", "a dog on a mat", "two basketballing cats", "a blue cube", "an old tree")
TEMPLATE = (
    "The difference between the two images is that the first image shows {}, while the second "
    "image features {}."
)


def rows(count=10):
    """Return template descriptions, two of them held out; at the end a row of one image, and one
    off the template."""
    described = []
    for n in range(count):
        text = TEMPLATE.format(THINGS[n % 5], THINGS[(n + 2) % 5])
        split = "validation" if n < 2 else "train"
        described.append(replace(preference(n), chosen=text, split=split))
    return [*described, preference(50, images=1), preference(51)]


def settings(**values):
    small = {
        "objective": "namc",
        "namc": {"max_new_tokens": 12, "image_mask_ratio": 0.4, "text_mask_ratio": 0.4},
        "optimiser": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
        | {"max_steps": 3},
        "output": {"logging_steps": 1, "save_steps": 2, "keep_checkpoints": True},
    }
    return TrainConfig.model_validate(merge(small, values))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    job = write_run(tmp_path_factory.mktemp("namc"), settings(), rows=rows())
    ended = train_namc(job)
    assert ended.finished
    assert (ended.step, ended.steps) == (3, 3)
    assert ended.measured["loss/description"] > 0
    return job


def reasons_of(run):
    return sorted(line["reason"] for line in read_lines(run.refused))


def test_a_run_leaves_metrics_of_each_loss(trained):
    metrics = MetricsFile(trained.run.metrics).read_until()
    last = metrics.last(TRAIN)
    parts = [last[f"loss/{part}"] for part in ("alignment", "description", "reconstruction")]
    assert last["loss"] == pytest.approx(sum(parts))
    assert 0.2 < last["masked/places"] < 0.6
    assert "masked/words" in last
    assert list(metrics.last(HELD_OUT)) == ["loss/description"]


def test_a_run_leaves_a_model_and_answers_beside_references(trained):
    run = trained.run
    assert run.is_finished
    assert not (run.folder / PLACES).exists()
    answers, references = (
        read_lines(run.answers / f"{name}.jsonl") for name in ("predictions", "references")
    )
    assert [row["id"] for row in answers] == [row["id"] for row in references]
    held_out = {row.chosen for row in rows() if row.split == "validation"}
    assert {row["text"] for row in references} == held_out
    texts = [row["text"] for row in answers]
    assert not any("[mask]" in text.lower() for text in texts)
    assert [
        sample["answer"] for sample in read_lines(run.folder / "samples/samples.jsonl")
    ] == texts


def test_a_run_leaves_why_rows_were_left_out(trained):
    assert reasons_of(trained.run) == ["no implicit-change description", "not about two images"]


def test_a_stopped_run_ends_with_the_same_weights(trained, tmp_path):
    shutil.copytree(Path(trained.dataset.path("")), tmp_path / "data")
    run = Run(tmp_path / "data/runs" / trained.run.folder.name)
    shutil.rmtree(run.model)
    shutil.rmtree(run.checkpoint(3))
    assert run.steps() == [2]
    assert train_namc(replace(trained, dataset=Folder(str(tmp_path / "data")), run=run)).finished
    for name in ("model.safetensors", "words.json"):
        assert (run.model / name).read_bytes() == (trained.run.model / name).read_bytes(), name
    losses, expected = (
        [entry for entry in logged(each) if entry[3] == "loss"] for each in (run, trained.run)
    )
    assert losses == expected


TUNING = {"namc": {"noise_enabled": False}, "optimiser": {"max_steps": 2}, "start": "namc"}


def test_a_finished_run_is_tuned_on_any_text(trained, tmp_path):
    """Without noise there are no masks and no CLIP; texts off the template are learnt from, too."""
    job = write_run(tmp_path, settings(**TUNING), rows=rows())
    assert train_namc(replace(job, start=trained.run.model)).finished
    assert "masked/places" not in MetricsFile(job.run.metrics).read_until().last(TRAIN)
    assert json.loads((job.run.model / "namc.json").read_text())["noise"] is False
    assert reasons_of(job.run) == ["not about two images"]


def test_a_start_that_is_no_namc_is_refused(tmp_path):
    job = write_run(tmp_path, settings(**TUNING), rows=rows())
    with pytest.raises(ModelError, match=r"--from: .*namc\.json"):
        train_namc(replace(job, start=tmp_path))


@pytest.mark.parametrize(
    "values", [{"data": {"group_by_length": True}}, {"output": {"report_to": ["wandb"]}}]
)
def test_what_it_does_not_have_is_refused(values):
    with pytest.raises(ConfigError, match="not supported by NAMC"):
        check_settings(settings(**values))


def test_a_run_without_rows_to_learn_from_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no row of split .*not about two images"):
        train_namc(write_run(tmp_path, settings(), rows=rows()[-2:]))


def test_it_answers_questions_about_two_images(trained, tmp_path):
    """In any batches the same; of other questions it says that they are none for it."""
    pairs = [row.images for row in rows(4)]
    images = {str(number): pair for number, pair in enumerate(pairs[:4])}
    images |= {"one": pairs[0][:1], "torn": (pairs[0][0], b"GIF89a")}
    questions = [(name, Question(prompt="", text="", images=pair)) for name, pair in images.items()]
    folder = trained.run.model
    replies, alone = (
        {reply.name: reply for reply in answer_pairs(questions, folder=folder, batch=batch)}
        for batch in (3, 1)
    )
    assert replies == alone
    states = [replies[name].state for name in images]
    assert states == ["answered"] * 4 + ["refused", "no image"]
    about = json.loads((folder / "namc.json").read_text())
    assert about["length"] == 12, "it writes as in its run"
    assert (is_namc(folder), is_namc(tmp_path)) == (True, False)
    assert identify_captioner(folder) == identify_captioner(folder)
