"""A small dataset made by hand: drawn pictures in four groups, their pairs, and every table that a
whole build has.

No stage is run; each table's rows are given, and go through the store's own shards into parts.
Texts are hostile where they can be (markup, quotes), and the pictures have several formats and
sizes.
"""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image, ImageDraw

from pairwright.schemas.config import BuildRecord, Profile, Section, resolve
from pairwright.schemas.rows import (
    CaptionRow,
    ComparisonRow,
    DifferenceRow,
    Dropped,
    ImageRow,
    ItemRow,
    Negative,
    PairRow,
    PreferenceRow,
    RejectedTextRow,
    RejectionRow,
    Row,
    SplitRow,
    Turn,
    make_key,
)
from pairwright.schemas.scene import SceneChange, SceneGraph, SceneObject
from pairwright.tasks.images.masks import encode_mask
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.open_tables import Build, write_items
from pairwright.tasks.store.pool import Workers
from pairwright.tasks.store.snapshot import write_snapshot
from pairwright.tasks.store.stage import Planned, Stage, plan_stage
from tests.fixtures.rows import row_of
from tests.tasks.report.handmade_removals import REMOVING, reject_images, remove_balls

SIZE = (160, 120)
HOSTILE = "<script>document.title='owned'</script> & \"quoted\" <img src=x onerror=alert(1)>"
COLOURS = ("red", "blue", "green", "orange", "purple", "teal")


@dataclass
class Handmade:
    """Rows of every table, by its name."""

    tables: dict[str, list[Row | Dropped]] = field(default_factory=dict)

    def of(self, name: str) -> list:
        return [row for row in self.tables.get(name, []) if isinstance(row, Row)]


def draw(place: int, balls: Sequence[tuple[str, tuple[int, int]]], size=SIZE) -> Image.Image:
    """Draw a table with coloured balls; equal arguments give equal pixels."""
    image = Image.new("RGB", size, ("#e8dfd0", "#d5dde4", "#dfe6d8", "#e6d8df")[place % 4])
    pen = ImageDraw.Draw(image)
    pen.rectangle(
        (0, size[1] * 0.62, *size), fill=("#b58d63", "#8a97a6", "#7f9a72", "#a67f92")[place % 4]
    )
    for colour, (x, y) in balls:
        pen.ellipse(ball_box(x, y, size), fill=colour, outline="black")
    return image


def ball_box(x, y, size=SIZE):
    radius = size[0] // 10
    return (
        x * size[0] // 100 - radius,
        y * size[1] // 100 - radius,
        x * size[0] // 100 + radius,
        y * size[1] // 100 + radius,
    )


def encode(image: Image.Image, form: str) -> bytes:
    sink = io.BytesIO()
    image.save(sink, format=form.upper())
    return sink.getvalue()


def ball_mask(x, y, size=SIZE):
    """Return the pixels of a ball by the equation of the circle."""
    left, top, right, bottom = ball_box(x, y, size)
    ys, xs = np.mgrid[: size[1], : size[0]]
    return encode_mask(
        (xs - (left + right) / 2) ** 2 + (ys - (top + bottom) / 2) ** 2 <= ((right - left) / 2) ** 2
    )


def make_images(groups: int, photographs: int, *, size=SIZE) -> list[ImageRow]:
    """Draw photographs of worlds; in each photograph after the first, one ball has another
    colour."""
    rows = []
    for world in range(groups):
        rng = Random(world)
        places = [(x, rng.randint(45, 80)) for x in (20, 50, 80)]
        colours = [rng.choice(COLOURS) for _ in places]
        for number in range(photographs):
            shown, changes, changed = list(colours), [], number % 3
            if number:
                shown[changed] = COLOURS[(COLOURS.index(colours[changed]) + number) % 6]
                change = {
                    "object_id": f"ball{changed}",
                    "before": colours[changed],
                    "after": shown[changed],
                }
                changes = [SceneChange(type="colour", **change)]
            form = ("png", "jpeg", "webp", "tiff")[number % 4]
            data = encode(draw(world, list(zip(shown, places, strict=True)), size), form)
            key = make_key(data)
            graph = SceneGraph(
                world=f"world{world}",
                photograph=number,
                place="a wooden table-top",
                light="warm light",
                viewpoint="a low viewpoint",
                objects=tuple(_ball(i, shown[i], places[i], size) for i in range(3)),
                changes=tuple(changes),
            )
            rows.append(
                ImageRow(
                    key=key,
                    source_key=make_key("item", world, number),
                    subject=key,
                    image=data,
                    format=form,
                    width=size[0],
                    height=size[1],
                    name=f"world {world} <b>photograph</b> {number}",
                    source="drawn",
                    licence="CC0-1.0",
                    group=f"world{world}",
                    graph=graph,
                )
            )
    return rows


def _ball(number, colour, place, size) -> SceneObject:
    return SceneObject(
        id=f"ball{number}",
        shape="ball",
        colour=colour,
        material="rubber",
        size="small",
        depth="front",
        visible=1.0,
        column=("left", "centre", "right")[number],
        box=ball_box(*place, size),
        mask=ball_mask(*place, size),
    )


def make_pairs(images: Sequence[ImageRow]) -> list[PairRow]:
    """Pair neighbours in the list: mostly of one group, now and then of two."""
    rows = []
    for n, (a, b) in enumerate(pairwise(images)):
        first, second = sorted([a.key, b.key])
        key = make_key("pair", first, second)
        rows.append(
            PairRow(
                key=key,
                source_key=a.key,
                subject=key,
                first=first,
                second=second,
                origin="mined",
                anchor=a.key,
                cluster=n % 3,
                embedders=("layout", "gradients"),
                similarity=0.79 + n % 14 / 100,
                similarities=(0.80 + n % 16 / 100, 0.78 + n % 11 / 100),
            )
        )
    return rows


def about_pair(
    pair: PairRow, images: dict[str, ImageRow], split: str, rejection: RejectionRow
) -> dict[str, list[Row]]:
    """Return one row of each table about a pair."""
    first, second = images[pair.first], images[pair.second]
    chosen = (
        f"The first image shows a {_words(first)}. In the second image the ball is "
        f"recoloured. {HOSTILE}"
    )
    wrong = {
        "edited": (chosen.replace("ball", "cube", 1), 0.9, 2),
        "swapped": (chosen.replace("first", "second", 1), 0.8, 0),
        "retrieved": ("The lamp is switched on and two books are missing.", 0.4, 1),
    }
    texts = {
        maker: [
            row_of(
                RejectedTextRow,
                maker,
                pair.key,
                source=pair.key,
                text=text,
                maker=maker,
                note=f"{maker}: ball -> cube",
                score=score,
                skipped_true=skipped,
            )
        ]
        for maker, (text, score, skipped) in wrong.items()
    }
    negatives = [
        Negative(text=wrong[m][0], maker=m, note="", score=wrong[m][1])
        for m in ("swapped", "retrieved")
    ]
    preference = row_of(
        PreferenceRow,
        "preference",
        pair.key,
        source=pair.key,
        prompt=(Turn(role="user", text="What differs?"),),
        images=(first.image, second.image),
        image_keys=(first.key, second.key),
        chosen=chosen,
        chosen_model="by hand",
        rejected=wrong["edited"][0],
        rejected_maker="edited",
        rejected_note="ball -> cube",
        negatives=tuple(negatives),
        rejected_images=(first.image, second.image) if rejection.maker else (),
        rejected_image_maker=rejection.maker,
        removal_scores=rejection.removal_scores,
        component=f"component-{split}",
        split=split,
        sources=(first.source, second.source),
        licences=(first.licence, second.licence),
    )
    difference = row_of(
        DifferenceRow,
        "difference",
        pair.key,
        source=pair.key,
        text=chosen,
        first_half=chosen[:40],
        second_half=chosen[40:],
        verbs=("shows", "recoloured"),
        attempts=1,
        model="by hand",
        claims="[]",
    )
    turns = ("Compare them.", "Both show a table.", f"Which one is described: {HOSTILE}", "Image 2")
    comparison = row_of(
        ComparisonRow,
        "comparison",
        pair.key,
        source=pair.key,
        text="Both...",
        commonalities=("Both images show a table.",),
        differences=("The left ball is red in Image 1 and blue in Image 2.",),
        axes=("attributes",),
        conversation=tuple(
            Turn(role=("user", "assistant")[n % 2], text=text) for n, text in enumerate(turns)
        ),
        model="by hand",
    )
    row = row_of(
        SplitRow, "split", pair.key, source=pair.key, component=f"component-{split}", split=split
    )
    return {
        **texts,
        "differences": [difference],
        "comparisons": [comparison],
        "splits": [row],
        "preferences": [preference],
    }


def _words(image: ImageRow) -> str:
    return " and a ".join(f"{one.colour} ball" for one in image.graph.objects)


def make_whole(groups: int = 6, photographs: int = 4) -> Handmade:
    """Return every table; the first third of the pairs trains, the next validates, the rest
    tests."""
    images = make_images(groups, photographs)
    by_key = {row.key: row for row in images}
    pairs = make_pairs(images)
    made = Handmade(
        {
            "images": [*images],
            "pairs": [*pairs, Dropped(source_key=images[-1].key, reason="no candidate <left>")],
        }
    )
    made.tables["captions"] = [
        row_of(
            CaptionRow,
            "caption",
            row.key,
            source=row.key,
            text=f"A {_words(row)}. {HOSTILE}",
            model="by hand",
        )
        for row in images
    ]
    for number, row in enumerate(images):
        for name, rows in remove_balls(row, number, HOSTILE).items():
            made.tables.setdefault(name, []).extend(rows)
    inspected = {row.element: row for row in made.of("inspected")}
    elements = {
        row.key: [one for one in made.of("elements") if one.subject == row.key and not one.why]
        for row in images
    }
    rejections = [
        reject_images(
            pair.key, [(elements[key], inspected) for key in (pair.first, pair.second)], n
        )
        for n, pair in enumerate(pairs)
    ]
    made.tables["rejections"] = [*rejections]
    splits = ("train", "validation", "test")
    for n, pair in enumerate(pairs):
        if n % (len(pairs) // 3 + 1) == 0 and n:
            continue  # left out, so that no image is in two splits
        for name, rows in about_pair(
            pair, by_key, splits[n // (len(pairs) // 3 + 1)], rejections[n]
        ).items():
            made.tables.setdefault(name, []).extend(rows)
    return made


def make_given(groups: int = 3, photographs: int = 4) -> Handmade:
    """Return a dataset whose preferences the source brought, each about one image; two of its first
    image."""
    whole = make_whole(groups, photographs)
    steps = ("tags", "boxes", "masks", "elements", "removals", "inspected")
    made = Handmade(
        {"images": whole.tables["images"], **{name: whole.tables[name] for name in steps}}
    )
    inspected = {row.element: row for row in made.of("inspected")}
    for name in ("given_preferences", "rejections", "preferences"):
        made.tables[name] = []
    for n, image in enumerate([made.of("images")[0], *made.of("images")]):
        given = _given(image, n)
        elements = [row for row in made.of("elements") if row.subject == image.key and not row.why]
        rejection = reject_images(given.key, [(elements, inspected)], n)
        made.tables["given_preferences"].append(given)
        made.tables["rejections"].append(rejection)
        made.tables["preferences"].append(
            replace(
                given,
                key=make_key("rejected", given.key),
                source_key=given.key,
                rejected_images=(image.image,) if rejection.maker else (),
                removal_scores=rejection.removal_scores,
                rejected_image_maker=rejection.maker,
            )
        )
    return made


def _given(image: ImageRow, n: int) -> PreferenceRow:
    return row_of(
        PreferenceRow,
        "given",
        image.key,
        n,
        source=image.key,
        prompt=(Turn(role="user", text=f"What is shown? {HOSTILE}"),),
        images=(image.image,),
        image_keys=(image.key,),
        chosen=f"There is a {_words(image)}. {HOSTILE}",
        chosen_model="given",
        rejected=f"There is a lamp. {HOSTILE}",
        rejected_maker="given",
        component="component",
        split="train",
        sources=(image.source,),
        licences=(image.licence,),
    )


LINE = (
    ("images", "items", ItemRow, ImageRow, "sources"),
    ("pairs", "images", ImageRow, PairRow, "mining"),
    ("captions", "images", ImageRow, CaptionRow, "captioning"),
    ("described", "pairs", PairRow, DifferenceRow, "captioning"),
    ("differences", "pairs", PairRow, DifferenceRow, "captioning"),
    ("comparisons", "pairs", PairRow, ComparisonRow, "captioning"),
    ("swapped", "pairs", PairRow, RejectedTextRow, "rejected"),
    ("edited", "pairs", PairRow, RejectedTextRow, "rejected"),
    ("retrieved", "pairs", PairRow, RejectedTextRow, "rejected"),
    *REMOVING,
    ("splits", "pairs", PairRow, SplitRow, "preferences"),
    ("preferences", "pairs", PairRow, PreferenceRow, "preferences"),
)
LINE_GIVEN = (
    LINE[0],
    ("given_preferences", "images", ImageRow, PreferenceRow, "sources"),
    *REMOVING[:-1],
    ("rejections", "given_preferences", PreferenceRow, RejectionRow, "rejected"),
    ("preferences", "given_preferences", PreferenceRow, PreferenceRow, "preferences"),
)


def plan_handmade(made: Handmade, until: str = "preferences", line=LINE) -> list[Planned]:
    """Return stages that give the rows made by hand."""
    planned, tables = [], {}
    for name, reads, row, writes, group in line[: [one[0] for one in line].index(until) + 1]:
        stage = Stage(
            name=name,
            version=1,
            group=group,
            reads={reads: row},
            writes=writes,
            config=Section,
            function=_giver(
                made.tables.get(name)
                or made.tables.get(name.replace("described", "differences"), [])
            ),
        )
        step = plan_stage(stage, Section(), inputs=stage.inputs(Section()), tables=tables)
        tables[name] = step.fingerprint
        planned.append(step)
    return planned


def _giver(rows):
    by_source: dict[str, list] = {}
    for row in rows:
        by_source.setdefault(row.source_key, []).append(row)

    def give(inputs, config):
        for row in inputs:
            yield from by_source.get(row.key, [Dropped(source_key=row.key, reason="not made")])

    return give


@contextmanager
def build_handmade(
    root: Path, made: Handmade, until: str = "preferences", line=LINE, rows_per_shard: int = 7
) -> Iterator[tuple[Build, list[Counts]]]:
    """Write the dataset, publish a version, and yield it settled, with its counts."""
    folder = Folder(str(root))
    planned = plan_handmade(made, until, line)
    keys = dict.fromkeys(row.source_key for row in made.tables.get("images", []))
    items = write_items(
        folder,
        [ItemRow(key=k, source_key=k, subject=k, name=k, locator=json.dumps(k)) for k in keys],
    )
    with Workers(1) as pool, Build(folder, planned, items, rows_per_shard=rows_per_shard) as build:
        counts = []
        for stage in planned:
            build.settle(stage)
            outcomes = list(pool.submit(stage, build.shards(stage)))
            assert all(hasattr(outcome.result, "part") for outcome in outcomes), outcomes
            counts.append(build.settle(stage))
        record = BuildRecord(
            items=tuple(items), profile=resolve(PROFILE, {}), limit=None, until=until
        )
        write_snapshot(build, list(zip(planned, counts, strict=True)), record=record)
        yield build, counts


PROFILE = Profile(name="handmade", source="scenes:")
