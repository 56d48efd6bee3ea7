"""Fingerprints change with what decides a stage's rows, and with nothing else."""

from dataclasses import replace
from typing import ClassVar

import pytest

from pairwright.schemas.config import Section, SourceConfig
from pairwright.schemas.rows import CaptionRow, ImageRow, ItemRow, PairRow
from pairwright.tasks.store.stage import Stage, Uses, fingerprint


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


STAGE = Stage(
    name="captions",
    version=1,
    group="captioning",
    reads={"images": ImageRow},
    writes=CaptionRow,
    function=lambda rows, config: iter(()),
    config=Section,
    uses=(Uses(table="pairs", row=PairRow),),
    prompts=("describe",),
    only_in=("chosen",),
    models=lambda config: (f"model {config.name}@1",),
)
PROMPTS = {"describe": "a" * 64, "another": "b" * 64}
TABLES = {"images": "1" * 16, "pairs": "2" * 16, "chosen": "3" * 16, "splits": "4" * 16}
START = fingerprint(STAGE, Config(), inputs=STAGE.inputs(Config()), prompts=PROMPTS, tables=TABLES)


DECIDING = {
    "stage": [
        {"version": 2},
        {"models": lambda config: ("model x@2",)},
        {"prompts": ("another",)},
        {"uses": ()},
    ],
    "config": [{"threshold": 0.6}, {"inner": Inner(size=2)}],
    "prompts": [{"describe": "c" * 64}],
    "tables": [{"images": "5" * 16}, {"chosen": "5" * 16}],
}
OTHER = {
    "stage": [{}, {"rows_per_shard": 7, "journal": "results"}],
    "config": [{"place": "elsewhere"}, {"inner": Inner(speed=2)}],
    "prompts": [{"another": "c" * 64}],
    "tables": [{"splits": "5" * 16}],
}
CASES = [
    (kind, case, kinds is DECIDING)
    for kinds in (DECIDING, OTHER)
    for kind in kinds
    for case in kinds[kind]
]


@pytest.mark.parametrize(("kind", "case", "decides"), CASES)
def test_what_decides_rows_changes_the_fingerprint_and_nothing_else_does(
    kind: str, case: dict, decides: bool
) -> None:
    changed = {"stage": {}, "config": {}, "prompts": {}, "tables": {}, kind: case}
    stage, config = replace(STAGE, **changed["stage"]), Config(**changed["config"])
    other = fingerprint(
        stage,
        config,
        inputs=stage.inputs(config),
        prompts=PROMPTS | changed["prompts"],
        tables=TABLES | changed["tables"],
    )
    assert (other != START) == decides


def test_the_place_of_a_source_does_not_count_and_its_rules_do() -> None:
    def mark(**options: object) -> str:
        values = {
            "kind": "folder",
            "path": "/a",
            "images": {},
            "reading": {},
            "scenes": {},
            **options,
        }
        stage = replace(
            STAGE, reads={"items": ItemRow}, uses=(), only_in=(), prompts=(), models=None
        )
        config = SourceConfig.model_validate(values)
        return fingerprint(stage, config, inputs=stage.inputs(config), prompts={}, tables={})

    assert mark() == mark(path="/b") == mark(scenes={"worlds": 7})
    assert len({mark(), mark(kind="scenes"), mark(images={"min_side": 17})}) == 3
