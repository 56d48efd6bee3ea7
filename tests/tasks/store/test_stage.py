"""Fingerprints change with what decides a stage's rows, and with nothing else."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from pairwright.schemas.config import Section, SourceConfig
from pairwright.schemas.rows import CaptionRow, ImageRow, ItemRow, PairRow
from pairwright.tasks.store.stage import Uses, fingerprint
from tests.tasks.store.toy import stage


class Inner(Section):
    uncounted: ClassVar[frozenset[str]] = frozenset({"speed"})
    size: int = 1
    speed: int = 1


class Config(Section):
    uncounted: ClassVar[frozenset[str]] = frozenset({"place"})
    threshold: float = 0.5
    name: str = "x"
    place: str = "here"
    inner: Inner = Inner()


STAGE = stage(
    "captions",
    lambda rows, config: iter(()),
    {"images": ImageRow},
    CaptionRow,
    Uses(table="pairs", row=PairRow),
    prompts=("describe",),
    only_in=("chosen",),
    models=lambda config: (f"model {config.name}@1",),
)
PROMPTS = {"describe": "a" * 64, "another": "b" * 64}
TABLES = {"images": "1" * 16, "pairs": "2" * 16, "chosen": "3" * 16, "splits": "4" * 16}
NOTHING: Mapping[str, Any] = {}


def mark(
    stage_fields: Mapping[str, Any] = NOTHING,
    config: Config | None = None,
    prompts: Mapping[str, str] = NOTHING,
    tables: Mapping[str, str] = NOTHING,
) -> str:
    """Return the fingerprint of the stage with something changed."""
    changed, config = replace(STAGE, **stage_fields), config or Config()
    inputs = changed.inputs(config)
    prompts, tables = PROMPTS | dict(prompts), TABLES | dict(tables)
    return fingerprint(changed, config, inputs=inputs, prompts=prompts, tables=tables)


DECIDING = {
    "version": {"stage_fields": {"version": 2}},
    "model": {"stage_fields": {"models": lambda config: ("model x@2",)}},
    "another prompt": {"stage_fields": {"prompts": ("another",)}},
    "used table": {"stage_fields": {"uses": ()}},
    "setting": {"config": Config(threshold=0.6)},
    "inner setting": {"config": Config(inner=Inner(size=2))},
    "prompt's text": {"prompts": {"describe": "c" * 64}},
    "input": {"tables": {"images": "5" * 16}},
    "filter": {"tables": {"chosen": "5" * 16}},
}
INDIFFERENT = {
    "shards": {"stage_fields": {"rows_per_shard": 7, "journal": "results"}},
    "uncounted": {"config": Config(place="elsewhere")},
    "inner uncounted": {"config": Config(inner=Inner(speed=2))},
    "unused prompt": {"prompts": {"another": "c" * 64}},
    "unused table": {"tables": {"splits": "5" * 16}},
}


@pytest.mark.parametrize("changes", DECIDING.values(), ids=DECIDING)
def test_what_decides_rows_changes_the_fingerprint(changes: dict[str, Any]) -> None:
    assert mark(**changes) != mark()


@pytest.mark.parametrize("changes", INDIFFERENT.values(), ids=INDIFFERENT)
def test_what_decides_no_row_leaves_the_fingerprint(changes: dict[str, Any]) -> None:
    assert mark(**changes) == mark()


def source_mark(**options: object) -> str:
    sections: dict[str, object] = {"images": {}, "reading": {}, "scenes": {}, "planted": {}}
    values = {"kind": "folder", "path": "/a", **sections, **options}
    config = SourceConfig.model_validate(values)
    reader = stage("captions", iter, {"items": ItemRow}, CaptionRow)
    return fingerprint(reader, config, inputs=reader.inputs(config), prompts={}, tables={})


def test_the_place_of_a_source_does_not_count_and_its_rules_do() -> None:
    assert source_mark() == source_mark(path="/b") == source_mark(scenes={"worlds": 7})
    rules = {source_mark(), source_mark(kind="scenes"), source_mark(images={"min_side": 17})}
    assert len(rules) == 3
