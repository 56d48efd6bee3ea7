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
from tests.fixtures.retrieving import entry, random_features, weights_of

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
        places={row.key: position for position, row in enumerate(rows)},
        features=random_features(rows, pool) if features else None,
    )
    settings = {"projection_dim": 8, "candidates": 8, "warmup_steps": 0, "samples": 3, **adpo}
    config = TrainConfig.model_validate(
        {"objective": "adpo", "adpo": settings, "model": {"max_length": max_length}}
    )
    return make_adversary(material, config, tokenize=tokenize, device=torch.device("cpu"))


def rewards_for(answers, columns=3):
    """Reward what there is, as the policy's losses do: NaN where a column is empty."""
    rewards = torch.full((len(answers), columns), torch.nan)
    for row, own in enumerate(answers):
        for answer in own:
            rewards[row, answer.column - TEXTS] = 0.5 + 0.1 * row
    return rewards


def test_answers_are_the_proposed_texts_in_their_columns():
    adversary, twin = made(), made()
    proposed = twin.retriever.propose(np.arange(4)).texts
    for answers, texts in zip(adversary.propose(KEYS[:4]), proposed, strict=True):
        columns = {TEXTS + n: tokenize(text) for n, text in enumerate(texts) if text != "text 7"}
        assert {answer.column: answer.ids for answer in answers} == columns


def test_texts_that_the_model_cannot_be_given_get_no_reward():
    adversary = made(max_length=2000, samples=8)
    before = weights_of(adversary.retriever)
    answers = adversary.propose(KEYS)
    texts = {bytes(answer.ids).decode() for own in answers for answer in own}
    assert texts
    assert texts.isdisjoint({"text 5", "text 7"})
    proposed = {text for own in adversary._proposed.texts for text in own}
    assert {"text 5", "text 7"} & proposed
    adversary.learn(rewards_for(answers, 8), step=True)
    after = weights_of(adversary.retriever)
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
    before = weights_of(adversary.retriever)
    answers = adversary.propose(KEYS[:2])
    assert not torch.equal(before, weights_of(adversary.retriever))
    adversary.learn(rewards_for(answers), step=True)
    adversary.save_state(tmp_path)
    other = made(warmup_steps=5)
    other.restore_state(tmp_path)
    loaded = weights_of(other.retriever)
    assert torch.equal(loaded, weights_of(adversary.retriever))
    other.propose(KEYS[:2])
    assert torch.equal(weights_of(other.retriever), loaded)


def test_an_alarm_is_told_when_it_begins(caplog):
    adversary = made(temperature=0.001)  # so sharp that each pair gets one text
    with caplog.at_level(logging.WARNING):
        for _ in range(FEWEST + 5):
            adversary.learn(rewards_for(adversary.propose(KEYS)), step=False)
    assert sum("collapse" in message for message in caplog.messages) == 1


def test_what_is_published_makes_the_network_again_and_tells_the_page(tmp_path):
    adversary = made()
    for _ in range(10):
        adversary.learn(rewards_for(adversary.propose(KEYS)), step=True)
    adversary.save_network(tmp_path)
    with safe_open(tmp_path / NETWORK, framework="pt") as file:
        about = json.loads(file.metadata()["about"])
        for name, weight in adversary.retriever.encoder.network.state_dict().items():
            assert torch.equal(file.get_tensor(name), weight)
    del about["format"]
    sizes = {"image_size": "6", "text_size": "5", "width": "8", "scale": "100.0", "tau": "2.0"}
    assert about == {"encoder": "heads", "vectors": "random", **sizes}
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


@pytest.mark.parametrize("state", [{}, [1], {"retriever": Hostile(), "watch": 1}])
def test_a_state_that_is_none_is_refused_by_name(tmp_path, state, capsys):
    """Of something else, or with a program in it."""
    torch.save(state, tmp_path / STATE)
    with pytest.raises(ModelError, match=STATE):
        made().restore_state(tmp_path)
    assert "run" not in capsys.readouterr().out


@pytest.mark.parametrize("data", [b"", b"no file of torch's"])
def test_a_file_that_is_no_state_is_refused_by_name(tmp_path, data):
    (tmp_path / STATE).write_bytes(data)
    with pytest.raises(ModelError, match=STATE):
        made().restore_state(tmp_path)


def test_a_state_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ModelError, match=STATE):
        made().restore_state(tmp_path)


POOL = tuple(f"text {number}" for number in range(100))


def watch(*, shares=(0.7,) * 60, often=0):
    """Watch batches of 16 texts in turn, of which so many are text 7."""
    watch = Watch(texts=POOL, min_entropy=0.1)
    for number, share in enumerate(shares):
        ids = (16 * number + np.arange(16)) % 100
        ids[:often] = 7
        proposal = Proposal(
            places=np.arange(16),
            ids=ids[:, None],
            texts=(),
            log_q=torch.zeros(16, 1),
            metrics={"retriever/entropy share": share},
        )
        watch.see(proposal)
    return watch


def test_a_retriever_that_works_is_left_alone():
    watched = watch()
    assert watched.alarms() == {}
    assert watched.metrics() == {"retriever/most common share": 10 / 960}


@pytest.mark.parametrize(
    ("shares", "alarms"),
    [
        ([0.9] * 40 + [0.09] * FEWEST, ["collapse"]),
        ([0.9] * 40 + [0.09] * (FEWEST - 1), []),
        ([0.0] * 50 + [0.5] + [0.0] * 9, []),
    ],
)
def test_collapse_is_a_low_entropy_that_stays(shares, alarms):
    assert list(watch(shares=shares).alarms()) == alarms


def test_a_collapse_names_the_entropy():
    assert "6.0%" in watch(shares=[0.06] * 60).alarms()["collapse"]


@pytest.mark.parametrize(("often", "alarms"), [(3, []), (4, ["generic negatives"])])
def test_one_text_for_many_pairs_is_generic(often, alarms):
    watched = watch(often=often)
    assert list(watched.alarms()) == alarms
    assert all("'text 7'" in text for text in watched.alarms().values())
    top = watched.common()[0]
    assert top["text"] == "text 7"
    assert top["pairs"] >= often
    assert watched.metrics()["retriever/most common share"] == top["count"] / 960
