"""GRPO by TRL: a run of two steps leaves what every run leaves, and one that goes on."""

from dataclasses import replace

import pytest

from pairwright.schemas.scene import SceneChange
from pairwright.tasks.training.grpo.fit_grpo import fit_grpo, make_grpo_arguments
from pairwright.tasks.training.grpo.freeze_truths import find_truth, write_truths
from pairwright.tasks.training.report.write_run_page import write_run_page
from pairwright.tasks.training.runs import HELD_OUT, TRAIN, MetricsFile
from tests.fixtures.graphs import graph, thing
from tests.fixtures.preferences_to_train import preference
from tests.fixtures.runs_to_train import settings, write_run

CHANGE = SceneChange(type="colour", object_id="a", before="red", after="blue")
TRUTH = find_truth([graph(thing()), graph(thing(colour="blue"), photograph=1, changes=(CHANGE,))])
GRPO = {"num_generations": 2, "max_completion_length": 4}


def config_of(qwen, **values):
    optimiser = {"max_steps": 2, "per_device_train_batch_size": 1}
    return settings("grpo", qwen, grpo=GRPO, optimiser=optimiser, **values)


def job_of(root, config):
    rows = [replace(preference(number), split="train") for number in range(3)]
    rows.append(replace(preference(9), split="validation"))
    job = write_run(root, config, rows=rows)
    write_truths(job.run.folder, {row.key: TRUTH for row in rows})
    return job


def test_a_forward_pass_has_the_answers_to_one_prompt(qwen, tmp_path) -> None:
    """Rows of a step are prompts, each with a group of answers."""
    config = config_of(qwen).model_copy(update={"objective": "grpo"})
    config = config.model_copy(
        update={
            "optimiser": config.optimiser.model_copy(
                update={"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2}
            )
        }
    )
    job = job_of(tmp_path, config)
    arguments = make_grpo_arguments(job.run, config)
    assert arguments.per_device_train_batch_size == 2
    assert arguments.gradient_accumulation_steps == 6
    assert (arguments.num_generations, arguments.max_completion_length) == (2, 4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_run_has_rewards_a_page_and_a_model(qwen, tmp_path) -> None:
    job = job_of(tmp_path, config_of(qwen))
    ended = fit_grpo(job)
    assert (ended.step, ended.steps, ended.finished) == (2, 2, True)
    metrics = MetricsFile(job.run.metrics).read_until()
    steps = {entry[0] for entry in metrics.entries if entry[2:4] == (TRAIN, "reward")}
    assert steps == {1, 2}
    assert 0 <= metrics.last(HELD_OUT)["reward"] <= 1
    assert metrics.last(TRAIN)["answer/tokens"] <= 4
    page = write_run_page(job.run.folder).read_text()
    assert "Reward of answers" in page
    assert (job.run.model / "adapter_config.json").exists()
