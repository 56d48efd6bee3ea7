"""Answers that a judge rates: each layout as it is published, from the model's question to the
judge's mean."""

import json
import re
from dataclasses import replace

import pytest

from pairwright.flows.building.progress import show_steps
from pairwright.flows.training.evaluate_model import EvaluationConfig, evaluate_model
from pairwright.schemas.errors import ConfigError
from tests.fixtures.asking import config_of
from tests.fixtures.benchmarks import scores_of, write_folder
from tests.fixtures.chat_server import Status, chat_server

PREFIX = "Image 1: <image>\nImage 2: <image>\n"
QUICK = {"structured_output": "none", "max_attempts": 1}


@pytest.fixture
def evaluate(tmp_path):
    """Give what evaluates a scripted model; a judge rates what it is shown by the first words that
    it knows, ``None``: in other words."""

    def evaluate(name, images, answer, ratings, **content):
        folder = write_folder(tmp_path, images=images, **{"files": {}, **content})

        def rate(request):
            number = re.search(r'"number": "(\w+)"', request.text)
            rating = next(
                (rating for words, rating in ratings.items() if words in request.text), None
            )
            if number is None or rating is None:
                return "no idea"
            reason = ' "reason": "so",' if '"reason"' in request.text else ""
            return f'{{"number": "{number[1]}",{reason} "rating": {rating}}}'

        with chat_server(answer) as served, chat_server(rate) as judging:
            config = EvaluationConfig(
                model="tiny",
                benchmark=name,
                data=folder,
                to=folder / "scores.json",
                server=config_of(served, **QUICK),
                judge=config_of(judging, **QUICK),
            )
            evaluated = evaluate_model(config, watch=show_steps)
            return evaluated.results, scores_of(evaluated.to), judging.asked

    return evaluate


def test_cad_qa(evaluate):
    ratings = {
        "What is in Image 1?": 5,
        "What differs between the two images?": 2,
        "Is Image 2 dark?": None,
        "Do they match?": 0,
    }
    images = ["VG/1.jpg", "VG/2.jpg"]
    lines = [
        {"image": images, "text": PREFIX + text, "answer": f"right {n}", "question_id": f"{n}_9"}
        for n, text in enumerate(ratings)
    ]
    results, scores, judging = evaluate(
        *("cad-qa", images),
        lambda request: "right 2" if "dark" in request.text else "Right 0",
        ratings,
        lines={"CaD_QA_eval.jsonl": lines},
    )
    mean = pytest.approx(7 / 3, abs=1e-4)
    assert scores == {("", "rating (0 to 5)"): mean, ("", "accuracy (exact)"): 0.25}
    assert (results.counts["unjudged"], results.counts["not_read"], results.pending) == (1, 0, 0)
    about = [request.text for request in judging if "Is Image 2 dark?" in request.text]
    assert any("right 2" in text for text in about)


def test_omnidiff(evaluate, monkeypatch):
    monkeypatch.setenv("PATH", "")  # no Java, which would take seconds
    pair = {"image1": "a.png", "image2": "b.png"}
    lines = [
        {"id": 1, **pair, "caption": "The cup is gone.", "source": "real"},
        {"id": 2, **pair, "captions": ["A ball came.", "It is red."], "source": "drawn"},
        {"id": 3, **pair, "source": "drawn"},
    ]
    _, scores, judging = evaluate(
        *("omnidiff", ["a.png", "b.png"]),
        lambda _: "The cup is gone.",
        {"A ball came. It is red.": 40, "": 65},
        lines={"test.jsonl": lines},
    )
    ratings = {of: value for (of, name), value in scores.items() if name == "score (0 to 100)"}
    assert ratings == {"": 52.5, "real": 65, "drawn": 40}
    # "is" is one of four words, and of three
    rouge = 2.44 * (1 / 4 * 1 / 3) / (1 / 3 + 1.44 * 1 / 4)
    assert (scores["real", "BLEU-4"], scores["drawn", "BLEU-1"]) == (1, 0.25)
    assert scores["", "ROUGE-L"] == pytest.approx((1 + rouge) / 2, abs=1e-4)
    rubric = "(3) Score from 0 to 100, where each aspect contributes equally to the score."
    assert rubric in judging[-1].text


def test_mmhal_by_its_own_rules(evaluate):
    """The refused question counts 0; the last one has no image."""
    same = {"question_topic": "food", "image_content": ["Lynx", "Cat"], "gt_answer": "Two."}
    rows = [
        {
            **same,
            "model_answer": "",
            "question": f"How many? {n}",
            "question_type": kind,
            "image_id": f"{n:04d}",
            "image_src": f"https://x.org/{n}_o.jpg",
        }
        for n, kind in enumerate(["counting", "counting", "adversarial", "other", "other"])
    ]
    results, scores, judging = evaluate(
        *("mmhal", ["0000.jpg", "1_o.jpg", "0002.jpg", "0003.jpg"]),
        lambda request: Status(400, "too long") if "3" in request.text else "Two cats.",
        {f"How many? {number}": rating for number, rating in enumerate((6, 4, 2))},
        files={"response_template.json": rows},
    )
    rating = "rating (0 to 6)"
    assert scores == {
        ("", rating): 3,
        ("", "hallucination rate"): 0.5,
        ("", "informativeness"): pytest.approx((1 + 1 / 3 + 2 / 3 + 0) / 4, abs=1e-4),
        ("adversarial", rating): 2,
        ("counting", rating): 5,
        ("other", rating): 0,
    }
    assert (results.counts["refused"], results.counts["without_image"]) == (1, 1)
    assert "Lynx, Cat" in judging[-1].text


def test_a_judge_is_needed(tmp_path):
    config = EvaluationConfig(model="tiny", benchmark="mmhal", data=tmp_path)
    with pytest.raises(ConfigError, match="--judge URL"):
        evaluate_model(config, watch=show_steps)


def test_perturbed_questions_are_other_questions(tmp_path):
    text = 'Is the statement "Two dogs sleep here" True or False?'
    lines = [{"image": ["a.png", "b.png"], "text": text, "answer": "True", "question_id": 0}]
    folder = write_folder(
        tmp_path, images=["a.png", "b.png"], files={}, lines={"NLVR2.jsonl": lines}
    )
    with chat_server(lambda _: "True") as server:
        how = {"server": config_of(server, structured_output="none"), "to": folder / "scores.json"}
        config = EvaluationConfig(model="tiny", benchmark="nlvr2", data=folder, **how)
        for perturb in ("", "noise:5", "fog:5", "words:0.5", "words:0.5"):
            evaluate_model(replace(config, perturb=perturb), watch=show_steps)
        requests = [request for request in server.asked if "statement" in request.text]
    plain, noise, fog, words = requests
    assert plain.images != noise.images != fog.images
    assert plain.text == noise.text == fog.text
    assert words.images == plain.images
    before, after = (
        re.findall(r'"(.*)" True or', request.text)[0].split() for request in (plain, words)
    )
    assert sum(word != other for word, other in zip(before, after, strict=True)) == 2
    assert json.loads((folder / "scores.json").read_text())["perturbed"] == "words:0.5"
    with pytest.raises(ConfigError, match=r"--perturb noise:6: .*noise:1 to noise:5"):
        evaluate_model(replace(config, perturb="noise:6"), watch=show_steps)
