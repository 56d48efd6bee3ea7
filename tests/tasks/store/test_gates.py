"""Gates on counts: what holds and what does not."""

import re
from pathlib import Path

import pytest

from pairwright.flows.pipeline.stages import BY_NAME
from pairwright.schemas.bounds import GatesConfig
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.gates import Gate, Verdict, measure_gates, read_verdict, write_verdict
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.stage import Planned


def count(stage: str = "pairs", reasons: dict[str, int] | None = None, **ends: int) -> Counts:
    of, rows = sum(ends.values()), ends.get("ok", 0)
    return Counts(stage=stage, fingerprint="f", of=of, rows=rows, reasons=reasons or {}, **ends)


def planned(name: str) -> Planned:
    stage = BY_NAME[name]
    inputs = stage.inputs(stage.configure(Profile()))
    return Planned(stage=stage, config=None, inputs=inputs, fingerprint="f")


def gates_of(config: GatesConfig, *counts: Counts, asked: tuple[str, ...] = ()) -> list[Gate]:
    return list(measure_gates(config, [(planned(each.stage), each) for each in counts], asked))


def test_a_build_with_over_two_percent_failed_is_not_published() -> None:
    (gate,) = gates_of(GatesConfig(), count(ok=1, dropped=99))
    assert gate.holds
    (gate,) = gates_of(GatesConfig(), count(ok=98, failed=1, pending=1))
    assert (gate.gate, gate.measured, gate.holds) == ("max_failed", 0.02, True)
    (gate,) = gates_of(GatesConfig(), count(ok=97, failed=2, pending=1))
    assert not gate.holds
    assert re.fullmatch(r"pairs: .*\b100\b.* 0\.03, .* 0\.02 .*max_failed\)", gate.in_words())
    assert not gates_of(GatesConfig(), count()), "nothing came in: nothing can have failed"
    assert not gates_of(GatesConfig(max_failed=1), count(failed=3))


def test_a_yield_is_ok_of_all_inputs() -> None:
    config = GatesConfig(min_yield={"pairs": 0.2, "captions": 0.9}, max_failed=1)
    (gate,) = gates_of(config, count(ok=20, dropped=79, pending=1))
    assert (gate.measured, gate.holds) == (0.2, True)
    (gate,) = gates_of(config, count(ok=19, dropped=81))
    assert not gate.holds
    (gate,) = gates_of(config, count())
    assert not gate.holds, "a table of which rows are expected is empty"


IMAGES, PAIRS = count("images", ok=4), count("pairs", ok=2)
CAPTIONS = count("captions", {"no scene graph": 4}, dropped=4)
DIFFERENCES = count("differences", {"no": 1}, dropped=2)


def empty(
    *asked: str, images: Counts = IMAGES, min_yield: dict[str, float] | None = None
) -> list[Gate]:
    config = GatesConfig(min_yield=min_yield or {}, max_failed=1)
    return gates_of(config, images, PAIRS, CAPTIONS, DIFFERENCES, asked=asked)


def test_a_build_that_came_to_nothing_says_where_it_became_empty() -> None:
    (gate,) = empty("differences")
    assert (gate.stage, gate.holds, gate.about) == ("differences", False, "ok of 2 inputs")
    assert gate.why.startswith("Empty: differences (no: 1). Try weaker")
    assert gate.in_words().endswith(gate.why)
    (gate,) = empty("captions", "differences")
    assert gate.why.startswith(
        "Empty: captions (no scene graph: 4); differences (no: 1). Try a model that sees"
    )
    assert empty("pairs") == []
    assert empty("captions", "pairs") == [], "one of the tables that were asked for has rows"
    assert empty("differences", images=count("images", ok=3, pending=1)) == []
    assert empty("differences", min_yield={"differences": 0}) == []


def test_a_verdict_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    assert read_verdict(folder) is None
    gates = tuple(gates_of(GatesConfig(), count(failed=3)))
    times = {"began": "2026-01-01", "ended": "2026-01-02"}
    verdict = Verdict(**times, complete=False, version=0, gates=gates)
    write_verdict(folder, verdict)
    assert read_verdict(folder) == verdict
    assert verdict.held
    assert verdict.failed == gates
    folder.write("gates.json", b'{"began": ')
    with pytest.raises(StoreError, match=r"gates\.json"):
        read_verdict(folder)
