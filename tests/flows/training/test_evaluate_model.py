"""A model on a benchmark: on this machine, behind a server, stopped and gone on with, with files
that are wrong."""

import json
import re
import warnings

import pytest

from pairwright.flows.building.progress import show_steps
from pairwright.flows.training.evaluate_model import EvaluationConfig, evaluate_model
from pairwright.prompts import load_prompt
from pairwright.schemas.errors import ServerError
from pairwright.tasks.evaluation.benchmark import SHORT
from tests.fixtures.asking import config_of
from tests.fixtures.benchmarks import counts_of, evaluate, rows_of, scores_of, write_folder
from tests.fixtures.chat_server import Status, chat_server

PAIRS = 4


@pytest.fixture
def cola(tmp_path):
    images = [f"{number}{side}.png" for number in range(PAIRS) for side in "ab"]
    rows = [
        [f"http://x/{n}a.png", f"red {n}", f"http://x/{n}b.png?big", f"blue {n}"]
        for n in range(PAIRS)
    ]
    files = {"COLA_multiobjects_matching_benchmark.json": rows}
    return write_folder(tmp_path / "cola", images=images, files=files)


@pytest.fixture
def to(tmp_path):
    return tmp_path / "scores.json"


def answers_of(to):
    return {name: row["answer"] for name, row in rows_of(to).items()}


def test_a_checkpoint_is_asked_once_for_each_question(qwen, cola, tmp_path, to, capsys):
    """A model that adapters alone were trained of; without them it answers otherwise."""
    stored, adapters = to.with_suffix(".answers"), write_adapters(qwen, tmp_path / "adapters")
    command = ("--benchmark", "cola", "--data", cola, "--to", to)
    assert evaluate(adapters, *command, "--limit", 1, "--batch", 3) == 0
    counts = {"items": 1, "scored_items": 1, "questions": 2, "answered": 2, "not_read": 2}
    assert counts_of(to) == counts
    first, size = answers_of(to), stored.stat().st_size
    assert evaluate(adapters, *command) == 0
    answers, grown = answers_of(to), stored.stat().st_size
    assert len(answers) == 2 * PAIRS
    assert first.items() <= answers.items()
    assert evaluate(adapters, *command) == 0
    assert stored.stat().st_size == grown > size
    assert scores_of(to) == {("", "image"): 0, ("", "image (exact)"): 0}
    assert "8 answers" in capsys.readouterr().out.replace("\n", " ")
    assert evaluate(qwen, *command, "--limit", 1) == 0
    assert answers_of(to) != first


def write_adapters(model, folder):
    """Write adapters of a model that change what it says."""
    import peft
    import torch
    from transformers import AutoModelForImageTextToText

    base = AutoModelForImageTextToText.from_pretrained(model)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "o_proj"])
    with warnings.catch_warnings():  # this peft asks transformers by a name that is to go
        warnings.simplefilter("ignore", FutureWarning)
        tuned = peft.get_peft_model(base, config)
    for name, parameter in tuned.named_parameters():
        if "lora_" in name:
            generator = torch.Generator().manual_seed(len(name))
            torch.nn.init.normal_(parameter, generator=generator)
    tuned.save_pretrained(str(folder))
    about = json.loads((folder / "adapter_config.json").read_text())
    about["base_model_name_or_path"] = str(model)
    (folder / "adapter_config.json").write_text(json.dumps(about))
    return folder


def answerer(folder):
    """Return who answers: right of pairs 0 to 2, in words that are no option of pair 3."""
    names = {path.read_bytes(): path.stem for path in (folder / "images").iterdir()}

    def answer(asked):
        if "suits" not in asked.text:  # whoever asks finds out first what the model sees
            return "a square"
        if {names[image] for image in asked.images} == {"3a", "3b"}:
            return "The first one, A."
        return "A" if '"red' in asked.text else "(B)"  # which is read, and is not B

    return answer


def test_a_served_model_is_scored_by_hand(cola, to):
    with chat_server(answerer(cola)) as server:
        benchmark = ("--benchmark", "cola", "--data", cola, "--to", to)
        command = ("tiny", "--server", server.url, *benchmark)
        assert evaluate(*command) == 0
        asked = len(server.asked)
        assert scores_of(to) == {("", "image"): 0.75, ("", "image (exact)"): 0}
        counts = {"items": PAIRS, "scored_items": PAIRS, "questions": 8, "answered": 8}
        assert counts_of(to) == {**counts, "not_read": 2}
        score = json.loads(to.read_text())["scores"][0]
        assert 0.25 <= score["low"] < 0.75 < score["high"] == 1
        assert evaluate(*command) == 0
        probes = 3  # which model there is, whether it sees two images, and what holds it to a form
        assert len(server.asked) <= asked + probes


def test_a_benchmark_is_asked_with_other_words(cola, to, tmp_path, capsys):
    """Scores say which prompts were replaced; a text that is ours to the letter is none."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "describe_image.j2").write_text(load_prompt("describe_image").text)
    (folder / "choose_image.j2").write_text("Which suits {{ capture }}?")
    with chat_server(answerer(cola)) as server:
        benchmark = ("--benchmark", "cola", "--data", cola, "--to", to)
        command = ("tiny", "--server", server.url, *benchmark, "--prompts", folder)
        assert evaluate(*command) == 2
        assert "choose_image.j2:1: unknown variable 'capture'" in capsys.readouterr().err
        (folder / "choose_image.j2").write_text('Which suits "{{ caption }}", A or B?')
        assert evaluate(*command) == 0
        texts = {asked.text for asked in server.asked}
    assert any(text.endswith('Which suits "red 0", A or B?') for text in texts)
    assert list(json.loads(to.read_text())["prompts"]) == ["choose_image"]
    assert "prompts that are not the benchmark's: choose_image" in capsys.readouterr().out


def test_what_was_answered_is_not_asked_again(cola, to):
    def questions(asked):
        return {(each.text, each.images) for each in asked if each.body["max_tokens"] == SHORT}

    answer = answerer(cola)
    patience = {"patience_seconds": 0.2, "max_attempts": 2, "max_concurrency": 1}
    with chat_server(lambda asked: Status(503) if asked.number > 5 else answer(asked)) as server:
        config = EvaluationConfig(
            model="tiny",
            benchmark="cola",
            data=cola,
            to=to,
            server=config_of(server, structured_output="none", **patience),
        )
        with pytest.raises(ServerError):
            evaluate_model(config, watch=show_steps)
        assert not to.exists()
        start, server.answer = len(server.asked), answer
        evaluated = evaluate_model(config, watch=show_steps)
        answered, asked = questions(server.asked[:5]), questions(server.asked[start:])
    assert len(answered) >= 2
    assert answered.isdisjoint(asked)
    assert evaluated.results.counts["answered"] == 2 * PAIRS


def test_items_without_an_image_are_left_out(qwen, cola, to):
    (cola / "images/1a.png").unlink()
    (cola / "images/2b.png").write_bytes(b"no image")
    assert evaluate(qwen, "-b", "cola", "--data", cola, "--to", to) == 0
    counts = {"items": PAIRS, "scored_items": 2, "questions": 8, "answered": 4}
    assert counts_of(to) == {**counts, "not_read": 4, "without_image": 4}
    details = {row["detail"] for row in rows_of(to).values() if row["state"] == "no image"}
    assert any("1a.png" in detail for detail in details)


@pytest.mark.parametrize(("words", "code"), [([], 0), (["tiny", "-b", "colas"], 2)])
def test_the_benchmarks_are_listed(words, code, capsys):
    assert evaluate(*words) == code
    assert re.search(r"\bcola\b", "".join(capsys.readouterr()))


def judge(asked):
    number = re.search(r'"number": "(\w+)"', asked.text)
    return json.dumps({"number": number[1], "reason": "", "rating": 70}) if number else "a square"


def test_a_profile_names_the_judge(tmp_path, to, monkeypatch):
    monkeypatch.setenv("PATH", "")  # no Java, which would take seconds
    images = ("a.png", "b.png")
    line = {"id": 1, "image1": "a.png", "image2": "b.png", "caption": "The cup is gone."}
    folder = write_folder(tmp_path / "data", images=images, files={}, lines={"test.jsonl": [line]})
    profile = tmp_path / "judged.yaml"
    with chat_server(lambda _: "No cup.") as server, chat_server(judge) as judging:
        profile.write_text(f"models: {{judge: {{endpoint: '{judging.url}', model: tiny}}}}\n")
        command = ("tiny", "--server", server.url, "-b", "omnidiff", "--data", folder, "--to", to)
        assert evaluate(*command, "--judge", profile) == 0
        assert scores_of(to)["", "score (0 to 100)"] == 70
        assert evaluate(*command, "--judge", judging.url, "--judge-model", "large") == 2
        assert json.loads(to.read_text())["judge"] == "tiny"
        assert evaluate(*command) == 0
    assert json.loads(to.read_text())["judge"] == ""
    assert "score (0 to 100)" not in {name for _, name in scores_of(to)}
