"""The retriever as the trainer meets it: answers in columns, refused texts, ranks without rows, its
alarms."""

import json
import logging

import numpy as np
import pytest
import torch
from safetensors import safe_open

from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.freeze_rows import RefusedRowError
from pairwright.tasks.training.losses import TEXTS
from pairwright.tasks.training.retriever.adversary import (
    FEWEST,
    NETWORK,
    PAGE,
    STATE,
    Watch,
    make_adversary,
)
from pairwright.tasks.training.retriever.candidate_pool import make_pool
from pairwright.tasks.training.retriever.material import Material
from pairwright.tasks.training.retriever.retriever import Proposal
from tests.fixtures.retrieving import entry, random_features

ROWS = [entry(n) for n in range(9)]
KEYS = [row.key for row in ROWS]


def tokenize(text):
    if text.endswith("7"):
        raise RefusedRowError("a control token in a text", "7")
    return tuple(text.encode()) * (1000 if text.endswith("5") else 1)


def made(rows=ROWS, *, features=True, max_length=200_000, **adpo):
    pool = make_pool(rows)
    material = Material(
        entries=tuple(rows),
        pool=pool,
        places={row.key: place for place, row in enumerate(rows)},
        features=random_features(rows, pool) if features else None,
    )
    settings = {"projection_dim": 8, "candidates": 8, "warmup_steps": 0, "samples": 3, **adpo}
    config = TrainConfig.model_validate(
        {"objective": "adpo", "adpo": settings, "model": {"max_length": max_length}}
    )
    return make_adversary(material, config, tokenize=tokenize, device=torch.device("cpu"))


def weights_of(adversary):
    return torch.cat(
        [weight.detach().flatten() for weight in adversary.retriever.encoder.network.parameters()]
    )


def rewards_for(answers, columns=3):
    """Reward what there is, as the policy's losses do: NaN where a column is empty."""
    rewards = torch.full((len(answers), columns), torch.nan)
    for row, own in enumerate(answers):
        for answer in own:
            rewards[row, answer.column - TEXTS] = 0.5 + 0.1 * row
    return rewards


def test_answers_are_the_proposed_texts_in_their_columns():
    adversary = made()
    twin = made()
    answers = adversary.propose(KEYS[:4])
    expected = twin.retriever.propose(np.arange(4)).texts
    for own, texts in zip(answers, expected, strict=True):
        wanted = [
            (TEXTS + place, tokenize(text))
            for place, text in enumerate(texts)
            if not text.endswith("7")
        ]
        assert [(answer.column, answer.ids) for answer in own] == wanted


def test_texts_that_the_model_cannot_be_given_get_no_reward():
    adversary = made(max_length=2000, samples=8)
    before = weights_of(adversary)
    answers = adversary.propose(KEYS)
    given = {bytes(answer.ids).decode() for own in answers for answer in own}
    assert given
    assert not {"text 5", "text 7"} & given
    proposed = adversary._proposed.texts
    assert {"text 5", "text 7"} & {text for texts in proposed for text in texts}
    adversary.learn(rewards_for(answers, 8), step=True)
    after = weights_of(adversary)
    assert torch.isfinite(after).all()
    assert not torch.equal(before, after)


def test_a_rank_without_rows_steps_with_the_others():
    adversary = made()
    adversary.skip(step=False)
    assert adversary.retriever.steps == 0
    adversary.skip(step=True)
    assert adversary.retriever.steps == 1


def test_the_warm_up_is_of_new_retrievers_only(tmp_path):
    adversary = made(warmup_steps=5)
    before = weights_of(adversary)
    answers = adversary.propose(KEYS[:2])
    warm = weights_of(adversary)
    assert not torch.equal(before, warm)
    adversary.learn(rewards_for(answers), step=True)
    adversary.save(tmp_path)
    other = made(warmup_steps=5)
    other.load(tmp_path)
    loaded = weights_of(other)
    assert torch.equal(loaded, weights_of(adversary))
    other.propose(KEYS[:2])
    assert torch.equal(weights_of(other), loaded)


def test_an_alarm_is_told_when_it_begins(caplog):
    adversary = made(temperature=0.001)  # so sharp that each pair gets one text
    with caplog.at_level(logging.WARNING):
        for _ in range(40):
            adversary.learn(rewards_for(adversary.propose(KEYS)), step=False)
    told = [record.message for record in caplog.records if "collapse" in record.message]
    assert len(told) == 1


def test_what_is_published_makes_the_network_again_and_tells_the_page(tmp_path):
    adversary = made()
    for _ in range(10):
        adversary.learn(rewards_for(adversary.propose(KEYS)), step=True)
    adversary.publish(tmp_path)
    with safe_open(tmp_path / NETWORK, framework="pt") as file:
        about = json.loads(file.metadata()["about"])
        weights = {
            name: file.get_tensor(name) for name in adversary.retriever.encoder.network.state_dict()
        }
    assert about | {"format": ""} == {
        "format": "",
        "encoder": "heads",
        "image_size": "6",
        "text_size": "5",
        "width": "8",
        "vectors": "random",
        "scale": "100.0",
        "tau": "2.0",
    }
    for name, weight in adversary.retriever.encoder.network.state_dict().items():
        assert torch.equal(weights[name], weight)
    page = json.loads((tmp_path / PAGE).read_text())
    assert (page["steps"], page["pool"]) == (10, 9)
    assert page["common"][0]["count"] >= page["common"][-1]["count"] > 0


@pytest.mark.parametrize(
    ("rows", "values", "what"),
    [
        ([entry(0), entry(1, "text 0!")], {}, r"\b1 .*texts.* --objective dpo"),
        ([entry(0, in_pool=False)], {}, r"\b0 .*texts.* --objective dpo"),
        (ROWS, {"features": False}, r"adpo\.encoder: heads: .*vectors"),
        (ROWS, {"encoder": "clip4idc"}, r"embedding\.clip"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(rows, values, what):
    with pytest.raises(ConfigError, match=what):
        made(rows, **values)


class Hostile:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize(
    "state", [b"", b"no file of torch's", {}, [1], {"retriever": Hostile(), "watch": 1}, None]
)
def test_a_state_that_is_none_is_refused_by_name(tmp_path, state, capsys):
    """Damaged, of something else, with a program in it, not there."""
    if isinstance(state, bytes):
        (tmp_path / STATE).write_bytes(state)
    elif state is not None:
        torch.save(state, tmp_path / STATE)
    with pytest.raises(ModelError, match=STATE):
        made().load(tmp_path)
    assert "run" not in capsys.readouterr().out


POOL = tuple(f"text {number}" for number in range(100))


def proposal(ids, *, share=0.7, places=None):
    ids = np.array(ids, dtype=np.int64).reshape(len(ids), -1)
    return Proposal(
        places=np.arange(len(ids)) if places is None else np.array(places),
        ids=ids,
        texts=(),
        log_q=torch.zeros(ids.shape),
        metrics={"retriever/entropy share": share},
    )


def watched(batches, *, texts=POOL, **values):
    watch = Watch(texts=texts, min_entropy=0.1)
    for number, ids in enumerate(batches):
        watch.see(proposal(ids, **{name: value(number) for name, value in values.items()}))
    return watch


def varied(number):
    return [(number * 16 + place) % 100 for place in range(16)]


def names(watch):
    return list(watch.alarms())


def test_a_retriever_that_works_is_left_alone():
    watch = watched([varied(n) for n in range(60)])
    assert names(watch) == []
    assert watch.metrics() == {"retriever/most common share": 10 / 960}


def test_collapse_is_a_low_entropy_that_stays():
    batches = [varied(n) for n in range(60)]
    assert names(watched(batches, share=lambda n: 0.09 if n >= 60 - FEWEST else 0.9)) == [
        "collapse"
    ]
    assert names(watched(batches, share=lambda n: 0.09 if n > 60 - FEWEST else 0.9)) == []
    assert names(watched(batches, share=lambda n: 0.5 if n == 50 else 0.0)) == []
    assert "6.0%" in watched(batches, share=lambda n: 0.06).alarms()["collapse"]


@pytest.mark.parametrize(("often", "expected"), [(3, []), (4, ["generic negatives"])])
def test_one_text_for_many_pairs_is_generic(often, expected):
    batches = [[7] * often + varied(n)[often:] for n in range(60)]
    watch = watched(batches)
    assert names(watch) == expected
    top = watch.common()[0]
    assert top["text"] == "text 7"
    assert top["pairs"] >= often
    assert watch.metrics()["retriever/most common share"] == top["count"] / 960
    if expected:
        assert "'text 7'" in watch.alarms()["generic negatives"]
