"""CLIP chooses among removals: scores are open_clip's of the whole altered images."""

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
from pairwright.tasks.rejected.choose_removals import (
    NO_DROP,
    NO_ELEMENT,
    NONE_PASSED,
    SEVERAL,
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
FIRST, SECOND = ELEMENTS.values()
FIRST_SENTENCES = ["a red ball on a table.", "Behind it stands a box"]
FIRST_TEXT = " ".join(FIRST_SENTENCES)
SECOND_TEXT = "two blue cubes in the corner"


def checks(*failed):
    """Return the checks of all elements; those of ``failed`` have a halo."""
    return {
        key: tuple(inspection_of(row, "halo" if row.key in failed else "") for row in rows)
        for key, rows in ELEMENTS.items()
    }


INSPECTED = checks()
ALL_FAILED = checks(*(row.key for row in (*FIRST, *SECOND)))


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = write_clip_folder(tmp_path_factory.mktemp("clip"), architecture=READING_CLIP)
    clip = pin_clip(ClipConfig(checkpoint=str(folder)), download=False)
    return RejectionsConfig(scorer="clip", clip=clip)


def space(vectors):
    keys = sorted(vectors)
    names = np.array([key.encode() for key in keys], dtype="S32")
    matrix = np.array([vectors[key] for key in keys], dtype=np.float16)
    return {"clip": Vectors(names, matrix, np.ones(len(keys)))}


@pytest.fixture(scope="module")
def spaces(config):
    """Return the vectors of the images, with and without elements, as earlier stages make them."""
    model = make_clip(config.clip)
    encoded = model.encode([model.prepare(decode_rgb(row.image)) for row in IMAGES])
    units = [to_unit(vector, "")[0] for vector in encoded]
    images = dict(zip(ELEMENTS, units, strict=True))
    embedding = {"embedders": ["clip", "gradients"], "clip": config.clip}
    profile = Profile.model_validate({"embedding": embedding})
    removals = [
        removal_of(image, element, BLOCKS[element.tag])
        for image in IMAGES
        for element in ELEMENTS[image.key]
    ]
    fitted = fit_removals(removals, profile.fitted, images={row.key: row for row in IMAGES})
    candidates = {row.subject: row.vector for row in fitted}
    return {"vectors": space(images), "candidates": space(candidates)}


@pytest.fixture(scope="module")
def cosines(config):
    """Return a function: open_clip's own sum of cosines of an image without a block with texts."""
    name = f"local-dir:{config.clip.checkpoint}"
    model, _, preprocess = open_clip.create_model_and_transforms(name)
    model.eval()
    tokenize = open_clip.get_tokenizer(name)

    @torch.inference_mode()
    def score(image, window, texts):
        pixels = Image.fromarray(without_block(image, window))
        vector = model.encode_image(preprocess(pixels)[None], normalize=True)[0]
        return float((model.encode_text(tokenize(texts), normalize=True) @ vector).sum())

    return score


@pytest.fixture
def choose(config, spaces):
    """Return a function that chooses for one pair, or one given preference."""

    def choose(
        first=f"shows {FIRST_TEXT}",
        second=f"has {SECOND_TEXT}",
        *,
        row=PAIR,
        no_change=False,
        settings=(),
        **tables,
    ):
        text = description(first, second, subject=PAIR.key, no_change=no_change)
        own = {"elements": ELEMENTS, "inspected": INSPECTED, "differences": {PAIR.key: text}}
        settings = config.model_copy(update=dict(settings))
        (row,) = choose_removals([row], settings, **(own | spaces | tables))
        return row

    return choose


def clips(row, side):
    return [score.clip for score in row.removal_scores if score.side == side]


def scores(row):
    return [score.score for score in row.removal_scores]


NOTHING = (0, 0, 0, 0)


def test_scores_are_the_equations_sums(choose, cosines) -> None:
    row = choose()
    assert isinstance(row, RejectionRow)
    sentences = [FIRST_SENTENCES, [SECOND_TEXT]]
    order = product((0, 1), BLOCKS)
    for score, (side, tag) in zip(row.removal_scores, order, strict=True):
        element = element_of(IMAGES[side].key, tag)
        assert (score.side, score.tag, score.removal) == (side, tag, element.key)
        after = cosines(IMAGES[side], BLOCKS[tag], sentences[side])
        before = cosines(IMAGES[side], NOTHING, sentences[side])
        # Stored vectors have 11 bits, so a cosine is known to about 1e-3.
        assert score.clip == pytest.approx(after, abs=4e-3)
        assert score.score == pytest.approx(before - after, abs=6e-3)
        assert score.clip == round(score.clip, 6)
    assert len({score.clip for score in row.removal_scores}) == 6
    best = max(row.removal_scores, key=lambda score: score.score)
    assert best.score > 0.01
    assert (row.element, row.side, row.maker) == (best.removal, best.side, "removal")
    assert [score for score in row.removal_scores if score.chosen] == [best]


def test_a_half_that_denies_has_nothing_to_be_removed(choose) -> None:
    """The text is as true without anything else."""
    row = choose(second="has no ball")
    assert clips(row, side=1) == [0.0] * 3
    assert clips(row, side=0) == clips(choose(), side=0)
    assert row.side == 0
    partly = choose(second=f"has {SECOND_TEXT}, and no ball")
    assert scores(partly) == scores(choose())


def test_a_text_of_no_change_is_scored_whole(choose) -> None:
    row = choose("shows no ball", "has no ball", no_change=True)
    assert all(score.clip for score in row.removal_scores)


def preference(image, chosen, **fields):
    about = {"source": image.key, "chosen": chosen, "image_keys": (image.key,)}
    return row_of(PreferenceRow, chosen, **(about | fields))


def test_statements_of_a_served_model_are_scored_in_the_place_of_sentences(choose, cosines) -> None:
    row = preference(IMAGES[1], f"{FIRST_TEXT}. {SECOND_TEXT}")
    sentences = ("A red ball is on a table.", "A box stands behind it.", "there are blue cubes")
    own = row_of(StatementsRow, "own", source=row.key, text=row.chosen, sentences=sentences)
    other = replace(own, source_key="another row of this image", sentences=("A dog.",))
    result = choose(row=row, statements={row.subject: (own, other)})
    assert len(result.removal_scores) == 3
    for score in result.removal_scores:
        expected = cosines(IMAGES[1], BLOCKS[score.tag], list(sentences))
        assert score.clip == pytest.approx(expected, abs=6e-3)


@pytest.mark.parametrize("text", ["x" * 1_000_000, "A. " * 300_000], ids=["a word", "sentences"])
def test_an_endless_text_is_read_in_part_and_an_empty_one_fits_all(choose, text) -> None:
    assert len(choose(row=preference(IMAGES[0], text)).removal_scores) == 3
    assert scores(choose(row=preference(IMAGES[0], ""))) == [0.0] * 3


def test_what_failed_its_checks_keeps_its_score_and_is_not_chosen(choose) -> None:
    free = choose()
    row = choose(inspected=checks(free.element))
    assert scores(row) == scores(free)
    assert {score.removal: score.why for score in row.removal_scores if score.why} == {
        free.element: "halo"
    }
    assert row.element not in ("", free.element)
    assert row.key != free.key
    row = choose(inspected=ALL_FAILED)
    assert (row.maker, row.element, row.reason) == ("", "", f"{NONE_PASSED}: halo")
    assert len(row.removal_scores) == 6


def test_what_is_not_checked_or_embedded_yet_is_left_out(choose, spaces) -> None:
    checked = {**INSPECTED, IMAGES[0].key: INSPECTED[IMAGES[0].key][1:]}
    known = spaces["candidates"]["clip"]
    kept = known.keys != SECOND[2].key.encode()
    fewer = {"clip": Vectors(known.keys[kept], known.matrix[kept], known.norms[kept])}
    row = choose(inspected=checked, candidates=fewer)
    expected = [element.key for element in (*FIRST[1:], *SECOND[:2])]
    assert [score.removal for score in row.removal_scores] == expected


@pytest.mark.parametrize("table", ["candidates", "vectors", "elements", "inspected"])
def test_without_a_table_no_element_can_be_removed(choose, table) -> None:
    row = choose(**{table: {}})
    assert (row.maker, row.removal_scores, row.reason) == ("", (), NO_ELEMENT)


def test_the_text_must_fit_worse_by_enough(choose) -> None:
    free = choose()
    best = max(scores(free))
    assert choose(settings={"min_drop": best - 1e-6}).element == free.element
    row = choose(settings={"min_drop": best})
    assert (row.maker, row.reason) == ("", NO_DROP)
    assert choose(settings={"min_drop": best}, inspected=ALL_FAILED).reason == NO_DROP


def test_pairs_stay_or_are_dropped_where_nothing_can_be_compared(choose) -> None:
    reason = "no difference description"
    assert choose(differences={}) == Dropped(source_key=PAIR.key, reason=reason)
    both = preference(IMAGES[0], "A dog.", image_keys=tuple(ELEMENTS))
    row = choose(row=both)
    assert isinstance(row, Dropped)
    assert (row.source_key, row.reason) == (both.key, SEVERAL)
    row = choose(elements={})
    assert (row.maker, row.window, row.reason) == ("", NOTHING, NO_ELEMENT)
    row = choose(elements={}, settings={"fallback": "drop"})
    assert row == Dropped(source_key=PAIR.key, reason="no rejected image", detail=NO_ELEMENT)


def crops(config, keys, **settings):
    """Return what becomes of pairs of which no removal can be chosen."""
    settings = config.model_copy(update={"fallback": "crop", **settings})
    text = description(f"shows {FIRST_TEXT}", f"has {SECOND_TEXT}", subject=PAIR.key)
    images = {row.key: replace(row, image=b"") for row in IMAGES}
    tables = {"elements": {}, "inspected": {}, "images": images}
    pairs = [replace(PAIR, key=key) for key in keys]
    return list(choose_removals(pairs, settings, differences=dict.fromkeys(keys, text), **tables))


def test_where_nothing_can_be_chosen_a_crop_is_drawn(config) -> None:
    keys = [make_key(number) for number in range(40)]
    rows = crops(config, keys)
    assert {(row.maker, row.reason) for row in rows} == {("crop", f"{NO_ELEMENT}: a crop instead")}
    assert 10 < sum(row.side for row in rows) < 30
    assert len({row.window for row in rows}) > 35
    assert len({row.key for row in rows}) == 40
    assert rows[3:4] == crops(config, keys[3:4])
    (other,) = crops(config, keys[3:4], seed=1)
    assert other.window != rows[3].window


def uses(**settings):
    inputs = STAGE.inputs(RejectionsConfig(**settings))
    return {use.argument: use for use in inputs.uses}


def test_only_what_the_scorer_needs_is_read() -> None:
    graphs = uses(scorer="scene-graph")
    assert list(graphs) == ["differences", "images", "elements", "inspected"]
    assert "image" in graphs["images"].without
    assert "images" in uses(scorer="clip", fallback="crop")
    clip = uses(scorer="clip")
    texts = ["differences", "elements", "inspected", "statements"]
    assert list(clip) == [*texts, "vectors", "candidates"]
    vectors = {(use.table, use.on, use.of) for use in clip.values() if use.kind == "vectors"}
    assert vectors == {("embeddings", "about", ""), ("fitted", "key", "elements")}
    assert all(use.counts for use in clip.values())
