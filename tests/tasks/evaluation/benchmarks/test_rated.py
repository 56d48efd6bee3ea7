"""Answers that a judge rates: each layout as it is published, from the model's question to the
judge's mean."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pairwright.flows.building.progress import show_steps
from pairwright.flows.training.evaluate_model import Evaluated, EvaluationConfig, evaluate_model
from pairwright.schemas.errors import ConfigError
from tests.fixtures.asking import config_of
from tests.fixtures.benchmarks import scores_of, write_folder
from tests.fixtures.chat_server import Asked, Fault, Status, chat_server

PREFIX = "Image 1: <image>\nImage 2: <image>\n"


def evaluate(
    folder: Path,
    name: str,
    model: Callable[[Asked], str | Fault],
    judge: Callable[[Asked, str], int | None],
) -> tuple[Evaluated, list[Asked]]:
    """Evaluate a scripted model; the judge gives a rating of what it is told, or ``None`` in other
    words."""

    def rate(asked: Asked) -> str:
        number = re.search(r'"number": "(\w+)"', asked.text)
        rating = judge(asked, asked.text.split("[end")[-2].splitlines()[1]) if number else None
        reason = ' "reason": "so",' if '"reason"' in asked.text else ""
        return (
            "no idea"
            if number is None or rating is None
            else f'{{"number": "{number[1]}",{reason} "rating": {rating}}}'
        )

    with chat_server(model) as served, chat_server(rate) as judging:
        quick = {"structured_output": "none", "max_attempts": 1}
        wanted = EvaluationConfig(
            model="tiny",
            benchmark=name,
            data=folder,
            to=folder / "scores.json",
            server=config_of(served, **quick),
            judge=config_of(judging, **quick),
        )
        return evaluate_model(wanted, watch=show_steps), judging.asked


def test_cad_qa(tmp_path: Path) -> None:
    questions = [
        "What is in Image 1?",
        "What differs between the two images?",
        "Is Image 2 dark?",
        "Do they match?",
    ]
    lines = [
        {
            "image": ["VG/1.jpg", "VG/2.jpg"],
            "text": PREFIX + one,
            "answer": f"right {n}",
            "question_id": f"{n}_9",
        }
        for n, one in enumerate(questions)
    ]
    folder = write_folder(
        tmp_path, images=["VG/1.jpg", "VG/2.jpg"], files={}, lines={"CaD_QA_eval.jsonl": lines}
    )
    ratings = {questions[0]: 5, questions[1]: 2, questions[2]: None, questions[3]: 0}
    found, judging = evaluate(
        folder,
        "cad-qa",
        lambda asked: "right 2" if "dark" in asked.text else "Right 0",
        lambda asked, _: rating_of(ratings, asked),
    )
    name = "rating (0 to 5)"
    expected = {
        ("", name): pytest.approx(7 / 3, abs=1e-4),
        ("", "accuracy (exact)"): 0.25,
    }
    assert scores_of(found.to) == expected
    assert (
        found.results.counts["unjudged"],
        found.results.counts["not_read"],
        found.results.pending,
    ) == (1, 0, 0)
    assert any("right 2" in asked.text and "Is Image 2 dark?" in asked.text for asked in judging)


def rating_of(ratings: Mapping[str, int | None], asked: Asked) -> int | None:
    return next(rating for question, rating in ratings.items() if question in asked.text)


def test_omnidiff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no Java, which would take seconds
    lines = [
        {
            "id": 1,
            "image1": "a.png",
            "image2": "b.png",
            "caption": "The cup is gone.",
            "source": "real",
        },
        {
            "id": 2,
            "image1": "a.png",
            "image2": "b.png",
            "captions": ["A ball came.", "It is red."],
            "source": "drawn",
        },
        {"id": 3, "image1": "a.png", "image2": "b.png", "source": "drawn"},
    ]
    folder = write_folder(
        tmp_path, images=["a.png", "b.png"], files={}, lines={"test.jsonl": lines}
    )
    found, judging = evaluate(
        folder,
        "omnidiff",
        lambda _: "The cup is gone.",
        lambda asked, _: 40 if "A ball came. It is red." in asked.text else 65,
    )
    name = "score (0 to 100)"
    scores = scores_of(found.to)
    assert {key: value for key, value in scores.items() if name in key} == {
        ("", name): 52.5, ("real", name): 65, ("drawn", name): 40,
    }  # fmt: skip
    rouge = (
        2.44 * (1 / 4 * 1 / 3) / (1 / 3 + 1.44 * 1 / 4)
    )  # "is" is one of four words, and of three
    assert (scores["real", "BLEU-4"], scores["drawn", "BLEU-1"]) == (1, 0.25)
    assert scores["", "ROUGE-L"] == pytest.approx((1 + rouge) / 2, abs=1e-4)
    assert (
        "(3) Score from 0 to 100, where each aspect contributes equally to the score."
        in judging[-1].text
    )


def test_mmhal_by_its_own_rules(tmp_path: Path) -> None:
    kinds = ["counting", "counting", "adversarial", "other", "other"]
    same = {
        "question_topic": "food",
        "image_content": ["Lynx", "Cat"],
        "gt_answer": "Two.",
        "model_answer": "",
    }
    rows = [
        {
            "question_type": kind,
            "image_id": f"{n:04d}",
            "image_src": f"https://x.org/{n}_o.jpg",
            **same,
        }
        | {"question": f"How many? {n}"}
        for n, kind in enumerate(kinds)
    ]
    images = ["0000.jpg", "1_o.jpg", "0002.jpg", "0003.jpg"]  # the last one is missing
    folder = write_folder(tmp_path, images=images, files={"response_template.json": rows})
    ratings = dict(zip([f"How many? {number}" for number in range(3)], (6, 4, 2), strict=True))
    found, judging = evaluate(
        folder,
        "mmhal",
        lambda asked: Status(400, "too long") if "3" in asked.text else "Two cats.",
        lambda asked, _: rating_of(ratings, asked),
    )
    assert scores_of(found.to) == {
        ("", "rating (0 to 6)"): 3,  # the refused question counts 0
        ("", "hallucination rate"): 0.5,
        ("", "informativeness"): pytest.approx((1 + 1 / 3 + 2 / 3 + 0) / 4, abs=1e-4),
        ("adversarial", "rating (0 to 6)"): 2,
        ("counting", "rating (0 to 6)"): 5,
        ("other", "rating (0 to 6)"): 0,
    }
    assert (found.results.counts["refused"], found.results.counts["without_image"]) == (1, 1)
    assert "Lynx, Cat" in judging[-1].text


def test_a_judge_is_needed(tmp_path: Path) -> None:
    wanted = EvaluationConfig(model="tiny", benchmark="mmhal", data=tmp_path)
    with pytest.raises(ConfigError, match="--judge URL"):
        evaluate_model(wanted, watch=show_steps)


def test_perturbed_questions_are_other_questions(tmp_path: Path) -> None:
    statement = 'Is the statement "Two dogs sleep here" True or False?'
    lines = [{"image": ["a.png", "b.png"], "text": statement, "answer": "True", "question_id": 0}]
    folder = write_folder(
        tmp_path, images=["a.png", "b.png"], files={}, lines={"NLVR2.jsonl": lines}
    )
    with chat_server(lambda _: "True") as server:
        wanted = EvaluationConfig(
            model="tiny",
            benchmark="nlvr2",
            data=folder,
            to=folder / "scores.json",
            server=config_of(server, structured_output="none"),
        )
        for perturb in ("", "noise:5", "fog:5", "words:0.5", "words:0.5"):
            evaluate_model(replace(wanted, perturb=perturb), watch=show_steps)
        plain, noise, fog, words = [asked for asked in server.asked if "statement" in asked.text]
    assert plain.images != noise.images != fog.images
    assert plain.text == noise.text == fog.text
    assert words.images == plain.images
    old, new = (re.findall(r'"(.*)" True or', asked.text)[0].split() for asked in (plain, words))
    assert sum(one != other for one, other in zip(old, new, strict=True)) == 2
    assert json.loads((folder / "scores.json").read_text())["perturbed"] == "words:0.5"
    with pytest.raises(ConfigError, match=r"--perturb noise:6: .*noise:1 to noise:5"):
        evaluate_model(replace(wanted, perturb="noise:6"), watch=show_steps)
