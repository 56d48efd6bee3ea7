"""Questions are paid for out of the build's budget: none is asked that could pass it."""

from pathlib import Path

import pytest

from pairwright.schemas.errors import BudgetError
from pairwright.schemas.rows import Turn
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.serving.pay import most_tokens
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.purse import Purse
from tests.fixtures.asking import asked, config_of, items, question, texts
from tests.fixtures.chat_server import Status, chat_server

COST = 10
"""What the scripted server says that an answer cost: 7 tokens of the prompt, 3 of the answer."""


def test_no_call_is_made_beyond_the_budget_and_answers_are_kept(tmp_path: Path) -> None:
    purse = Purse(str(tmp_path / "purse"), calls=7)
    with chat_server(lambda _: "good") as server, Answers(tmp_path / "x.answers", purse) as answers:
        with pytest.raises(BudgetError, match=r"run.budget.max_calls: all 7 are used"):
            list(asked(items(20), config_of(server), answers=answers))
        assert len(server.asked) == len(answers) == 7
    assert purse.spent == (7, 7 * COST)
    more = Purse(str(tmp_path / "more"))
    with chat_server(lambda _: "good") as server, Answers(tmp_path / "x.answers", more) as answers:
        assert len(texts(list(asked(items(20), config_of(server), answers=answers)))) == 20
        assert len(server.asked) == 13, "what was answered is not asked again"


def test_tokens_are_set_aside_before_a_question_is_asked(tmp_path: Path) -> None:
    most = most_tokens(question("0"), ChatConfig())
    purse = Purse(str(tmp_path / "purse"), tokens=most + 5 * COST)
    with chat_server(lambda _: "good") as server, Answers(tmp_path / "x.answers", purse) as answers:
        with pytest.raises(BudgetError, match=r"run.budget.max_tokens: of \d+, 60 are used"):
            list(asked(items(9), config_of(server), answers=answers))
        # The sixth question is asked while 5 x 10 are paid, the seventh would need more than the rest.
        assert len(server.asked) == 6
    assert purse.spent == (6, 6 * COST)


def test_a_question_that_is_refused_costs_nothing(tmp_path: Path) -> None:
    purse = Purse(str(tmp_path / "purse"), calls=3)
    with (
        chat_server(lambda one: Status(400) if one.text in "56789" else "good") as server,
        Answers(tmp_path / "x.answers", purse) as answers,
    ):
        results = list(asked([item for item in items(10) if item.name in "0567"], config_of(server), answers=answers))
    assert len(results) == 4
    assert purse.spent == (1, COST)


def test_the_bound_counts_bytes_turns_images_and_the_answer() -> None:
    config = ChatConfig(max_pixels=7840)
    asked_for = question("zwölf", max_tokens=100, images=(b"", b""), before=(Turn(role="user", text="one"),))
    assert most_tokens(asked_for, config) == (6 + 64) + (3 + 64) + 2 * (10 + 64) + 100
