"""What a line of stages would do, extrapolated by hand: items -> images -> neighbours (whole) -> pairs -> notes."""

from dataclasses import replace

import pytest

from pairwright.schemas.config import MiningConfig
from pairwright.tasks.store.estimate import NOTHING, Estimate, exactly
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.measure_stage import StageRates
from pairwright.tasks.store.plan_line import Site, StagePlan, plan_line, total_of
from pairwright.tasks.store.stage import Planned
from tests.tasks.store.toy import STAGES, Quiet

LINE = [one for one in STAGES if one.name != "links"]
NAMES = [stage.name for stage in LINE]
SITE = Site(
    processes=dict.fromkeys(NAMES, 2),
    gpus={**dict.fromkeys(NAMES, 0), "notes": 1},
    rows_per_shard=dict.fromkeys(NAMES, 100),
    shard_seconds=1.0,
)
RATES = {
    "images": StageRates(
        known_from="trial", rows=exactly(2), dropped=exactly(0.1), failed=NOTHING, reach=exactly(1),
        bytes=exactly(50), part_bytes=1000, seconds=exactly(3), cpu_seconds=exactly(2), start_seconds=10,
    ),
    "neighbours": StageRates(known_from="trial", rows=exactly(1), reach=exactly(1), seconds=exactly(0)),
    "pairs": StageRates(known_from="trial", rows=Estimate(0.5, 0.4, 0.6), dropped=exactly(0.5), reach=exactly(1)),
    "notes": StageRates(
        known_from="trial", rows=exactly(1), reach=exactly(1), calls=exactly(3), prompt_tokens=exactly(700),
        completion_tokens=exactly(20), seconds=exactly(36), cpu_seconds=exactly(0),
    ),
}  # fmt: skip


def line(config: MiningConfig | None = None) -> list[Planned]:
    """Return the stages, the pairs with mining's configuration."""
    quiet = Quiet()
    return [
        Planned(stage=stage, config=config if config and stage.name == "pairs" else quiet, fingerprint="0")
        for stage in LINE
    ]


def counts(stage: str, of: int, *, ok: int, rows: int, dropped: int = 0, failed: int = 0) -> Counts:
    pending = of - ok - dropped - failed
    return Counts(
        stage=stage, fingerprint="0", of=of, ok=ok, dropped=dropped, failed=failed, pending=pending, rows=rows,
        reasons={},
    )  # fmt: skip


def plan(items: int, done: dict[str, Counts] | None = None, **changes) -> dict[str, StagePlan]:
    words = {"rates": RATES, "images": 0, "planned": line(), **changes}
    planned, rates = words.pop("planned"), words.pop("rates")
    return {one.stage: one for one in plan_line(planned, done or {}, rates, items=items, site=SITE, **words)}


def test_a_new_dataset_is_extrapolated_along_the_line() -> None:
    found = plan(1000)
    assert [found[name].inputs for name in NAMES] == [exactly(1000), exactly(2000), exactly(2000), found["pairs"].rows]
    assert found["pairs"].rows == Estimate(1000, pytest.approx(800), pytest.approx(1200))
    assert found["images"].dropped == exactly(100)
    notes = found["notes"]
    assert notes.calls == Estimate(3000, pytest.approx(2400), pytest.approx(3600))
    assert (notes.prompt_tokens.value, notes.completion_tokens.value) == (700_000, 20_000)


def test_time_is_work_over_workers_and_a_start() -> None:
    images = plan(1000)["images"]
    # 1,000 rows x 3 s and 10 shards x 1 s, by two workers, after 10 s.
    assert images.hours == exactly(pytest.approx((3010 / 2 + 10) / 3600))
    assert images.cpu_hours == exactly(pytest.approx(2000 / 3600))
    assert images.bytes == exactly(50 * 1000 + 10 * 1000)
    notes = plan(1000)["notes"]
    assert notes.hours.value == pytest.approx((36 * 1000 + 10) / 2 / 3600)
    assert notes.gpu_hours == notes.hours
    assert images.gpu_hours == NOTHING
    alone = plan(50)["images"]
    assert alone.hours.value == pytest.approx((50 * 3 + 1 + 10) / 3600), "one shard is done by one worker"


def test_only_what_is_owed_is_planned() -> None:
    done = {
        "images": counts("images", 100, ok=90, rows=90, failed=10),
        "neighbours": counts("neighbours", 90, ok=90, rows=90),
        "pairs": counts("pairs", 90, ok=45, rows=45, dropped=45),
        "notes": counts("notes", 45, ok=30, rows=30),
    }
    found = plan(0, {**done, "images": counts("images", 100, ok=100, rows=100)})
    assert [found[name].inputs for name in NAMES] == [NOTHING, NOTHING, NOTHING, exactly(15)]
    assert found["images"].hours == NOTHING
    found = plan(5, done)
    assert found["images"].inputs == exactly(15), "ten failed, five are new"
    assert found["neighbours"].inputs == exactly(30 + 90), "it looks at the whole input, and does all of it again"
    assert found["pairs"].inputs == exactly(120)
    assert found["pairs"].rows.value == 60
    assert found["notes"].inputs.value == (60 - 45) + 15, "pairs that were there are not described again"


def test_what_is_not_known_makes_all_after_it_unknown() -> None:
    rates = {**RATES, "pairs": StageRates(known_from="")}
    found = plan(1000, rates=rates)
    assert found["neighbours"].rows == exactly(2000)
    assert found["pairs"].inputs == exactly(2000)
    assert (found["pairs"].rows, found["notes"].inputs, found["notes"].calls) == (None, None, None)
    total, missing = total_of(list(found.values()), "calls")
    assert (total, missing) == (NOTHING, ["images", "neighbours", "pairs", "notes"])


def test_pairs_may_be_as_many_as_images_in_no_order_have() -> None:
    """Of 10 images 5 found a pair; among 20 it would be 1 - 0.5^2 = 3/4 of them, with three pairs each at the most."""
    found = plan(10, images=10, planned=line(MiningConfig(clusters=3, max_per_cluster=1)))
    assert found["pairs"].rows == Estimate(10, pytest.approx(8), pytest.approx(20 * 0.75 * 3))
    same = plan(5, images=10, planned=line(MiningConfig()))
    assert same["pairs"].rows.high == pytest.approx(10 * 0.6), "no more images than were tried"


def test_rates_are_completed_by_other_measurements() -> None:
    own = StageRates(known_from="this dataset", rows=exactly(2), calls=exactly(1), bytes=exactly(7), part_bytes=3)
    other = StageRates(known_from="a laptop", rows=exactly(9), seconds=exactly(4), start_seconds=1, part_bytes=8)
    both = own.completed(other)
    assert both == replace(own, known_from="this dataset, times: a laptop", seconds=exactly(4), start_seconds=1)
    assert own.completed(None) == own
