"""What a source brings is made worse; what is about an image goes with it."""

from dataclasses import replace

import numpy as np

import pairwright as pw
from pairwright.schemas.config import Profile, RobustnessConfig
from pairwright.schemas.rows import ComparisonRow, ImageRow, PreferenceRow, Turn, make_key
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.models.perturb import perturb_image
from pairwright.tasks.sources.read_items import IMAGES as STAGE
from pairwright.tasks.sources.read_items import perturb_source
from pairwright.tasks.store.stage import plan_stage
from tests.fixtures.exports import preference
from tests.fixtures.graphs import pair_row
from tests.fixtures.layouts import write_image_editing_request
from tests.fixtures.pictures import photograph, picture
from tests.fixtures.rows import row_of
from tests.fixtures.sources import Source
from tests.fixtures.tables import build

FOG = RobustnessConfig(corruption="fog", severity=5)
WORDS = RobustnessConfig(word_share=0.5)
FEWER_WORDS = RobustnessConfig(word_share=0.4)
BOTH = RobustnessConfig(corruption="gaussian-noise", severity=3, word_share=0.5)
STATEMENT, OTHER = "Image 1 contains a surfboard.", "There are three people in both."
TEXT = f"Commonalities: {OTHER}\n\nDifferences:\n1. Object types: {STATEMENT}"


def image(number, item="item"):
    data = picture(number, kind="JPEG")
    captions = ("a red ball on the grass",)
    return photograph(data, name=str(number), source_key=item, captions=captions)


def pair(first, second):
    row = pair_row(first.key, second.key)
    texts = {"human_differences": ("remove the flag", "brighten"), "instruction": "remove the flag"}
    return replace(row, key="p", source_key=first.source_key, subject="p", origin="edit", **texts)


def comparison(of):
    turns = (Turn(role="user", text=f"Is it so? {STATEMENT}"), Turn(role="assistant", text=TEXT))
    return row_of(
        ComparisonRow,
        source=of.source_key,
        subject=of.key,
        text=TEXT,
        commonalities=(OTHER,),
        differences=(STATEMENT,),
        axes=("object types",),
        conversation=(*turns, Turn(role="assistant", text="B")),
    )


def wrong(before, after):
    """Return how many words differ."""
    return sum(a != b for a, b in zip(before.split(), after.split(), strict=True))


def test_a_pair_goes_with_its_images() -> None:
    rows = [image(0), image(1), pair(image(0), image(1)), comparison(pair(image(0), image(1)))]
    first, second, made, compared = perturb_source(rows, BOTH)
    for before, after in zip(rows, (first, second), strict=False):
        right = perturb_image(
            decode_rgb(before.image), "gaussian-noise", severity=3, key=before.key
        )
        assert np.array_equal(decode_rgb(after.image), right)
        assert after.key == after.subject == make_key(after.image) != before.key
        assert after.format == "png"
        assert wrong(before.captions[0], after.captions[0]) == 3  # of 6 words
    assert (made.first, made.second) == (first.key, second.key)
    assert made.key == made.subject == compared.subject != "p"
    assert made.instruction == made.human_differences[0]
    both = zip(("remove the flag", "brighten"), made.human_differences, strict=True)
    assert [wrong(*texts) for texts in both] == [2, 1]
    assert compared.key != rows[-1].key
    parts = compared.commonalities[0], compared.differences[0]
    assert compared.text == "Commonalities: {}\n\nDifferences:\n1. Object types: {}".format(*parts)
    assert wrong(OTHER, compared.commonalities[0]) == wrong(STATEMENT, compared.differences[0]) == 3
    turns = [turn.text for turn in compared.conversation]
    assert turns == [f"Is it so? {STATEMENT}", compared.text, "B"]


def test_a_preference_shows_the_images_of_its_item() -> None:
    shown = [image(0), image(1)]
    keys = tuple(one.key for one in shown)
    before = replace(
        preference(0, negatives=("a blue cup",)),
        source_key="item",
        subject="p",
        component=keys[0],
        image_keys=keys,
        images=tuple(one.image for one in shown),
        rejected_images=(shown[0].image, picture(7)),
        chosen="a red ball lies there",
        rejected="a blue ball lies there",
    )
    first, second, _, after = perturb_source([*shown, pair(*shown), before], BOTH)
    assert isinstance(after, PreferenceRow)
    assert after.images == (first.image, second.image)
    assert after.rejected_images[0] == first.image  # the side that was kept shows the same noise
    assert after.rejected_images[1] not in (second.image, picture(7))
    assert after.image_keys == (first.key, second.key)
    assert after.component == first.key
    assert [wrong(before.chosen, after.chosen), wrong(before.rejected, after.rejected)] == [3, 3]
    assert wrong("a blue cup", after.negatives[0].text) == 2
    assert after.prompt == before.prompt
    assert next(perturb_source([replace(before, rejected_images=())], FOG)).rejected_images == ()


def test_neither_order_nor_company_matter() -> None:
    rows = [image(0, "a"), image(1, "b"), image(0, "c")]
    together = [row.image for row in perturb_source(rows, FOG)]
    alone = [next(perturb_source([row], FOG)).image for row in reversed(rows)]
    assert together == alone[::-1]
    assert together[0] == together[2]


def test_it_is_part_of_the_fingerprint_only_where_it_is_on() -> None:
    sections = (RobustnessConfig(), RobustnessConfig(severity=3), FOG, WORDS, FEWER_WORDS)
    inputs = STAGE.inputs(Profile().source_config)
    marks = {
        plan_stage(
            STAGE, Profile(robustness=one).source_config, inputs=inputs, tables={}
        ).fingerprint
        for one in sections
    }
    assert len(marks) == 4
    assert "robustness" not in Profile().source_config.model_dump()


def test_a_build_reads_it_so(tmp_path) -> None:
    settings = ("robustness.corruption=fog", "robustness.word_share=0.4")
    write_image_editing_request(tmp_path / "in")
    rows = Source("image-editing-request", tmp_path / "in").read()
    clean = {row.key for row in rows if isinstance(row, ImageRow)}
    counts, _ = build(f"image-editing-request:{tmp_path / 'in'}", tmp_path / "out", *settings)
    assert (counts["images"].of, counts["images"].ok, counts["pairs"].ok) == (4, 4, 4)
    images = {row.key: row for row in pw.open(tmp_path / "out")["images"].rows()}
    assert len(images) == len(clean)
    assert images.keys().isdisjoint(clean)
    for row in pw.open(tmp_path / "out")["pairs"].rows():
        assert {row.first, row.second} <= images.keys()
        assert row.instruction in ("", row.human_differences[0])
        assert "remove the flag" not in row.human_differences
