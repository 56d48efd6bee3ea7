"""Render the image in which a thing is as the dataset's prior expects it (ours).

Reads ``PairRow`` with its description and both images, and the looks of all images; writes
``ExpectedRow``. A thing of one image gets the commonest colour, material or size of its kind in the
dataset, if it has another one; the scene is rendered again, so that all else stays. Of the changes
that make a true statement of the text false, that of most statements is taken. A model that says
what it expects instead of what it sees describes this image better than the pair's own. Needs
Mitsuba and Open Image Denoise; planted things have no scene to render again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from pairwright.schemas.claims import Graphs, is_true_claim
from pairwright.schemas.config import ExpectedImagesConfig
from pairwright.schemas.rows import (
    NO_ROWS,
    DifferenceRow,
    Dropped,
    ExpectedRow,
    ImageRow,
    Images,
    LooksRow,
    PairRow,
    make_key,
)
from pairwright.schemas.scene import SceneChange, SceneGraph
from pairwright.tasks.images.decode import RefusedImageError, decode_rgb
from pairwright.tasks.images.masks import box_of, encode_patch
from pairwright.tasks.rejected.choose_removals import NO_TEXT, true_claims
from pairwright.tasks.rejected.list_looks import ATTRIBUTES, Prior, count_prior, expected_value
from pairwright.tasks.rejected.render_removals import PER_SHARD, name_renderer, weigh_changes
from pairwright.tasks.scenes.vocabulary import (
    CLEAR_MATERIALS,
    LITTLE_MATERIAL,
    METALLIC_COLOURS,
    NEAR_COLOURS,
    SHAPES,
    colours_of,
)
from pairwright.tasks.store.stage import Stage, Uses

if TYPE_CHECKING:
    from pairwright.tasks.scenes.render import Exposure
    from pairwright.tasks.scenes.state import Thing

Attribute = Literal["colour", "material", "size"]
UNKNOWN = "not known how it was rendered"
AS_EXPECTED = "all that the text names is as expected"
NO_FIT = "no expected look fits the scene"
SAME_PIXELS = "the expected look does not show"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLook:
    """Change of one thing of an image to what the prior expects."""

    side: int
    object_id: str
    attribute: Attribute
    before: str
    after: str
    share: float
    """Share of the value among things of its kind."""
    drop: float
    """Share of the text's true statements that the change makes false."""

    @property
    def order(self) -> tuple[float, float, int, str, str]:
        """Return its place among others: most false statements first, then the strongest prior."""
        return -self.drop, -self.share, self.side, self.object_id, self.attribute


def render_expected(
    rows: Sequence[PairRow],
    config: ExpectedImagesConfig,
    *,
    looks: pa.Table,
    images: Images,
    differences: Mapping[str, DifferenceRow] = NO_ROWS,
) -> Iterator[ExpectedRow | Dropped]:
    """Yield the expected image of each pair, or why there is none."""
    prior = count_prior(looks)
    for row in rows:
        difference = differences.get(row.key)
        if difference is None:
            yield Dropped(source_key=row.key, reason=NO_TEXT)
            continue
        pair_images = (images[row.first], images[row.second])
        yield _render_pair(row, difference, pair_images, prior, config)


def _render_pair(
    pair: PairRow,
    difference: DifferenceRow,
    images: tuple[ImageRow, ImageRow],
    prior: Prior,
    config: ExpectedImagesConfig,
) -> ExpectedRow | Dropped:
    first, second = images[0].graph, images[1].graph
    if first is None or second is None or not first.exposure or not second.exposure:
        return Dropped(source_key=pair.key, reason=UNKNOWN)
    from pairwright.tasks.scenes.render import exposure_of

    looks = find_looks(difference, (first, second), prior, min_share=config.min_share)
    reason = NO_FIT if looks else AS_EXPECTED
    for look in looks:
        exposure = exposure_of(images[look.side].graph)
        assert exposure is not None
        altered = alter_scene(exposure, look)
        if altered is None:
            continue
        rendered = _render(altered, images[look.side], config)
        if isinstance(rendered, str):
            reason = rendered
            continue
        window, patch = rendered
        return ExpectedRow(
            key=make_key("expected", pair.key, difference.key, look.side, *look.order),
            source_key=pair.key,
            subject=pair.key,
            image_key=images[look.side].key,
            side=look.side,
            object_id=look.object_id,
            attribute=look.attribute,
            before=look.before,
            after=look.after,
            share=round(look.share, 6),
            drop=round(look.drop, 6),
            window=window,
            patch=patch,
            renderer=name_renderer(),
        )
    return Dropped(source_key=pair.key, reason=reason, detail=f"{len(looks)} looks")


def find_looks(
    difference: DifferenceRow, graphs: Graphs, prior: Prior, *, min_share: float
) -> list[ExpectedLook]:
    """Return the changes to expected looks that make statements of a text false, the best first."""
    claims = true_claims(difference, graphs)
    looks: list[ExpectedLook] = []
    for side, graph in enumerate(graphs):
        for item in graph.objects:
            for attribute in ATTRIBUTES:
                before = getattr(item, attribute)
                value, share = expected_value(prior, item.shape, attribute)
                if not before or not value or value == before or share < min_share:
                    continue
                altered = _alter_graph(graph, item.id, attribute, value)
                sides = (altered, graphs[1]) if side == 0 else (graphs[0], altered)
                broken = sum(not is_true_claim(claim, sides) for claim in claims)
                if broken:
                    look = ExpectedLook(
                        side=side,
                        object_id=item.id,
                        attribute=attribute,
                        before=before,
                        after=value,
                        share=share,
                        drop=broken / len(claims),
                    )
                    looks.append(look)
    return sorted(looks, key=attrgetter("order"))


def _alter_graph(graph: SceneGraph, object_id: str, attribute: str, value: str) -> SceneGraph:
    """Return a graph in which one thing has another look, as a change of the scene."""
    objects = [
        item.model_copy(update={attribute: value}) if item.id == object_id else item
        for item in graph.objects
    ]
    change = SceneChange.model_validate({"type": attribute, "object_id": object_id})
    changes = (*graph.changes, change)
    return graph.model_copy(update={"objects": tuple(objects), "changes": changes})


def alter_scene(exposure: "Exposure", look: ExpectedLook) -> "Exposure | None":
    """Return the exposure with the expected look; ``None``: it does not fit, or is not clear."""
    from pairwright.tasks.scenes import plan

    scene = exposure.scene
    item = scene.thing(look.object_id)
    altered = replace(item, **{look.attribute: look.after})
    changed = scene.having(altered)
    if not _is_clear(item, altered, look.attribute) or not plan.is_distinct(altered, changed):
        return None
    if look.attribute == "size":
        carries = any(other.support == item.id for other in scene.things)
        if carries or not plan.fits(changed, altered, exposure.camera):
            return None
    return replace(exposure, scene=changed)


def _is_clear(before: "Thing", after: "Thing", attribute: Attribute) -> bool:
    """Return whether the vocabulary lets a change exchange the looks."""
    if attribute == "colour":
        is_near = frozenset((before.colour, after.colour)) in NEAR_COLOURS
        return not is_near and after.colour in colours_of(after.shape, after.material)
    if attribute == "size":
        return after.size in SHAPES[after.shape].sizes
    if after.shape in LITTLE_MATERIAL or after.colour not in METALLIC_COLOURS:
        return False
    return frozenset((before.material, after.material)) in CLEAR_MATERIALS


def _render(
    exposure: "Exposure", image: ImageRow, config: ExpectedImagesConfig
) -> tuple[tuple[int, int, int, int], bytes] | str:
    """Return the window and the patch that change an image, or why there is none."""
    try:
        pixels = decode_rgb(image.image)
    except RefusedImageError as refused:
        return refused.reason
    if (exposure.height, exposure.width) != pixels.shape[:2]:
        return UNKNOWN
    rendered = exposure.expose()
    weight = weigh_changes(rendered, pixels, feather=config.feather_pixels)
    if weight is None:
        return SAME_PIXELS
    x0, y0, x1, y1 = window = box_of(weight > 0)
    part = np.s_[y0:y1, x0:x1]
    difference = rendered[part].astype(np.float32) - pixels[part]
    blended = np.rint(pixels[part] + weight[part][:, :, None] * difference).astype(np.uint8)
    return window, encode_patch(blended)


def _name_models(config: ExpectedImagesConfig) -> tuple[str, ...]:
    del config
    return (name_renderer(),)


STAGE = Stage(
    name="expected",
    group="rejected",
    reads={"pairs": PairRow},
    writes=ExpectedRow,
    function=render_expected,
    config=lambda profile: profile.expected_images,
    enabled=attrgetter("enabled"),
    models=_name_models,
    uses=(
        Uses(table="looks", row=LooksRow, kind="table"),
        Uses(table="images", row=ImageRow, on="about", without=("captions",)),
        Uses(table="differences", row=DifferenceRow, counts=True),
    ),
    rows_per_shard=PER_SHARD,
)
