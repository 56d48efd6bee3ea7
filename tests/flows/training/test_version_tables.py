"""Tables beside a dataset's own: made once, gone on with after a fault, others where anything
differs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pairwright.flows.training.version_tables import make_table
from pairwright.flows.versions.version import open_present, open_version
from pairwright.schemas.errors import ConfigError, TrainingError
from pairwright.schemas.rows import EmbeddingRow, PreferenceRow
from pairwright.schemas.training import TextVectorsConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.embed_chosen_texts import STAGE, embed_chosen_texts

CONFIG = TextVectorsConfig(dimension=64)


@pytest.fixture
def folder(copy: Path) -> Folder:
    return Folder(str(copy))


def parts(folder: Folder, table: str) -> dict[str, int]:
    return {
        path.name: path.stat().st_mtime_ns
        for path in Path(folder.path(table)).glob("part-*.parquet")
    }


def test_after_a_fault_what_is_made_is_kept(folder: Folder) -> None:
    """Shards of two rows; from the third on, the disk, say, refuses."""
    calls, before = list[int](), open_present(folder).stage_counts()

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
    assert Path(planned.table_path).name == table.name
    assert make_table(open_version(folder), small, CONFIG) == planned
    done = parts(folder, planned.table_path)
    assert first.items() <= done.items(), "what was made is not made again"
    assert len(done) == len(calls)
    assert open_present(folder).stage_counts() == before, "the dataset is as it was"
    other = replace(STAGE, name="other", reads={"made_up": EmbeddingRow})
    with pytest.raises(ConfigError, match=r"other: .*made_up"):
        make_table(open_version(folder), other, CONFIG)
