"""Comparisons and questions against a real vLLM: its grammars take what is asked, and what ends can be read."""

import re
from collections import Counter

import pytest

from pairwright.schemas.config import ComparisonsConfig, QuestionsConfig
from pairwright.schemas.rows import ComparisonRow, QuestionRow
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.captioning.ask_questions import ask_questions
from pairwright.tasks.captioning.compare_pairs import compare_pairs, comparison_grammar
from tests.fixtures.coloured import caption_of, image_of, pair_of

pytestmark = pytest.mark.live
IMAGES = [image_of(colour, str(n)) for n in range(6) for colour in ("red", "blue")]
PAIRS = [pair_of(*IMAGES[n : n + 2]) for n in range(0, len(IMAGES), 2)]
TABLES = {"captions": {row.key: caption_of(row) for row in IMAGES}, "images": {row.key: row for row in IMAGES}}
SPOILT = {"cut off", "repeats itself", "declined", "speaks of captions", "empty question or answer"}
"""What a random model may do within the form."""


def chat_of(server):
    return ChatConfig(endpoint=(server.endpoint,), model=server.model, structured_output="vllm")


def in_form(rows):
    """Return the comparisons, all of which are in the form, as is what was dropped."""
    found = [row for row in rows if isinstance(row, ComparisonRow)]
    others = Counter(row.reason for row in rows if row not in found)
    assert set(others) <= SPOILT
    for row in found:
        assert re.fullmatch(comparison_grammar().regex, row.text)
        assert row.commonalities
        assert all(row.axes)
        assert row.served[-1].finish_reason == "stop"
    return found


def test_a_language_model_compares_captions_and_asks(mixtral_server):
    config = ComparisonsConfig(writer="served", chat=chat_of(mixtral_server))
    rows = in_form(list(compare_pairs(PAIRS, config, captions=TABLES["captions"])))
    config = QuestionsConfig(enabled=True, rounds=2, chat=chat_of(mixtral_server))
    assert rows
    pairs = {pair.key: pair for pair in PAIRS}
    asked = list(ask_questions(rows, config, pairs=pairs, captions=TABLES["captions"]))
    assert len(asked) == len(rows)
    for row in asked:  # random words are hardly ever a question, but they are read as rounds
        assert isinstance(row, QuestionRow) or row.reason in {*SPOILT, "not a question"}, row


def test_a_vision_model_compares_images(qwen_server):
    config = ComparisonsConfig(writer="served", input="images and captions", chat=chat_of(qwen_server))
    # This server decodes greedily, as the checkpoint's own settings have it: a random model may never come to an end.
    rows = list(compare_pairs(PAIRS, config, **TABLES))
    in_form(rows)
    assert len(rows) == len(PAIRS)
