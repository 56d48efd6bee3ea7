"""CLIP chooses among removals: scores are those of open_clip on the whole altered images, computed
here on its own."""

from dataclasses import replace
from itertools import product

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from pairwright.schemas.config import Profile, RejectionsConfig
from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.rows import Dropped, PreferenceRow, RejectionRow, StatementsRow, make_key
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.models.embedders import make_clip, to_unit
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.rejected import choose_removals as stage
from pairwright.tasks.rejected.choose_removals import (
    NO_DROP,
    NO_ELEMENT,
    NONE_PASSED,
    STAGE,
    choose_removals,
)
from pairwright.tasks.rejected.fit_removals import fit_removals
from pairwright.tasks.store.vectors import Vectors
from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import pair_row
from tests.fixtures.removals import element_of, inspection_of, noise_row, removal_of, without_block
from tests.fixtures.rows import row_of

IMAGES = sorted((noise_row(seed) for seed in (3, 4)), key=lambda row: row.key)
PAIR = pair_row(*(row.key for row in IMAGES))
BLOCKS = {"ball": (10, 20, 50, 60), "corner": (0, 0, 30, 30), "edge": (80, 10, 96, 72)}
ELEMENTS = {image.key: tuple(element_of(image.key, tag) for tag in BLOCKS) for image in IMAGES}
INSPECTED = {key: tuple(inspection_of(row) for row in rows) for key, rows in ELEMENTS.items()}
FIRST = "a red ball on a table. Behind it stands a box"
SECOND = "two blue cubes in the corner"
DIFFERENCE = description(f"shows {FIRST}", f"has {SECOND}", subject=PAIR.key)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = write_clip_folder(tmp_path_factory.mktemp("clip"), architecture=READING_CLIP)
    return RejectionsConfig(
        scorer="clip", clip=pin_clip(ClipConfig(checkpoint=str(folder)), download=False)
    )


@pytest.fixture(scope="module")
def spaces(config):
    """Return the vectors of the images, and of the images without an element, as the stages before
    make them."""
    model = make_clip(config.clip)
    images = {
        row.key: to_unit(model.encode([model.prepare(decode_rgb(row.image))])[0], "")[0]
        for row in IMAGES
    }
    profile = Profile.model_validate(
        {"embedding": {"embedders": ["clip", "gradients"], "clip": config.clip}}
    )
    removals = [
        removal_of(row, one, BLOCKS[one.tag]) for row in IMAGES for one in ELEMENTS[row.key]
    ]
    fitted = fit_removals(removals, profile.fitted, images={row.key: row for row in IMAGES})
    return {
        "vectors": space(images),
        "candidates": space({row.subject: row.vector for row in fitted}),
    }


def space(vectors):
    keys = sorted(vectors)
    matrix = np.array([vectors[key] for key in keys], dtype=np.float16)
    return {
        "clip": Vectors(
            np.array([key.encode() for key in keys], dtype="S32"), matrix, np.ones(len(keys))
        )
    }


@pytest.fixture(scope="module")
def cosine(config):
    """Return what open_clip's own pipeline says of some pixels and a text."""
    name = f"local-dir:{config.clip.checkpoint}"
    model, _, preprocess = open_clip.create_model_and_transforms(name)
    model.eval()
    tokenize = open_clip.get_tokenizer(name)

    def score(pixels, text):
        with torch.inference_mode():
            image = model.encode_image(preprocess(Image.fromarray(pixels))[None], normalize=True)
            return float(image[0] @ model.encode_text(tokenize([text]), normalize=True)[0])

    return score


def choose(config, spaces, *, difference=DIFFERENCE, **tables):
    tables = {"elements": ELEMENTS, "inspected": INSPECTED, **spaces, **tables}
    (row,) = choose_removals([PAIR], config, differences={PAIR.key: difference}, **tables)
    return row


def sums(cosine, sentences, image, window=(0, 0, 0, 0)):
    """Return Eq. 9's sum; a window of no pixels: of the original."""
    return sum(cosine(without_block(image, window), sentence) for sentence in sentences)


def test_scores_are_the_equations_sums(config, spaces, cosine):
    row = choose(config, spaces)
    assert isinstance(row, RejectionRow)
    said = [["a red ball on a table.", "Behind it stands a box"], [SECOND]]
    assert len(row.removal_scores) == 6
    for one, (side, tag) in zip(row.removal_scores, product((0, 1), BLOCKS), strict=True):
        assert (one.side, one.tag, one.removal) == (
            side,
            tag,
            element_of(IMAGES[side].key, tag).key,
        )
        wanted = sums(cosine, said[side], IMAGES[side], BLOCKS[tag])
        # Stored vectors have 11 bits, so a cosine is known to about 1e-3.
        assert one.clip == pytest.approx(wanted, abs=4e-3)
        assert one.score == pytest.approx(sums(cosine, said[side], IMAGES[side]) - wanted, abs=6e-3)
        assert one.clip == round(one.clip, 6)
    assert len({one.clip for one in row.removal_scores}) == 6
    best = max(row.removal_scores, key=lambda one: one.score)
    assert best.score > 0.01
    assert (row.element, row.side, row.maker) == (best.removal, best.side, "removal")
    assert [one.chosen for one in row.removal_scores] == [one is best for one in row.removal_scores]


def test_a_half_that_denies_has_nothing_to_be_removed(config, spaces):
    """The text is as true without anything else."""
    denying = description(f"shows {FIRST}", "has no ball", subject=PAIR.key)
    row = choose(config, spaces, difference=denying)
    assert [one.clip for one in row.removal_scores if one.side == 1] == [0.0] * 3
    free = choose(config, spaces)
    assert [one.clip for one in row.removal_scores[:3]] == [
        one.clip for one in free.removal_scores[:3]
    ]
    assert row.side == 0
    partly = description(f"shows {FIRST}", f"has {SECOND}, and no ball", subject=PAIR.key)
    same = choose(config, spaces, difference=partly)
    assert [one.clip for one in same.removal_scores] == [one.clip for one in free.removal_scores]
    unchanged = description("shows no ball", "has no ball", subject=PAIR.key, no_change=True)
    assert all(one.clip for one in choose(config, spaces, difference=unchanged).removal_scores)


def preference(image, chosen, **values):
    return row_of(
        PreferenceRow,
        chosen,
        source=image.key,
        chosen=chosen,
        **{"image_keys": (image.key,), **values},
    )


def test_statements_of_a_served_model_are_scored_in_the_place_of_sentences(config, spaces, cosine):
    row = preference(IMAGES[1], f"{FIRST}. {SECOND}")
    said = [
        "A red ball is on a table.",
        "A box stands behind the table.",
        "two blue cubes are in the corner",
    ]
    made = row_of(StatementsRow, "said", source=row.key, text=row.chosen, sentences=tuple(said))
    other = replace(made, source_key="another row of this image", sentences=("A dog.",))
    (found,) = choose_removals(
        [row],
        config,
        elements=ELEMENTS,
        inspected=INSPECTED,
        statements={row.subject: (made, other)},
        **spaces,
    )
    for one in found.removal_scores:
        assert one.clip == pytest.approx(sums(cosine, said, IMAGES[1], BLOCKS[one.tag]), abs=6e-3)


def test_endless_texts_are_read_in_part(config, spaces):
    """And in no time: a text is a stranger's."""
    texts = ["x" * 1_000_000, "A. " * 300_000, "dog " * 100_000, "\0\ud800 é" * 1000, ""]
    rows = [preference(IMAGES[0], text.encode(errors="replace").decode()) for text in texts]
    made = list(choose_removals(rows, config, elements=ELEMENTS, inspected=INSPECTED, **spaces))
    assert [len(row.removal_scores) for row in made] == [3] * 5
    assert {one.score for one in made[-1].removal_scores} == {0.0}


def test_what_failed_its_checks_keeps_its_score_and_is_not_chosen(config, spaces):
    free = choose(config, spaces)
    failed = {
        key: tuple(inspection_of(one, "halo" if one.key == free.element else "") for one in rows)
        for key, rows in ELEMENTS.items()
    }
    row = choose(config, spaces, inspected=failed)
    assert [one.score for one in row.removal_scores] == [one.score for one in free.removal_scores]
    assert {one.removal: one.why for one in row.removal_scores if one.why} == {free.element: "halo"}
    assert row.element not in ("", free.element)
    assert row.key != free.key
    none = {
        key: tuple(inspection_of(one, "halo") for one in rows) for key, rows in ELEMENTS.items()
    }
    row = choose(config, spaces, inspected=none)
    assert (row.maker, row.element, row.reason) == ("", "", f"{NONE_PASSED}: halo")
    assert len(row.removal_scores) == 6


def test_what_is_not_checked_or_embedded_yet_is_left_out(config, spaces):
    first, second = (ELEMENTS[row.key] for row in IMAGES)
    checked = {**INSPECTED, IMAGES[0].key: INSPECTED[IMAGES[0].key][1:]}
    known = spaces["candidates"]["clip"]
    kept = known.keys != second[2].key.encode()
    fewer = {"clip": Vectors(known.keys[kept], known.matrix[kept], known.norms[kept])}
    row = choose(config, spaces, inspected=checked, candidates=fewer)
    assert [one.removal for one in row.removal_scores] == [
        one.key for one in (*first[1:], *second[:2])
    ]
    for tables in ({"candidates": {}}, {"vectors": {}}, {"elements": {}}, {"inspected": {}}):
        row = choose(config, spaces, **tables)
        assert (row.maker, row.removal_scores, row.reason) == ("", (), NO_ELEMENT)


def test_the_text_must_fit_worse_by_enough(config, spaces):
    free = choose(config, spaces)
    best = max(one.score for one in free.removal_scores)
    assert (
        choose(config.model_copy(update={"min_drop": best - 1e-6}), spaces).element == free.element
    )
    row = choose(config.model_copy(update={"min_drop": best}), spaces)
    assert (row.maker, row.reason) == ("", NO_DROP)
    none = {
        key: tuple(inspection_of(one, "halo") for one in rows) for key, rows in ELEMENTS.items()
    }
    assert (
        choose(config.model_copy(update={"min_drop": best}), spaces, inspected=none).reason
        == NO_DROP
    )


def test_what_cannot_be_compared_is_dropped(config, spaces):
    tables = {"elements": ELEMENTS, "inspected": INSPECTED, **spaces}
    (row,) = choose_removals([PAIR], config, differences={}, **tables)
    assert row == Dropped(source_key=PAIR.key, reason="no difference description")
    both = preference(IMAGES[0], "A dog.", image_keys=tuple(row.key for row in IMAGES))
    (row,) = choose_removals([both], config, elements=ELEMENTS, inspected=INSPECTED, **spaces)
    assert isinstance(row, Dropped)
    assert (row.source_key, row.reason) == (both.key, stage.SEVERAL)


def without_candidates(config, keys=(PAIR.key,), **tables):
    """Return what becomes of pairs of which no removal can be chosen."""
    pairs = [replace(PAIR, key=key) for key in keys]
    tables = {"elements": {}, "inspected": {}, "vectors": {}, "candidates": {}, **tables}
    return list(
        choose_removals(pairs, config, differences=dict.fromkeys(keys, DIFFERENCE), **tables)
    )


def test_ways_out_where_nothing_can_be_chosen(config):
    images = {row.key: replace(row, image=b"") for row in IMAGES}
    (row,) = without_candidates(config)
    assert (row.maker, row.window, row.reason) == ("", (0, 0, 0, 0), NO_ELEMENT)
    (row,) = without_candidates(config.model_copy(update={"fallback": "drop"}))
    assert row == Dropped(source_key=PAIR.key, reason="no rejected image", detail=NO_ELEMENT)
    cropping = config.model_copy(update={"fallback": "crop"})
    keys = [make_key(number) for number in range(40)]
    crops = without_candidates(cropping, keys, images=images)
    assert {row.reason for row in crops} == {f"{NO_ELEMENT}: a crop instead"}
    assert {row.maker for row in crops} == {"crop"}
    assert 10 < sum(row.side for row in crops) < 30
    assert len({row.window for row in crops}) > 35
    assert len({row.key for row in crops}) == 40
    assert crops[3:4] == without_candidates(cropping, keys[3:4], images=images)
    (other,) = without_candidates(cropping.model_copy(update={"seed": 1}), keys[3:4], images=images)
    assert other.window != crops[3].window


def tables_of(made, **config):
    inputs = made.inputs(RejectionsConfig(**config))
    return {use.argument: use for use in inputs.uses}


def test_images_are_read_for_graphs_and_for_the_sizes_of_crops_alone():
    graphs = tables_of(STAGE, scorer="scene-graph")
    assert list(graphs) == ["differences", "images", "elements", "inspected"]
    clip = tables_of(STAGE, scorer="clip")
    assert list(clip) == [
        "differences",
        "elements",
        "inspected",
        "statements",
        "vectors",
        "candidates",
    ]
    assert {(use.table, use.on, use.of) for use in clip.values() if use.kind == "vectors"} == {
        ("embeddings", "about", ""),
        ("fitted", "key", "elements"),
    }
    assert all(use.counts for use in clip.values()), (
        "a row is owed again when what was missing comes"
    )
    assert "images" in tables_of(STAGE, scorer="clip", fallback="crop")
    assert "image" in graphs["images"].without
