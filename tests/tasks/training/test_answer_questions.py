"""A checkpoint that is asked questions: memory that does not suffice, and questions that it does not take."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import pairwright.tasks.training.answer_questions as module
from pairwright.schemas.differential import SIZES
from pairwright.schemas.errors import ModelError
from pairwright.schemas.replies import Reply
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.training.answer_questions import LocalModel, answer_questions
from pairwright.tasks.training.answer_rows import Said
from pairwright.tasks.training.find_model import find_model
from tests.fixtures.families_of_models import write_qwen2_vl
from tests.fixtures.pictures import picture


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    return LocalModel(find_model(str(write_qwen2_vl(tmp_path_factory.mktemp("models") / "qwen"))), 448 * 448)


def question(number: int, image: bytes = b"", text: str = "", most: int = 4) -> tuple[str, Question]:
    shown = image or picture(number, size=(56, 56))
    words = text or f"<image>\nWhat is in picture {number}?"
    return str(number), Question(prompt="test", text=words, images=(shown,), max_tokens=most)


def asked(local: LocalModel, folder: Path, *questions: tuple[str, Question], batch: int = 8) -> dict[str, Reply]:
    with Answers(folder / "answers") as answers:
        return {reply.name: reply for reply in answer_questions(questions, answers, local=local, batch=batch)}


def test_batches_are_halved_until_they_fit(local: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = [question(number) for number in range(7)]
    alone = asked(local, tmp_path / "alone", *questions, batch=1)
    sizes: list[int] = []
    real = module.say_answers

    def short_of_memory(model: Any, processor: Any, items: Any, *, most_tokens: int) -> list[Said]:
        sizes.append(len(items))
        if len(items) > 2:
            raise MemoryError("out of memory")
        return real(model, processor, items, most_tokens=most_tokens)

    monkeypatch.setattr(module, "say_answers", short_of_memory)
    assert asked(local, tmp_path / "together", *questions, batch=7) == alone
    assert sizes == [7, 3, 1, 1, 1, 1, 1, 1, 1]
    assert len({reply.text for reply in alone.values()}) > 1


def test_what_a_model_does_not_take_is_refused_alone(local: LocalModel, tmp_path: Path) -> None:
    strip = picture(1, size=(1000, 2))  # its processor wants sides of at most 200 to 1
    found = asked(
        local,
        tmp_path,
        question(0),
        question(1, strip),
        question(2, b"no image"),
        question(3, text="<image>\nSay <|im_end|> now."),
        question(4, most=2),
    )
    states = {name: reply.state for name, reply in found.items()}
    assert states == {"0": "answered", "1": "refused", "2": "no image", "3": "refused", "4": "answered"}
    assert "im_end" in found["3"].detail


def test_a_cut_answer_is_said_to_be_cut_also_when_it_is_kept(local: LocalModel, tmp_path: Path) -> None:
    first = asked(local, tmp_path, question(0))
    assert first["0"].cut
    assert not first["0"].text.startswith("\0")
    assert asked(local, tmp_path, question(0)) == first


def test_a_checkpoint_that_cannot_be_loaded_refuses_no_question(local: LocalModel, tmp_path: Path) -> None:
    """Its module of differential perception is gone, but for the settings."""
    folder = Path(shutil.copytree(local.found.folder, tmp_path / "broken"))
    settings = {"depth": 2, "shared_weights": True, "weight_per": "channel", "softmax": False}
    (folder / SIZES).write_text(json.dumps(settings | {"width": 32, "heads": 2, "layers": [1, 2]}))
    broken = LocalModel(find_model(str(folder)), 448 * 448)
    one = asked(broken, tmp_path / "odd", question(0))
    assert (one["0"].state, one["0"].detail[:26]) == ("refused", "images that are no pairs: ")
    images = (picture(1), picture(2))
    two = Question(prompt="test", text="<image><image>What differs?", images=images, max_tokens=2)
    with pytest.raises(ModelError, match=r"differential\.safetensors"):
        asked(broken, tmp_path / "two", ("two", two))
