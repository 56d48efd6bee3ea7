"""The warm-up: pairs find their texts, the same for the same seed; the loss against a plain one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pairwright.tasks.training.retriever.warm_up import _contrast, warm_up
from tests.fixtures.retrieving import entry, make_retriever


def logits_of(retriever, places):
    ids = np.array([retriever.pool.own[place, 0] for place in places])
    with torch.no_grad():
        pairs, texts = retriever.encoder.pairs(places), retriever.encoder.texts(ids)
        return (pairs @ texts.T).double().numpy() * retriever.config.logit_scale / retriever.config.temperature


def cross_entropy(logits, right, rivals):
    chosen = np.exp(logits[rivals] - logits[right])
    return np.log(chosen.sum())


def test_the_loss_is_that_of_both_directions():
    retriever = make_retriever([entry(n) for n in range(5)])
    places = np.arange(5)
    logits = logits_of(retriever, places)
    rows = [cross_entropy(logits[n], n, range(5)) + cross_entropy(logits[:, n], n, range(5)) for n in range(5)]
    loss, _ = _contrast(retriever, places)
    assert loss.item() == pytest.approx(np.mean(rows) / 2, abs=1e-5)


def test_what_is_as_right_does_not_compete():
    """Rows 0 and 1 have one text, rows 1 and 2 are about one pair, rows 3 and 4 say that nothing changed."""
    rows = [entry(0, "same"), entry(1, "same", pair="p"), entry(2, "else", pair="p"), entry(3, "as it was")]
    rows = [replace(row, no_change=row.chosen == "as it was") for row in rows]
    rows += [entry(4, "unchanged", no_change=True), entry(5, "third")]
    retriever = make_retriever(rows)
    first = retriever.pool.own[:, 0]
    logits = logits_of(retriever, np.arange(6))
    right = {0: {"same"}, 1: {"same", "else"}, 2: {"same", "else"}, 5: {"third"}}
    right |= {row: {"as it was", "unchanged"} for row in (3, 4)}
    texts = [retriever.pool.texts[number] for number in first]
    columns = {text: texts.index(text) for text in set(texts)}
    losses = []
    for n in range(6):
        rivals = [column for text, column in columns.items() if text == texts[n] or text not in right[n]]
        losses.append(cross_entropy(logits[n], columns[texts[n]], rivals))
        pairs = [m for m in range(6) if m == n or texts[n] not in right[m]]
        losses[-1] += cross_entropy(logits[:, n], n, pairs)
    loss, _ = _contrast(retriever, np.arange(6))
    assert loss.item() == pytest.approx(np.mean(losses) / 2, abs=1e-5)


def test_pairs_find_their_texts():
    retriever = make_retriever([entry(n) for n in range(40)], projection_dim=32)
    _, before = _contrast(retriever, np.arange(40))
    assert before < 0.3
    assert warm_up(retriever, 200) > 0.9
    found = retriever.logits(np.arange(40), np.broadcast_to(np.arange(40), (40, 40))).argmax(1).numpy()
    assert (found == retriever.pool.own[:, 0]).mean() > 0.9


def test_it_depends_on_the_seed_alone():
    rows = [entry(n) for n in range(30)]
    one, two = make_retriever(rows), make_retriever(rows)
    torch.manual_seed(1)
    warm_up(one, 5)
    torch.manual_seed(2)
    warm_up(two, 5)
    for name, weight in one.encoder.network.state_dict().items():
        assert torch.equal(weight, two.encoder.network.state_dict()[name])


def test_held_out_rows_teach_nothing():
    """Also where their texts are some training row's, too."""
    rows, held_out = [entry(n) for n in range(30)], range(30, 60)
    one = make_retriever([*rows, *[entry(n, in_pool=False) for n in held_out]])
    two = make_retriever([*rows, *[entry(n, f"text {n - 30}", in_pool=False) for n in held_out]])
    assert one.pool.texts == two.pool.texts
    warm_up(one, 5)
    warm_up(two, 5)
    for name, weight in one.encoder.network.state_dict().items():
        assert torch.equal(weight, two.encoder.network.state_dict()[name])


@pytest.mark.parametrize("rows", [[entry(0)], [entry(0), entry(1, "text 0")], [entry(0, in_pool=False)]])
def test_where_nothing_can_be_told_apart_nothing_happens(rows):
    retriever = make_retriever(rows)
    before = {name: weight.clone() for name, weight in retriever.encoder.network.state_dict().items()}
    assert warm_up(retriever, 3) == 0
    for name, weight in before.items():
        assert torch.equal(weight, retriever.encoder.network.state_dict()[name])
