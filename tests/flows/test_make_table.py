"""Tables beside a dataset's own: made once, gone on with after a fault, others where anything differs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pairwright.flows.prepare_training import make_table
from pairwright.flows.version import open_present, open_version
from pairwright.schemas.errors import ConfigError, TrainingError
from pairwright.schemas.rows import EmbeddingRow, PreferenceRow
from pairwright.schemas.training import TextVectorsConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import live_index, read_live
from pairwright.tasks.training.embed_chosen_texts import STAGE, embed_chosen_texts

CONFIG = TextVectorsConfig(dimension=64)


@pytest.fixture
def folder(copy: Path) -> Folder:
    return Folder(str(copy))


def parts(folder: Folder, table: str) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in Path(folder.path(table)).glob("part-*.parquet")}


def test_a_table_is_made_once(folder: Folder) -> None:
    before = open_present(folder).counts()
    preferences = next(count.rows for count in before if count.stage == "preferences")
    planned = make_table(open_version(folder), STAGE, CONFIG)
    made = parts(folder, planned.table)
    assert made
    assert make_table(open_version(folder), STAGE, CONFIG) == planned
    assert parts(folder, planned.table) == made
    assert open_present(folder).counts() == before, "the dataset is as it was"
    with open_version(folder).settled([planned]) as (build, _):
        rows = list(read_live(build, planned, EmbeddingRow))
        assert len(live_index(build, planned)) == len(rows)
    assert 0 < len(rows) <= preferences
    assert {len(row.vector) for row in rows} == {64}


def test_after_a_fault_what_is_made_is_kept(folder: Folder) -> None:
    """Shards of two rows; from the third on, the disk, say, refuses."""
    calls: list[int] = []

    def breaks(rows: Sequence[PreferenceRow], config: TextVectorsConfig) -> Iterator[EmbeddingRow]:
        calls.append(len(rows))
        if len(calls) > 2:
            raise OSError("No space left on device")
        return embed_chosen_texts(rows, config)

    small = replace(STAGE, rows_per_shard=2)
    with pytest.raises(TrainingError, match=r"text_vectors: .*OSError: No space left"):
        make_table(open_version(folder), replace(small, function=breaks), CONFIG)
    (table,) = Path(folder.path("tables/text_vectors")).iterdir()
    first = parts(folder, f"tables/text_vectors/{table.name}")
    assert len(first) == 2
    planned = make_table(open_version(folder), small, CONFIG)
    assert Path(planned.table).name == table.name
    done = parts(folder, planned.table)
    assert first.items() <= done.items(), "what was made is not made again"
    assert len(done) == len(calls)


def test_a_table_can_be_made_of_another_beside_it(folder: Folder) -> None:
    again = replace(STAGE, name="again", reads={"text_vectors": EmbeddingRow}, function=_same, without=(), models=None)
    with pytest.raises(ConfigError, match=r"again: .*text_vectors"):
        make_table(open_version(folder), again, CONFIG)
    first = make_table(open_version(folder), STAGE, CONFIG)
    second = make_table(open_version(folder), again, CONFIG, after=[first])
    wide = make_table(open_version(folder), STAGE, TextVectorsConfig(dimension=128))
    other = make_table(open_version(folder), again, CONFIG, after=[wide])
    assert second.fingerprint != other.fingerprint
    with open_version(folder).settled([first, second]) as (build, _):
        assert len(live_index(build, second)) == len(live_index(build, first))


def _same(rows: Sequence[EmbeddingRow], config: TextVectorsConfig) -> Iterator[EmbeddingRow]:
    del config
    for row in rows:
        yield replace(row, source_key=row.key)
