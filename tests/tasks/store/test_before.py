"""What a stage made of an earlier input, found again by what its parts say of themselves."""

from pathlib import Path

import pytest

from pairwright.schemas.rows import NeighbourRow, make_key
from pairwright.tasks.store.index import open_index, write_index
from pairwright.tasks.store.ledger import COLLECTION
from pairwright.tasks.store.part import Part, read_about
from tests.tasks.store.toy import STAGES, build_toy, open_toy

FEW, MORE = ["ant", "bee", "cat", "dog"], ["ant", "bee", "cat", "dog", "eel"]


def image(word: str) -> str:
    return make_key(word.encode() * 50)


def earlier(root: Path, words: list[str]) -> dict[str, tuple[str, ...]]:
    """Return, as a build of these words would find them, an earlier build's neighbours of each image."""
    build_toy(root, words, stages=STAGES[:1])
    with open_toy(root, words) as build:
        for planned in build.planned[:2]:
            build.settle(planned)
        planned = build.planned[1]
        names = build.ledger.part_names("neighbours")
        write_index(root / "before", build.ledger.before(planned.stage), names)
        index = open_index.__wrapped__(build.folder, "before", planned.table)
        names = ["key", "source_key", "subject", "neighbours"]
        rows = list(index.rows(range(len(index)), NeighbourRow, names))
        assert [key.decode() for key in index.images] == sorted({row.subject for row in rows})
    return {row.subject: row.neighbours[0] for row in rows}


def chain(words: list[str]) -> dict[str, tuple[str, ...]]:
    after = dict(zip(words, [(image(word),) for word in words[1:]], strict=False))
    return {image(word): after.get(word, ()) for word in words}


def parts_of(root: Path) -> list[Path]:
    return sorted((root / "tables/neighbours").rglob("part-*.parquet"))


def test_the_rows_of_an_earlier_input_are_found(tmp_path: Path) -> None:
    build_toy(tmp_path, FEW)
    assert earlier(tmp_path, MORE) == chain(FEW)
    assert earlier(tmp_path, FEW[1:]) == chain(FEW)
    assert earlier(tmp_path, FEW) == {}  # of this very input: nothing is owed


def test_of_several_inputs_the_one_with_most_in_common_counts(tmp_path: Path) -> None:
    build_toy(tmp_path, FEW[:2])
    build_toy(tmp_path, MORE)
    build_toy(tmp_path, ["yak", "zebu"])
    assert earlier(tmp_path, FEW) == chain(MORE)
    assert earlier(tmp_path, ["yak"]) == chain(["yak", "zebu"])


def test_an_input_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    build_toy(tmp_path, FEW[:2])
    done = set(parts_of(tmp_path))
    build_toy(tmp_path, FEW, rows_per_shard=2)
    new = [path for path in parts_of(tmp_path) if path not in done]
    assert len(new) == 2
    new[0].unlink()
    assert earlier(tmp_path, MORE) == chain(FEW[:2])


def test_an_input_of_which_another_shard_size_made_rows_twice_counts(tmp_path: Path) -> None:
    build_toy(tmp_path, FEW)
    one = parts_of(tmp_path)[0]
    kept = one.read_bytes()
    one.unlink()
    build_toy(tmp_path, FEW, rows_per_shard=3)
    one.write_bytes(kept)
    assert earlier(tmp_path, MORE) == chain(FEW)


@pytest.mark.parametrize("table", ["neighbours", "pairs"])
def test_parts_of_whole_inputs_say_which(tmp_path: Path, table: str) -> None:
    build_toy(tmp_path, FEW)
    build_toy(tmp_path, MORE)
    with open_toy(tmp_path, MORE) as build:
        for planned in build.planned:
            build.settle(planned)
        here = build.ledger.collection(build.planned[1].stage)
        folder = next(planned.table for planned in build.planned if planned.stage.name == table)
        said = [
            read_about(Part(build.folder, f"{folder}/{name}")).get(COLLECTION) for name in build.folder.names(folder)
            if name.endswith(".parquet")
        ]  # fmt: skip
    assert (here in said, len(set(said))) == ((True, 2) if table == "neighbours" else (False, 1))
