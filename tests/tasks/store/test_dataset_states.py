"""Random builds of one dataset: kills, faults, changes of the source and of the shard size.

The model is a plain re-implementation of the toy line: after every undisturbed build, the live rows
are the model's, every part is readable, and nothing that was finished was worked on again.
"""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, read_part
from tests.tasks.store.faults import Killed, faulty
from tests.tasks.store.toy import ToyConfig, build_toy, check, items_of, take_calls

FAILING = ["failing1", "failing2", "failing1/2"]
POOL = ["a", "b", "b/2", "c", "c/2", "bad1", "bad2", "d", *FAILING, "m", "z"]


class Life(RuleBasedStateMachine):
    """Life of one dataset, and its model."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="life-"))
        self.out, self.trouble = self.root / "out", self.root / "trouble"
        self.config = ToyConfig(trouble=str(self.trouble), calls=str(self.root / "calls"))
        self.words: list[str] = []
        self.size = 3
        self.finished: set[str] = set()
        """Items that an undisturbed build has finished: nobody may work on them again."""
        self.maybe: set[str] = set()
        """Failing items that a disturbed build may have finished."""

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize(words=st.lists(st.sampled_from(POOL), unique=True, min_size=1, max_size=8))
    def begin(self, words: list[str]) -> None:
        self.words = words

    @rule(word=st.sampled_from(POOL))
    def add_or_remove(self, word: str) -> None:
        others = [other for other in self.words if other != word]
        self.words = others if word in self.words else [*self.words, word]

    @rule(size=st.integers(1, 8))
    def cut_otherwise(self, size: int) -> None:
        self.size = size

    @rule()
    def fail_or_heal(self) -> None:
        self.trouble.unlink() if self.trouble.exists() else self.trouble.touch()

    @rule()
    def build(self) -> None:
        counts, _ = build_toy(self.out, self.words, self.config, rows_per_shard=self.size)
        calls = self._calls()
        assert set(calls.values()) <= {1}
        failed = self._failed(counts[0].failed, calls)
        check(self.out, self.words, failed)
        assert counts[0].of == len(self.words)
        assert {count.pending for count in counts} == {0}
        assert {count.failed for count in counts[1:]} == {0}
        self.finished |= set(self.words) - failed
        self.maybe -= self.finished | failed

    @rule(fault=st.sampled_from(["kill", "late kill", "ENOSPC", "EIO"]), at=st.integers(0, 120))
    def build_disturbed(self, fault: str, at: int) -> None:
        with pytest.MonkeyPatch.context() as patches, faulty(patches, fault, at) as system:
            try:
                build_toy(self.out, self.words, self.config, rows_per_shard=self.size)
            except (Killed, StoreError):
                assert system.triggered
        calls = self._calls()
        if not self.trouble.exists():
            self.maybe |= calls.keys()

    @invariant()
    def every_part_is_whole(self) -> None:
        folder = Folder(str(self.out))
        for path in self.out.rglob("*.parquet"):
            read_part(Part(folder, str(path.relative_to(self.out))))

    def _calls(self) -> Counter[str]:
        """Return how often each item was worked on, checking that none was finished before."""
        calls = Counter(items_of(take_calls(self.config)))
        assert self.finished.isdisjoint(calls)
        return calls

    def _failed(self, count: int, calls: Counter[str]) -> set[str]:
        """Return the items that must have failed: those in trouble, unless finished before."""
        failing = {word for word in self.words if word in FAILING} - self.finished
        failed = failing & calls.keys() if self.trouble.exists() else set[str]()
        assert len(failed) == count
        if self.trouble.exists():
            assert failing - failed <= self.maybe
        return failed


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=2,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
