"""Rates of stages, from real parts and from shards whose numbers are made up to be worked out by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from pairwright.schemas.rates import StoredRate
from pairwright.tasks.store.answers import Asked
from pairwright.tasks.store.estimate import NOTHING, Estimate, exactly
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.measure_stage import (
    Sample,
    empty_bytes,
    listed_keys,
    measure_stage,
    sample_outcome,
    sample_parts,
    stored_rates,
    timed_stage,
)
from tests.tasks.store.test_plan_line import counts
from tests.tasks.store.toy import ToyConfig, build_toy, list_words, open_toy, plan_toy

WORDS = [f"word{number}" for number in range(16)] + [f"bad{number}" for number in range(4)]
IMAGES = plan_toy(ToyConfig())[0]


def test_parts_say_what_their_shards_gave(tmp_path: Path) -> None:
    found, outcomes = build_toy(tmp_path, WORDS, rows_per_shard=5)
    samples = sample_parts(Folder(str(tmp_path)), IMAGES)
    assert [sample.inputs for sample in samples] == [5, 5, 5, 5]
    assert sum(sample.rows for sample in samples) == 16
    parts = [path for path in (tmp_path / IMAGES.table).iterdir() if path.suffix == ".parquet"]
    assert sum(sample.bytes for sample in samples) == sum(path.stat().st_size for path in parts)
    assert all(sample.asked is None and sample.seconds is None for sample in samples)
    rates = measure_stage(IMAGES, found[0], samples, read_rows=20, known_from="it")
    assert (rates.rows.value, rates.dropped.value, rates.failed.value) == (0.8, 0.2, 0)
    assert rates.reach == exactly(1)
    assert rates.calls == NOTHING
    assert rates.part_bytes == empty_bytes(IMAGES)
    assert rates.bytes.value == pytest.approx(sum(sample.bytes - empty_bytes(IMAGES) for sample in samples) / 20)
    timed = [sample_outcome(one) for one in outcomes if one.shard.name.startswith("images")]
    untimed = [replace(one, seconds=None, cpu_seconds=None) for one in timed if one]
    assert sorted(untimed, key=lambda one: one.bytes) == sorted(samples, key=lambda one: one.bytes)
    assert all(one and one.seconds and one.seconds > 0 for one in timed)


def test_rows_that_others_repeat_do_not_count() -> None:
    """The parts hold 12 rows for 10 inputs, of which 9 are live."""
    samples = [Sample(inputs=5, rows=6, bytes=0), Sample(inputs=5, rows=6, bytes=0)]
    rates = measure_stage(IMAGES, counts("images", 10, ok=9, dropped=1, rows=9), samples, read_rows=10, known_from="")
    # The shards agree; Wilson's interval for 9 of 10 is 0.5958 to 0.9821.
    assert rates.rows == Estimate(pytest.approx(0.9), pytest.approx(0.5958, abs=1e-4), pytest.approx(0.9821, abs=1e-4))


def test_shares_have_wilsons_range() -> None:
    samples = [Sample(inputs=10, rows=9, bytes=0)]
    rates = measure_stage(
        IMAGES, counts("images", 10, ok=9, failed=1, rows=9), samples, read_rows=10, known_from=""
    )  # fmt: skip
    # Wilson's interval for 1 of 10 at 95 %, as in Newcombe's table: 0.0179 to 0.4042.
    assert rates.failed == Estimate(0.1, pytest.approx(0.0179, abs=1e-4), pytest.approx(0.4042, abs=1e-4))


def test_only_some_images_are_read_by_a_stage_about_pairs() -> None:
    only = replace(IMAGES, stage=replace(IMAGES.stage, only_in=("pairs",)))
    samples = [Sample(inputs=1, rows=1, bytes=0)]
    rates = measure_stage(only, counts("images", 1, ok=1, rows=1), samples, read_rows=10, known_from="")
    assert rates.reach == Estimate(0.1, pytest.approx(0.0179, abs=1e-4), 1.0), "the more images, the more are in pairs"


def test_answers_are_counted_per_row() -> None:
    samples = [
        Sample(inputs=2, rows=2, bytes=0, asked=Asked(3, 300, 30)),
        Sample(inputs=2, rows=2, bytes=0, asked=Asked(5, 500, 50)),
    ]
    rates = measure_stage(IMAGES, counts("images", 4, ok=4, rows=4), samples, read_rows=4, known_from="")
    assert (rates.calls.value, rates.prompt_tokens.value, rates.completion_tokens.value) == (2, 200, 20)
    assert rates.calls.low < 2 < rates.calls.high


def test_what_was_never_tried_is_not_known() -> None:
    rates = measure_stage(IMAGES, counts("images", 3, ok=0, rows=0), [], read_rows=3, known_from="it")
    assert (rates.known_from, rates.rows, rates.bytes) == ("", None, None)


def test_shards_that_start_workers_do_not_count_for_a_row() -> None:
    """Two workers: their first shards take 5 s more. Each shard of 2 rows takes 1 s a row, and 0.5 s beside them."""
    slow, quick = ({"inputs": 2, "rows": 2, "bytes": 0, "cpu_seconds": cpu} for cpu in (6.0, 2.0))
    samples = [*(Sample(**slow, seconds=7.5) for _ in range(2)), *(Sample(**quick, seconds=2.5) for _ in range(4))]
    rates = timed_stage(
        measure_stage(IMAGES, counts("images", 12, ok=12, rows=12), samples, read_rows=12, known_from=""),
        samples,
        processes=2,
        shard_seconds=0.5,
        stage_seconds=15.0,
    )
    assert (rates.seconds, rates.cpu_seconds) == (exactly(1), exactly(1))
    # 12 rows and 6 shards are 15 s of work, 7.5 s for two; the stage took 15.
    assert rates.start_seconds == 7.5


def test_stored_rates_have_no_range() -> None:
    rates = stored_rates(StoredRate(rows=3, seconds=2.5, start_seconds=4, part_bytes=9), "a laptop")
    assert (rates.rows, rates.seconds, rates.start_seconds, rates.part_bytes) == (exactly(3), exactly(2.5), 4, 9)
    assert (rates.calls, rates.known_from) == (None, "a laptop")


def test_the_listing_of_a_dataset_is_known_by_its_keys(tmp_path: Path) -> None:
    with open_toy(tmp_path, WORDS) as build:
        found = listed_keys(build.folder, build.items)
    assert found == {bytes.fromhex(item.key) for item in list_words(WORDS)}
