"""A paper's tables by one command, at small scale: tiny models, data in the published layouts."""

import json

import pytest

from pairwright.flows.training.reproduce_paper import (
    Reproducer,
    ReproductionConfig,
    load_reproduction,
    paper_names,
    reproduce,
)
from pairwright.schemas.errors import ConfigError
from tests.fixtures.command import run
from tests.fixtures.papers import PAPERS


@pytest.fixture
def data(tmp_path):
    """Return what writes a paper's data, and the folder."""

    def write(paper):
        PAPERS[paper](tmp_path / "data")
        return tmp_path / "data"

    return write


def test_a_stopped_reproduction_continues_where_it_was(data, tmp_path, capsys):
    """SFT is trained before the stop; afterwards only what is missing is made."""
    config = ReproductionConfig(
        paper="adpo", data=data("adpo"), to=tmp_path / "out", arms=["base", "sft"]
    )
    trained = []
    for step in reproduce(Reproducer(config)):
        trained.append(step.title)
        if step.kind == "train":
            break
    model = tmp_path / "out/image-editing-request/runs/sft/checkpoint/model.safetensors"
    before = model.stat().st_mtime_ns
    command = ["reproduce", "adpo", "--data", config.data, "--out", config.to]
    assert run(*command, "--arms", "base,sft") == 0
    assert model.stat().st_mtime_ns == before
    printed = capsys.readouterr().out
    assert "Table 2: CLEVR-Change was left out: no folder clevr-change" in printed
    scores = json.loads(
        (config.to / "scores/image-editing-request/image-editing-request/sft.json").read_text()
    )
    assert scores["limit"] == 8
    rouge = next(score["value"] for score in scores["scores"] if score["name"] == "ROUGE-L")
    [row] = [line for line in printed.splitlines() if line.startswith("sft ")]
    cells = row.split()
    assert cells[-4:] == ["13.1", "17.1", "41.4", "58.2"], "the paper's Table 1"
    assert cells[-6] == f"{100 * rouge:.1f}"
    page = (config.to / "index.html").read_text()
    assert "w/o Preference Optimization" in page
    assert "image-editing-request/runs/sft/report/index.html" in page
    assert run(*command, "--model", "other") == 2
    assert "holds a reproduction with another model" in capsys.readouterr().err


def test_a_table_reads_scores_as_the_paper_prints_them(tmp_path):
    """Shares are times 100, and of hallucinations the paper prints what is left."""
    for name in ("rlaif-v", "object-halbench", "amber"):
        (tmp_path / name).mkdir()
    config = ReproductionConfig(paper="adavip", data=tmp_path, to=tmp_path / "out")
    reproducer = Reproducer(config)
    objects, amber, discriminative = reproducer.tables
    of_objects = [("", "response (CHAIR_s)", 0.25, True), ("", "mention (CHAIR_i)", 0.1, True)]
    of_amber = [("discriminative", "F1", 0.5, True), ("generative", "CHAIR", None, True)]
    for table, rows in ((objects, of_objects), (amber, of_amber)):
        names = ("category", "name", "value", "percent")
        scores = [dict(zip(names, row, strict=True)) for row in rows]
        path = reproducer.scores_path("dpo", table)
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"scores": scores, "notes": ["a note"]}))

    def row_of(table):
        read = reproducer.read_table(table)
        assert read.notes == ["a note"]
        return next(row for row in read.rows if row.arm == "dpo")

    assert (row_of(objects).ours, row_of(objects).theirs) == ([75, 90], (80.1, 90.8))
    assert row_of(amber).ours == [None, 50, None, None, None]
    assert row_of(discriminative).ours == [None, None, None, 50, None]
    assert row_of(objects).cells() == ["dpo: + DPO", "75.0", "90.0", "80.1", "90.8"]


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_each_paper_runs_through(paper, data, tmp_path):
    reproducer = Reproducer(ReproductionConfig(paper=paper, data=data(paper), to=tmp_path / "out"))
    steps = list(reproduce(reproducer))
    assert {step.kind for step in steps} == {"build", "train", "evaluate"}
    for table in reproducer.tables:
        for row in reproducer.read_table(table).rows:
            assert any(score is not None for score in row.ours), (table.name, row.arm)


@pytest.mark.parametrize("paper", paper_names())
def test_a_plan_says_what_each_training_takes(paper, capsys):
    """Of all arms, ablations too, before there is data; NAMC's memory is not counted."""
    reproduction = load_reproduction(paper)
    arms = ",".join(reproduction.arms)
    assert run("reproduce", paper, "--scale", "paper", "--plan", "--arms", arms) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "no folder" in lines[-1], "what is missing yet is said"
    trainings = [line.split() for line in lines if line.startswith("train ")]
    trained = {cells[1] for cells in trainings}
    assert trained == {name for name, arm in reproduction.arms.items() if arm.objective}
    for cells in trainings:
        steps = cells[4].replace(",", "")
        assert steps.isdecimal()
        assert int(steps) > 10
        if paper != "namc":
            gpus, memory, disk = cells[6:9]
            assert (int(gpus) in (2, 8), float(memory) > 10, float(disk) > 5) == (True,) * 3


def test_wrong_options_are_refused(data, tmp_path, capsys):
    folder = data("adpo")
    with pytest.raises(ConfigError, match="adpp: no such paper; did you mean adpo"):
        Reproducer(ReproductionConfig(paper="adpp", data=folder, to=tmp_path)).steps()
    assert run("reproduce", "adpo", "--data", tmp_path / "none") == 2
    message = capsys.readouterr().err
    assert "no table can be made: Table 1: Image-Editing-Request: no folder" in message
    assert run("reproduce", "adpo", "--data", folder, "--arms", "dpp") == 2
    assert "--arms dpp: no such arm; did you mean dpo" in capsys.readouterr().err
    assert run("reproduce", "adpo", "--data", folder, "--scale", "huge") == 2
    assert "--scale huge: must be small or paper" in capsys.readouterr().err
