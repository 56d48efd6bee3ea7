"""The order of rows, and the processes that load them."""

from dataclasses import dataclass
from itertools import chain

import numpy as np
import pytest

from pairwright.tasks.training.collate import Batch
from pairwright.tasks.training.freeze_rows import Refused
from pairwright.tasks.training.load_batches import BatchOrder, make_loader


@dataclass(frozen=True)
class Rows:
    """Rows that are all refused, so that no model is needed."""

    count: int

    def __len__(self):
        return self.count

    def __getitem__(self, position):
        return Refused(key=str(position), reason="a test")


def collate(items):
    return {"batch": Batch(keys=[], refused=list(items))}


def load(rows, order, workers=0):
    batches = [actual["batch"] for actual in make_loader(rows, collate, order, workers=workers)]
    return [[row.key for row in each.refused] for each in batches]


@pytest.mark.parametrize(
    ("rows", "batch", "ranks"), [(12, 2, 1), (13, 2, 1), (13, 2, 3), (4, 2, 3), (5, 4, 2)]
)
def test_each_row_comes_once(rows, batch, ranks):
    orders = [BatchOrder(rows, batch, 0, ranks=ranks, rank=rank) for rank in range(ranks)]
    steps = [list(order) for order in orders]
    lengths = {len(order) for order in orders} | {len(own) for own in steps}
    assert lengths == {-(-rows // (batch * ranks))}
    assert sorted(chain(*chain(*steps))) == list(range(rows))
    assert all(len(places) == batch for own in steps for places in own[:-1])
    last = [len(own[-1]) for own in steps]
    assert max(last) - min(last) <= 1, "an incomplete last step is dealt out evenly"


def test_several_ranks_have_the_rows_of_one_in_larger_steps():
    alone = list(BatchOrder(14, 4, 7))
    first, second = (list(BatchOrder(14, 2, 7, ranks=2, rank=rank)) for rank in range(2))
    assert [each + other for each, other in zip(first, second, strict=True)] == alone


def test_the_order_is_that_of_the_seed_and_the_epoch():
    assert list(BatchOrder(50, 5, 1)) == list(BatchOrder(50, 5, 1))
    drawn = [(seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({str(list(BatchOrder(50, 5, seed, epoch=epoch))) for seed, epoch in drawn}) == 4
    assert list(BatchOrder(5, 2, None)) == [[0, 1], [2, 3], [4]]


def test_a_step_has_rows_of_about_one_length_and_each_row_comes_once():
    lengths = np.random.default_rng(3).integers(1, 1000, 330).tolist()
    alone = list(BatchOrder(330, 4, 7, lengths=lengths))
    assert sorted(chain(*alone)) == list(range(330))

    def spread(steps):
        return float(np.mean([np.ptp([lengths[position] for position in step]) for step in steps]))

    assert spread(alone) < spread(list(BatchOrder(330, 4, 7))) / 5
    assert list(BatchOrder(330, 4, 7, lengths=lengths)) == alone
    assert list(BatchOrder(330, 4, 7, lengths=lengths, epoch=1)) != alone


def test_processes_do_not_change_the_order():
    order = BatchOrder(23, 3, 0)
    alone = load(Rows(23), order)
    assert [int(key) for batch in alone for key in batch] == list(chain(*order))
    assert load(Rows(23), order, workers=2) == alone
