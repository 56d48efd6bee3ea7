"""Gates on counts, reasons and columns: what holds, what does not, and the words that say so."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from pairwright.flows.stages import STAGES
from pairwright.schemas.bounds import GatesConfig
from pairwright.schemas.errors import StoreError
from pairwright.tasks.store import gates as gates_file
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.gates import (
    cannot_judge,
    judge_counts,
    judge_reasons,
    judge_result,
    measure_drift,
    read_verdict,
)
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.stage import Planned
from tests.tasks.store.toy import build_toy, open_toy

ANY = GatesConfig()


def count(*, reasons: dict[str, int] | None = None, **numbers: Any) -> Counts:
    return Counts(stage="pairs", fingerprint="f", of=sum(numbers.values()), reasons=reasons or {}, **numbers)


def test_by_default_a_build_of_which_more_than_a_fiftieth_failed_is_held_back() -> None:
    (gate,) = judge_counts(GatesConfig(), [count(ok=1, dropped=99)])
    assert gate.holds
    (gate,) = judge_counts(GatesConfig(), [count(ok=98, failed=1, pending=1)])
    assert (gate.gate, gate.measured, gate.holds) == ("max_failed", 0.02, True)
    (gate,) = judge_counts(GatesConfig(), [count(ok=97, failed=2, pending=1)])
    assert not gate.holds
    assert re.fullmatch(r"pairs: .*\b100\b.* 0\.03, .* 0\.02 \(gates\.max_failed\)", gate.say())
    assert not list(judge_counts(GatesConfig(), [count()])), "nothing came in: nothing can have failed"
    assert not list(judge_counts(GatesConfig(max_failed=1), [count(failed=3)]))


def test_a_yield_is_ok_of_all_inputs() -> None:
    config = GatesConfig(min_yield={"pairs": 0.2, "captions": 0.9}, max_failed=1)
    (gate,) = judge_counts(config, [count(ok=20, dropped=79, pending=1)])
    assert (gate.measured, gate.holds) == (0.2, True)
    (gate,) = judge_counts(config, [count(ok=19, dropped=81)])
    assert re.fullmatch(r"pairs: .*\b100\b.* 0\.19, .* 0\.2 \(gates\.min_yield\)", gate.say())
    (gate,) = judge_counts(config, [count()])
    assert not gate.holds, "a table of which rows are expected is empty"


def test_a_build_that_came_to_nothing_says_where_it_became_empty() -> None:
    on = {stage.name: stage for stage in STAGES if stage.name in ("images", "pairs", "captions", "differences")}
    counts = {
        "images": Counts(stage="images", fingerprint="f", of=4, ok=4, rows=4),
        "pairs": Counts(stage="pairs", fingerprint="f", of=2, ok=2, rows=2),
        "captions": Counts(stage="captions", fingerprint="f", of=4, dropped=4, reasons={"no scene graph": 4}),
        "differences": Counts(stage="differences", fingerprint="f", of=2, dropped=2, reasons={"no": 1}),
    }

    def judge(asked: list[str], config: GatesConfig = ANY, **changed: Counts) -> list[gates_file.Gate]:
        planned = {name: Planned(stage=on[name], config=None, fingerprint="f") for name in on}
        return list(judge_result(config, [(planned[name], (counts | changed)[name]) for name in on], asked))

    (gate,) = judge(["differences"])
    assert (gate.stage, gate.holds) == ("differences", False)
    assert (gate.about, gate.why.partition("weaker")[0]) == ("ok of 2 inputs", "Empty: differences (no: 1). Try ")
    assert gate.say().endswith(gate.why)
    assert judge(["pairs"]) == []
    assert judge(["captions", "pairs"]) == [], "one of the tables that were asked for has rows"
    (gate,) = judge(["captions", "differences"])
    assert gate.why.startswith("Empty: captions (no scene graph: 4); differences (no: 1). Try a model that sees")
    undone = Counts(stage="images", fingerprint="f", of=4, ok=3, pending=1, rows=3)
    assert judge(["differences"], images=undone) == [], "there may be rows yet"
    assert judge(["differences"], GatesConfig(min_yield={"differences": 0})) == []


def test_reasons_are_compared_with_the_last_version() -> None:
    config = GatesConfig(max_reason_drift=0.25, min_drift_rows=4)
    before = {"pairs": count(ok=3, dropped=1, reasons={"blurred": 1}).as_json()}
    (gate,) = judge_reasons(config, before, [count(ok=1, dropped=3, reasons={"blurred": 3})])
    assert gate.measured == pytest.approx(0.677838, abs=1e-6), "0.8 ln(7/3)"
    assert not gate.holds
    (gate,) = judge_reasons(config, before, [count(ok=6, dropped=2, reasons={"blurred": 2})])
    assert gate.holds
    bound = ({f"blurred (images.min_sharpness={n})": 1} for n in (3, 4))
    before, now = (count(ok=3, dropped=1, reasons=reasons) for reasons in bound)
    (gate,) = judge_reasons(config, {"pairs": before.as_json()}, [now])
    assert gate.measured == 0, "another bound is the same reason"
    before = {"pairs": before.as_json()}
    assert not list(judge_reasons(config, before, [count(ok=3)])), "too few rows to tell"
    assert not list(judge_reasons(config, {}, [count(ok=4)])), "the last version has no such table"
    assert not list(judge_reasons(GatesConfig(), before, [count(dropped=4)])), "off"


def test_lengths_are_compared_with_another_build(tmp_path: Path) -> None:
    short, long = [f"w{number:02}" for number in range(12)], [f"word{number:02}" for number in range(12)]
    build_toy(tmp_path / "old", short)
    build_toy(tmp_path / "new", long)
    config = GatesConfig(max_length_drift=0.25, max_similarity_drift=0.25, min_drift_rows=11)
    with open_toy(tmp_path / "old", short) as old, open_toy(tmp_path / "new", long) as new:
        before, now = ([(one, build.settle(one)) for one in build.planned] for build in (old, new))
        gates = {(gate.gate, gate.stage): gate for gate in gates_file.judge_columns(config, (old, before), (new, now))}
        same = list(gates_file.judge_columns(config, (old, before), (old, before)))
    # All 11 notes had 7 characters ("w00 w01") and have 13 now: bins (0, 11, 0) and (0, 0, 11), half a row more each,
    # that is (1, 23, 1)/25 and (1, 1, 23)/25: twice 22/25 ln 23. Links are keys, which are all of one length.
    assert {key: gate.measured for key, gate in gates.items()} == {
        ("max_similarity_drift", "pairs"): 0,
        ("max_length_drift", "links"): 0,
        ("max_length_drift", "notes"): pytest.approx(44 / 25 * math.log(23)),
    }
    assert [gate.holds for gate in gates.values()] == [True, True, False]
    assert [gate.measured for gate in same] == [0, 0, 0]


def test_what_cannot_be_measured_does_not_hold() -> None:
    gate = cannot_judge(GatesConfig(max_similarity_drift=0.2), "version 3 was made by another release")
    assert not gate.holds
    assert re.search(r"version 3 .*\(gates\.max_similarity_drift\)", gate.say())


def test_a_verdict_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    assert read_verdict(folder) is None
    gates = (*judge_counts(GatesConfig(), [count(failed=3)]), cannot_judge(GatesConfig(max_length_drift=1), "why"))
    verdict = gates_file.Verdict(
        began="2026-01-01", ended="2026-01-02", complete=False, against=3, version=0, gates=gates
    )
    gates_file.write_verdict(folder, verdict)
    assert read_verdict(folder) == verdict
    assert verdict.held
    assert verdict.failed == gates
    (tmp_path / "gates.json").write_text('{"began": ')
    with pytest.raises(StoreError, match=r"gates\.json"):
        read_verdict(folder)


def test_drift_is_the_index_with_half_a_row_in_each_bin() -> None:
    assert measure_drift([3, 3], [3, 3]) == 0
    # (3.5/5, 1.5/5) became (1.5/5, 3.5/5): (0.3 - 0.7) ln(3/7) + (0.7 - 0.3) ln(7/3) = 0.8 ln(7/3)
    assert measure_drift([3, 1], [1, 3]) == pytest.approx(0.8 * math.log(7 / 3))
    # (9.5/10, 0.5/10) became (0.5/10, 9.5/10), the empty bins included: 1.8 ln 19
    assert measure_drift([9, 0], [0, 9]) == pytest.approx(1.8 * math.log(19))


def test_what_lies_outside_all_earlier_values_is_in_bins_of_its_own() -> None:
    before = dict.fromkeys(range(10), 1)
    assert gates_file.cut_bins(before, {-7: 1, 0: 1, 9: 1, 10: 1, 1000: 1}) == (
        [0, *[1] * 10, 0],
        [1, 1, *[0] * 8, 1, 2],
    )
    assert gates_file.cut_bins({5: 3}, {7: 3}) == ([0, 3, 0], [0, 0, 3])
