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

from pairwright.schemas.config import BuildRecord, Profile, Section, add_findings
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
WALLS = ("#e8dfd0", "#d5dde4", "#dfe6d8", "#e6d8df")
TABLES = ("#b58d63", "#8a97a6", "#7f9a72", "#a67f92")
SPLITS = ("train", "validation", "test")


@dataclass
class Handmade:
    """Rows of every table, by its name."""

    tables: dict[str, list[Row | Dropped]] = field(default_factory=dict)

    def of(self, name: str) -> list:
        return [row for row in self.tables.get(name, []) if isinstance(row, Row)]

    def add(self, **rows: Row) -> None:
        """Add a row to each of some tables."""
        for name, row in rows.items():
            self.tables.setdefault(name, []).append(row)


def draw(place: int, balls: Sequence[tuple[str, tuple[int, int]]], size=SIZE) -> Image.Image:
    """Draw a table with coloured balls; equal arguments give equal pixels."""
    image = Image.new("RGB", size, WALLS[place % 4])
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, size[1] * 0.62, *size), fill=TABLES[place % 4])
    for colour, (x, y) in balls:
        pen.ellipse(ball_box(x, y, size), fill=colour, outline="black")
    return image


def ball_box(x, y, size=SIZE):
    radius = size[0] // 10
    middle_x, middle_y = x * size[0] // 100, y * size[1] // 100
    return (middle_x - radius, middle_y - radius, middle_x + radius, middle_y + radius)


def encode(image: Image.Image, form: str) -> bytes:
    sink = io.BytesIO()
    image.save(sink, format=form.upper())
    return sink.getvalue()


def ball_mask(x, y, size=SIZE):
    """Return the pixels of a ball by the equation of the circle."""
    left, top, right, bottom = ball_box(x, y, size)
    ys, xs = np.mgrid[: size[1], : size[0]]
    distance = (xs - (left + right) / 2) ** 2 + (ys - (top + bottom) / 2) ** 2
    return encode_mask(distance <= ((right - left) / 2) ** 2)


def make_images(groups: int, photographs: int, *, size=SIZE) -> list[ImageRow]:
    """Draw photographs of worlds; in each photograph after the first, one ball has another
    colour."""
    rows = []
    for world in range(groups):
        rng = Random(world)
        places = [(x, rng.randint(45, 80)) for x in (20, 50, 80)]
        colours = [rng.choice(COLOURS) for _ in places]
        for number in range(photographs):
            rows.append(_photograph(world, number, places, colours, size))
    return rows


def _photograph(world: int, number: int, places, colours, size) -> ImageRow:
    shown, changes, ball = list(colours), [], number % 3
    if number:
        shown[ball] = COLOURS[(COLOURS.index(colours[ball]) + number) % 6]
        turned = {"before": colours[ball], "after": shown[ball]}
        changes = [SceneChange(type="colour", object_id=f"ball{ball}", **turned)]
    form = ("png", "jpeg", "webp", "tiff")[number % 4]
    data = encode(draw(world, list(zip(shown, places, strict=True)), size), form)
    graph = SceneGraph(
        world=f"world{world}",
        photograph=number,
        place="a wooden table-top",
        light="warm light",
        viewpoint="a low viewpoint",
        objects=tuple(_ball(n, shown[n], places[n], size) for n in range(3)),
        changes=tuple(changes),
    )
    key = make_key(data)
    about = {"name": f"world {world} <b>photograph</b> {number}", "group": f"world{world}"}
    about |= {"source": "drawn", "licence": "CC0-1.0", "graph": graph, "image": data}
    about |= {"format": form, "width": size[0], "height": size[1]}
    return ImageRow(key=key, source_key=make_key("item", world, number), subject=key, **about)


def _ball(number, colour, place, size) -> SceneObject:
    looks = {"shape": "ball", "colour": colour, "material": "rubber", "size": "small"}
    column = ("left", "centre", "right")[number]
    where = {"depth": "front", "visible": 1.0, "column": column}
    shape = {"box": ball_box(*place, size), "mask": ball_mask(*place, size)}
    return SceneObject(id=f"ball{number}", **looks, **where, **shape)


def make_pairs(images: Sequence[ImageRow]) -> list[PairRow]:
    """Pair neighbours in the list: mostly of one group, now and then of two."""
    rows = []
    for n, (image, other) in enumerate(pairwise(images)):
        first, second = sorted([image.key, other.key])
        key = make_key("pair", first, second)
        about = {"origin": "mined", "anchor": image.key, "cluster": n % 3}
        about |= {"similarity": 0.79 + n % 14 / 100, "embedders": ("layout", "gradients")}
        about |= {"similarities": (0.80 + n % 16 / 100, 0.78 + n % 11 / 100)}
        ends = {"key": key, "subject": key, "first": first, "second": second}
        rows.append(row_of(PairRow, source=image.key, **ends, **about))
    return rows


def about_pair(
    pair: PairRow, images: dict[str, ImageRow], split: str, rejection: RejectionRow
) -> dict[str, Row]:
    """Return one row of each table about a pair."""
    both = (images[pair.first], images[pair.second])
    chosen = (
        f"The first image shows a {_balls(both[0])}. In the second image the ball is "
        f"recoloured. {HOSTILE}"
    )
    wrong = {
        "edited": (chosen.replace("ball", "cube", 1), 0.9, 2),
        "swapped": (chosen.replace("first", "second", 1), 0.8, 0),
        "retrieved": ("The lamp is switched on and two books are missing.", 0.4, 1),
    }
    texts = {}
    for maker, (text, score, skipped) in wrong.items():
        how = {"maker": maker, "note": f"{maker}: ball -> cube", "skipped_true": skipped}
        texts[maker] = row_of(
            RejectedTextRow, maker, pair.key, source=pair.key, text=text, score=score, **how
        )
    component = {"component": f"component-{split}"}
    negatives = tuple(
        Negative(text=wrong[maker][0], maker=maker, note="", score=wrong[maker][1])
        for maker in ("swapped", "retrieved")
    )
    preference = row_of(
        PreferenceRow,
        *("preference", pair.key),
        source=pair.key,
        prompt=(Turn(role="user", text="What differs?"),),
        images=tuple(row.image for row in both),
        image_keys=tuple(row.key for row in both),
        sources=tuple(row.source for row in both),
        licences=tuple(row.licence for row in both),
        chosen=chosen,
        chosen_model="by hand",
        rejected=wrong["edited"][0],
        rejected_maker="edited",
        rejected_note="ball -> cube",
        negatives=negatives,
        rejected_images=tuple(row.image for row in both) if rejection.maker else (),
        rejected_image_maker=rejection.maker,
        removal_scores=rejection.removal_scores,
        split=split,
        **component,
    )
    halves = {"first_half": chosen[:40], "second_half": chosen[40:], "claims": "[]"}
    how = {"verbs": ("shows", "recoloured"), "attempts": 1, "model": "by hand"}
    difference = row_of(
        DifferenceRow, "difference", pair.key, source=pair.key, text=chosen, **halves, **how
    )
    return {
        **texts,
        "differences": difference,
        "comparisons": _comparison(pair),
        "splits": row_of(SplitRow, "split", pair.key, source=pair.key, split=split, **component),
        "preferences": preference,
    }


def _comparison(pair: PairRow) -> ComparisonRow:
    texts = ("Compare them.", "Both show a table.", f"Which one is described: {HOSTILE}", "Image 2")
    roles = ("user", "assistant") * 2
    turns = [Turn(role=role, text=text) for role, text in zip(roles, texts, strict=True)]
    statements = {
        "commonalities": ("Both images show a table.",),
        "differences": ("The left ball is red in Image 1 and blue in Image 2.",),
        "axes": ("attributes",),
    }
    how = {"text": "Both...", "conversation": tuple(turns), "model": "by hand"}
    return row_of(ComparisonRow, "comparison", pair.key, source=pair.key, **statements, **how)


def _balls(image: ImageRow) -> str:
    return " and a ".join(f"{ball.colour} ball" for ball in image.graph.objects)


def make_whole(groups: int = 6, photographs: int = 4) -> Handmade:
    """Return every table; the first third of the pairs trains, the next validates, the rest
    tests."""
    images = make_images(groups, photographs)
    by_key = {row.key: row for row in images}
    pairs = make_pairs(images)
    lonely = Dropped(source_key=images[-1].key, reason="no candidate <left>")
    made = Handmade({"images": [*images], "pairs": [*pairs, lonely]})
    for number, row in enumerate(images):
        text = f"A {_balls(row)}. {HOSTILE}"
        about = {"source": row.key, "text": text, "model": "by hand"}
        made.add(captions=row_of(CaptionRow, "caption", row.key, **about))
        for name, rows in remove_balls(row, number, HOSTILE).items():
            made.tables.setdefault(name, []).extend(rows)
    third = len(pairs) // 3 + 1
    for n, pair in enumerate(pairs):
        rejection = _reject(made, pair.key, (pair.first, pair.second), n)
        made.add(rejections=rejection)
        if n % third or not n:  # the others are left out, so that no image is in two splits
            made.add(**about_pair(pair, by_key, SPLITS[n // third], rejection))
    return made


def _reject(made: Handmade, subject: str, images: Sequence[str], n: int) -> RejectionRow:
    inspected = {row.element: row for row in made.of("inspected")}
    removable = [row for row in made.of("elements") if not row.why]
    sides = [([row for row in removable if row.subject == key], inspected) for key in images]
    return reject_images(subject, sides, n)


def make_given(groups: int = 3, photographs: int = 4) -> Handmade:
    """Return a dataset whose preferences the source brought, each about one image; two of its first
    image."""
    whole = make_whole(groups, photographs)
    steps = ("images", "tags", "boxes", "masks", "elements", "removals", "inspected")
    made = Handmade({name: whole.tables[name] for name in steps})
    for n, image in enumerate([made.of("images")[0], *made.of("images")]):
        given = _given(image, n)
        rejection = _reject(made, given.key, (image.key,), n)
        images = (image.image,) if rejection.maker else ()
        how = {"removal_scores": rejection.removal_scores, "rejected_images": images}
        names = {"key": make_key("rejected", given.key), "source_key": given.key}
        preference = replace(given, rejected_image_maker=rejection.maker, **names, **how)
        made.add(given_preferences=given, rejections=rejection, preferences=preference)
    return made


def _given(image: ImageRow, n: int) -> PreferenceRow:
    return row_of(
        *(PreferenceRow, "given", image.key, n),
        source=image.key,
        prompt=(Turn(role="user", text=f"What is shown? {HOSTILE}"),),
        images=(image.image,),
        image_keys=(image.key,),
        chosen=f"There is a {_balls(image)}. {HOSTILE}",
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
PROFILE = Profile(name="handmade", source="scenes:")


def plan_handmade(made: Handmade, until: str = "preferences", line=LINE) -> list[Planned]:
    """Return stages that give the rows made by hand."""
    planned, tables = [], {}
    for name, reads, row, writes, group in line[: [step[0] for step in line].index(until) + 1]:
        named = made.tables.get(name.replace("described", "differences"), [])
        give = _giver(made.tables.get(name) or named)
        how = {"version": 1, "group": group, "config": Section, "function": give}
        stage = Stage(name=name, reads={reads: row}, writes=writes, **how)
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
    """Write the dataset, publish a version, and yield it resolved, with its counts."""
    folder = Folder(str(root))
    planned = plan_handmade(made, until, line)
    keys = dict.fromkeys(row.source_key for row in made.tables.get("images", []))
    rows = [ItemRow(key=k, source_key=k, subject=k, name=k, locator=json.dumps(k)) for k in keys]
    items = write_items(folder, rows)
    with Workers(1) as pool, Build(folder, planned, items, rows_per_shard=rows_per_shard) as build:
        counts = []
        for stage in planned:
            build.resolve(stage)
            outcomes = list(pool.submit(stage, build.shards(stage)))
            assert all(hasattr(outcome.result, "part") for outcome in outcomes), outcomes
            counts.append(build.resolve(stage))
        profile = add_findings(PROFILE, {})
        record = BuildRecord(items=tuple(items), profile=profile, limit=None, until=until)
        write_snapshot(build, list(zip(planned, counts, strict=True)), record=record)
        yield build, counts
