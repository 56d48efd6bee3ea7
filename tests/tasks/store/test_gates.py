"""Gates on counts: what holds, what does not, and the words that say so."""

import re
from pathlib import Path
from typing import Any

import pytest

from pairwright.flows.pipeline.stages import STAGES
from pairwright.schemas.bounds import GatesConfig
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.gates import Gate, Verdict, judge, read_verdict, write_verdict
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.stage import Planned

ON = {
    stage.name: stage
    for stage in STAGES
    if stage.name in ("images", "pairs", "captions", "differences")
}


def count(*, reasons: dict[str, int] | None = None, **numbers: Any) -> Counts:
    return Counts(
        stage="pairs", fingerprint="f", of=sum(numbers.values()), reasons=reasons or {}, **numbers
    )


def gates_of(config: GatesConfig, *counts: Counts, asked: tuple[str, ...] = ()) -> list[Gate]:
    planned = {
        name: Planned(
            stage=stage,
            config=None,
            inputs=stage.inputs(stage.configure(Profile())),
            fingerprint="f",
        )
        for name, stage in ON.items()
    }
    return list(judge(config, [(planned[one.stage], one) for one in counts], asked))


def test_build_with_over_two_percent_failed_is_not_published() -> None:
    (gate,) = gates_of(GatesConfig(), count(ok=1, dropped=99))
    assert gate.holds
    (gate,) = gates_of(GatesConfig(), count(ok=98, failed=1, pending=1))
    assert (gate.gate, gate.measured, gate.holds) == ("max_failed", 0.02, True)
    (gate,) = gates_of(GatesConfig(), count(ok=97, failed=2, pending=1))
    assert not gate.holds
    assert re.fullmatch(r"pairs: .*\b100\b.* 0\.03, .* 0\.02 \(gates\.max_failed\)", gate.say())
    assert not gates_of(GatesConfig(), count()), "nothing came in: nothing can have failed"
    assert not gates_of(GatesConfig(max_failed=1), count(failed=3))


def test_a_yield_is_ok_of_all_inputs() -> None:
    config = GatesConfig(min_yield={"pairs": 0.2, "captions": 0.9}, max_failed=1)
    (gate,) = gates_of(config, count(ok=20, dropped=79, pending=1))
    assert (gate.measured, gate.holds) == (0.2, True)
    (gate,) = gates_of(config, count(ok=19, dropped=81))
    assert re.fullmatch(r"pairs: .*\b100\b.* 0\.19, .* 0\.2 \(gates\.min_yield\)", gate.say())
    (gate,) = gates_of(config, count())
    assert not gate.holds, "a table of which rows are expected is empty"


def test_a_build_that_came_to_nothing_says_where_it_became_empty() -> None:
    counts = {
        "images": Counts(stage="images", fingerprint="f", of=4, ok=4, rows=4),
        "pairs": Counts(stage="pairs", fingerprint="f", of=2, ok=2, rows=2),
        "captions": Counts(
            stage="captions", fingerprint="f", of=4, dropped=4, reasons={"no scene graph": 4}
        ),
        "differences": Counts(
            stage="differences", fingerprint="f", of=2, dropped=2, reasons={"no": 1}
        ),
    }

    def found(*asked: str, least: dict[str, float] | None = None, **changed: Counts) -> list[Gate]:
        return gates_of(
            GatesConfig(min_yield=least or {}, max_failed=1),
            *(counts | changed).values(),
            asked=asked,
        )

    (gate,) = found("differences")
    assert (gate.stage, gate.holds) == ("differences", False)
    assert (gate.about, gate.why.partition("weaker")[0]) == (
        "ok of 2 inputs",
        "Empty: differences (no: 1). Try ",
    )
    assert gate.say().endswith(gate.why)
    assert found("pairs") == []
    assert found("captions", "pairs") == [], "one of the tables that were asked for has rows"
    (gate,) = found("captions", "differences")
    assert gate.why.startswith(
        "Empty: captions (no scene graph: 4); differences (no: 1). Try a model that sees"
    )
    undone = Counts(stage="images", fingerprint="f", of=4, ok=3, pending=1, rows=3)
    assert found("differences", images=undone) == [], "there may be rows yet"
    assert found("differences", least={"differences": 0}) == []


def test_a_verdict_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    assert read_verdict(folder) is None
    gates = tuple(gates_of(GatesConfig(), count(failed=3)))
    verdict = Verdict(
        began="2026-01-01", ended="2026-01-02", complete=False, version=0, gates=gates
    )
    write_verdict(folder, verdict)
    assert read_verdict(folder) == verdict
    assert verdict.held
    assert verdict.failed == gates
    (tmp_path / "gates.json").write_text('{"began": ')
    with pytest.raises(StoreError, match=r"gates\.json"):
        read_verdict(folder)
