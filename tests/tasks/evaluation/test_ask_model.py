"""A served model's answers as replies."""

from pathlib import Path

from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.evaluation.ask_model import ask_served
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.answers import Answers
from tests.fixtures.chat_server import Reply, chat_server


def test_an_answer_that_was_cut_says_so(tmp_path: Path) -> None:
    questions = [(name, Question(prompt="test", text=name)) for name in ("short", "long")]
    with chat_server(
        lambda asked: Reply("Yes", "length" if asked.text == "long" else "stop")
    ) as server:
        model = ChatConfig(endpoint=(server.url,), model="tiny")
        for _ in range(2):  # the second time from what is kept
            with Answers(tmp_path / "answers") as answers:
                found = {reply.name: reply for reply in ask_served(questions, answers, model=model)}
            assert {name: (reply.text, reply.cut) for name, reply in found.items()} == {
                "short": ("Yes", False),
                "long": ("Yes", True),
            }
