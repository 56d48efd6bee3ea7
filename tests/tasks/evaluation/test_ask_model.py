"""A served model's answers as replies."""

from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.evaluation.ask_model import ask_served
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.answers import Answers
from tests.fixtures.chat_server import Reply, chat_server


def test_an_answer_that_was_cut_says_so_also_from_memory(tmp_path):
    questions = [(name, Question(prompt="test", text=name)) for name in ("stop", "length")]
    with chat_server(lambda request: Reply("Yes", finish_reason=request.text)) as server:
        model = ChatConfig(endpoint=(server.url,), model="tiny")
        for _ in range(2):
            with Answers(tmp_path / "answers") as answers:
                replies = list(ask_served(questions, answers, model=model))
            cuts = sorted((reply.name, reply.text, reply.cut) for reply in replies)
            assert cuts == [("length", "Yes", True), ("stop", "Yes", False)]
        assert len(server.asked) == 2
