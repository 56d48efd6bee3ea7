"""Alarms sound when they must, and only then; a reloaded watch goes on alike."""

import json

import numpy as np
import pytest
import torch

from pairwright.tasks.training.retriever.adversary import FEWEST, LEAST, Watch
from pairwright.tasks.training.retriever.material import TRUE, UNKNOWN, WRONG
from pairwright.tasks.training.retriever.pool import NONE
from pairwright.tasks.training.retriever.retriever import Proposal

TEXTS = tuple(f"text {number}" for number in range(100))


class Verdicts:
    """Say of text 0 that it is true, of texts from 50 on nothing, of the others that they are wrong."""

    def of(self, places, ids):
        return np.select([ids == 0, (ids >= 50) | (ids == NONE)], [TRUE, UNKNOWN], WRONG).astype(np.int8)


def proposal(ids, *, share=0.7, places=None):
    ids = np.array(ids, dtype=np.int64).reshape(len(ids), -1)
    return Proposal(
        places=np.arange(len(ids)) if places is None else np.array(places),
        ids=ids,
        texts=(),
        log_q=torch.zeros(ids.shape),
        metrics={"retriever/entropy share": share},
    )


def watched(batches, *, texts=TEXTS, truth=None, **values):
    watch = Watch(texts=texts, min_entropy=0.1, truth=truth)
    for number, ids in enumerate(batches):
        watch.see(proposal(ids, **{name: value(number) for name, value in values.items()}))
    return watch


def varied(number):
    return [(number * 16 + place) % 100 for place in range(16)]


def names(watch):
    return list(watch.alarms())


def test_a_retriever_that_works_is_left_alone():
    watch = watched([varied(n) for n in range(60)], truth=Verdicts())
    assert names(watch) == []
    assert watch.metrics() == {"retriever/most common share": 10 / 960, "retriever/true share": 10 / (10 + 490)}


def test_little_seen_is_no_ground_for_an_alarm():
    batches = [[0] * 16] * (LEAST // 16 - 1)
    assert names(watched(batches, share=lambda n: 0.0, truth=Verdicts())) == []
    few = [[0] * 100] * (FEWEST - 1)
    assert names(watched(few, share=lambda n: 0.0, truth=Verdicts())) == []


def test_collapse_is_a_low_entropy_that_stays():
    batches = [varied(n) for n in range(60)]
    assert names(watched(batches, share=lambda n: 0.09 if n >= 60 - FEWEST else 0.9)) == ["collapse"]
    assert names(watched(batches, share=lambda n: 0.09 if n > 60 - FEWEST else 0.9)) == []
    assert names(watched(batches, share=lambda n: 0.5 if n == 50 else 0.0)) == []
    assert "6.0%" in watched(batches, share=lambda n: 0.06).alarms()["collapse"]


@pytest.mark.parametrize(("often", "expected"), [(3, []), (4, ["generic negatives"])])
def test_one_text_for_many_pairs_is_generic(often, expected):
    batches = [[7] * often + varied(n)[often:] for n in range(60)]
    watch = watched(batches)
    assert names(watch) == expected
    top = watch.common()[0]
    assert top.text == "text 7"
    assert top.pairs >= often
    assert watch.metrics()["retriever/most common share"] == top.count / 960
    if expected:
        assert "'text 7'" in watch.alarms()["generic negatives"]


@pytest.mark.parametrize(("true", "expected"), [(1, []), (2, ["true negatives"])])
def test_true_negatives_are_counted_among_the_known(true, expected):
    """Of 16 negatives 12 are known: 1 of 12 is 8 %, 2 are 17 %."""
    batches = [[0] * true + [1 + (n + m) % 49 for m in range(12 - true)] + [60, 70, 80, 90] for n in range(60)]
    watch = watched(batches, truth=Verdicts())
    assert names(watch) == expected
    assert watch.metrics()["retriever/true share"] == pytest.approx(true / 12)


def test_a_reloaded_watch_goes_on_alike():
    watch = watched([[7] * 4 + varied(n)[4:] for n in range(30)], truth=Verdicts())
    other = Watch(texts=TEXTS, min_entropy=0.1, truth=Verdicts())
    other.load_state_dict(json.loads(json.dumps(watch.state_dict())))
    for one in (watch, other):
        one.see(proposal([7] * 16, share=0.3))
    assert watch.metrics() == other.metrics()
    assert watch.alarms() == other.alarms()
    assert watch.state_dict() == other.state_dict()
