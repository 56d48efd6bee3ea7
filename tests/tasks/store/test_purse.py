"""A purse that many processes pay out of: what it holds is never passed, and nothing that was put back is lost."""

import subprocess
import sys
from pathlib import Path

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.purse import Purse

TAKE = """
import sys
from pairwright.tasks.store.purse import Purse

purse = Purse(sys.argv[1], calls=500, tokens=100_000)
taken = 0
while purse.take(300):  # 500 x 200 tokens are 100,000: with 300 set aside each, the tokens end first
    purse.settle(300, 200)
    taken += 1
print(taken)
"""


def test_calls_and_tokens_are_set_aside_and_settled(tmp_path: Path) -> None:
    purse = Purse(str(tmp_path), calls=3, tokens=100)
    assert purse.take(60)
    assert purse.spent == (1, 60)
    assert not purse.take(41), "40 are left"
    assert purse.spent == (1, 60)
    assert purse.has_open
    purse.settle(60, 10)
    assert (purse.spent, purse.has_open) == ((1, 10), False)
    assert purse.take(90)
    purse.settle(90, None)
    assert purse.spent == (1, 10), "there was no answer, so nothing was paid"
    purse.spend(2, 5)
    assert purse.spent == (3, 15)
    assert not purse.take(0), "three calls are made"


def test_without_limits_nothing_is_refused(tmp_path: Path) -> None:
    purse = Purse(str(tmp_path))
    assert all(purse.take(10**12) for _ in range(5))
    assert purse.spent == (5, 5 * 10**12)


def test_processes_that_pay_at_once_never_pass_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TAKE, str(tmp_path)]
    payers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    taken = [int(payer.communicate()[0]) for payer in payers]
    assert not any(payer.returncode for payer in payers)
    calls, tokens = Purse(str(tmp_path)).spent
    assert (calls, tokens) == (sum(taken), 200 * sum(taken))
    # Each ends when 300 would be too much beside what all have set aside: three times 300 less the 200 of one call.
    assert 100_000 - 900 <= tokens <= 100_000


def test_a_torn_payment_counts_once_it_is_whole(tmp_path: Path) -> None:
    purse = Purse(str(tmp_path))
    purse.spend(2, 20)
    whole = next(tmp_path.iterdir()).read_bytes()
    (tmp_path / "another").write_bytes(whole[:10])
    assert purse.spent == (2, 20)
    (tmp_path / "another").write_bytes(whole)
    assert purse.spent == (4, 40)


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file/purse"):
        Purse(str(tmp_path / "file" / "purse")).take(1)
