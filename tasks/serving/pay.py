"""Pay for a question out of the build's budget: what it may cost is set aside before it is asked."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from pairwright.schemas.errors import BudgetError
from pairwright.schemas.rows import Served
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.purse import Purse

LOOK_SECONDS = 0.05
FRAME_TOKENS = 64
"""For what a chat template puts around a turn."""
PIXELS_PER_TOKEN = 784
"""Of Qwen2-VL: 28 x 28 pixels are a token. What a model counts beyond that is seen when it has answered."""
Paid = Callable[[Served], None]


@asynccontextmanager
async def paying(purse: Purse | None, question: Question, config: ChatConfig) -> AsyncGenerator[Paid]:
    """Set aside what a question may cost, and settle it by what its answer did cost; nothing where there is none.

    While something of this process is set aside there may yet be enough: it waits until that is settled.

    Raises:
        BudgetError: there is not enough left.
    """
    if purse is None:
        yield lambda _: None
        return
    most = most_tokens(question, config)
    while not purse.take(most):
        if not purse.has_open:
            raise BudgetError(_message(purse))
        await asyncio.sleep(LOOK_SECONDS)
    cost: list[int] = []
    try:
        yield lambda served: cost.append(served.prompt_tokens + served.completion_tokens)
    finally:
        purse.settle(most, cost[0] if cost else None)


def most_tokens(question: Question, config: ChatConfig) -> int:
    """Return a bound of a question's tokens and its answer's: a token is a byte of text or more."""
    words = [question.text, *(turn.text for turn in question.before)]
    text = sum(len(text.encode()) + FRAME_TOKENS for text in words)
    images = len(question.images) * (config.max_pixels // PIXELS_PER_TOKEN + FRAME_TOKENS)
    return text + images + question.max_tokens


def _message(purse: Purse) -> str:
    calls, tokens = purse.spent
    if purse.calls and calls >= purse.calls:
        return f"run.budget.max_calls: all {purse.calls:,} are used"
    return (
        f"run.budget.max_tokens: of {purse.tokens:,}, {tokens:,} are used, and the next question may need what is left"
    )
