"""What a profile says of rejected images: how key elements are found, removed, checked and chosen (paper 004, 3.1-3.2).

Each section belongs to one step, and each step writes a table of its own.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pairwright.schemas.encoders import ClipConfig
from pairwright.schemas.section import UNSET, Count, Filled, FilledSeed, Names, Positive, Section, Share

TaggerName = Literal["scene-graph", "ram", "ram-plus", "nouns"]
Batch = Annotated[int, Field(ge=0, le=4096)]


class ModelSection(Section):
    """Section of a stage that runs a model on this machine."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"batch_size", "download"})
    batch_size: Batch = 0
    """Inputs that the model takes at once; 0: as many as fit."""
    download: bool = False
    """Whether weights that are not on this machine may be fetched when a build starts."""


class RamConfig(Section):
    """Say which weights of RAM (or RAM++) tag images; empty paths: the published files, as `fetch` puts them."""

    checkpoint: str = ""
    """Local weights: the published `.pth`, or safetensors with the same keys."""
    tags: str = ""
    """Local text file of the tags' names, one per line, in the checkpoint's order."""
    thresholds: str = ""
    """Local text file of the least probability of each tag, one per line; with `tags` and without this, 0.68."""
    revision: str = ""
    """The hash of the files; empty: what is on this machine."""


class TaggingConfig(ModelSection):
    """Say who names what is in an image."""

    uncounted: ClassVar[frozenset[str]] = ModelSection.uncounted | {"ram"}
    taggers: Annotated[tuple[TaggerName, ...], Field(min_length=1, max_length=4)] = ("scene-graph",)
    """Who tags: the rendered scene's own graph, RAM or RAM++, and the nouns of the texts that are to be preferred."""
    ram: RamConfig = RamConfig()
    max_tags: Positive = 30
    """Tags kept of an image at the most: those of the texts first, then by falling score (ours)."""
    excluded: Names = ()
    """Tags that are never looked for, beside those that name no thing (colours, places, actions)."""

    @model_validator(mode="after")
    def _one_ram(self) -> "TaggingConfig":
        if {"ram", "ram-plus"} <= set(self.taggers):
            raise ValueError("taggers has both ram and ram-plus: they find the same tags; name one of them")
        return self


class DetectionConfig(ModelSection):
    """Say who finds boxes for tags; the thresholds are those of the public Grounded-SAM demonstration."""

    uncounted: ClassVar[frozenset[str]] = ModelSection.uncounted | {"model", "revision"}
    detector: Literal["scene-graph", "grounding-dino"] = "scene-graph"
    """The rendered scene's own graph, or Grounding DINO (transformers)."""
    model: Annotated[str, Field(min_length=1)] = "IDEA-Research/grounding-dino-base"
    """Grounding DINO's name on the Hub (read from its local cache), or a local folder as save_pretrained writes it."""
    revision: str = ""
    """The Hub's commit, or the hash of the local files; empty: what is on this machine."""
    box_threshold: Share = 0.25
    """Boxes with a lower score are left out."""
    text_threshold: Share = 0.2
    """A box is of the tags whose words score at least this."""
    max_iou: Share = 0.5
    """Of two boxes of one tag with a larger intersection over union, the one with the lower score is left out."""


class SegmentationConfig(Section):
    """Say who makes masks of boxes."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"checkpoint", "model", "revision", "download"})
    segmenter: Literal["scene-graph", "sam"] = "scene-graph"
    """The renderer's masks, or SAM (segment-anything)."""
    model: Literal["vit_b", "vit_l", "vit_h"] = "vit_h"
    """Which of the published checkpoints; a local one says itself what it is."""
    checkpoint: str = ""
    """Local weights in their place: a `.pth` as published, or safetensors with the same keys."""
    max_box_area: Share = 0.95
    """Boxes that cover at least this share of the image are left out (ours)."""
    revision: str = ""
    """The hash of the file; empty: what is on this machine."""
    download: bool = False
    """Whether weights that are not on this machine may be fetched when a build starts."""


class ElementsConfig(Section):
    """Say which masks are elements that can be removed."""

    min_area: Share = 0.005
    """Masks of a smaller share of the image are refused."""
    max_area: Share = 0.5
    """Masks of a larger share of the image are refused: without a limit the largest mask always wins (ours)."""
    max_iou: Share = 0.9
    """Of masks that overlap by more than this share of their union, the first is kept (ours)."""


class LamaConfig(Section):
    """Say which LaMa fills holes; empty: the published big-lama, as `fetch` puts it."""

    checkpoint: str = ""
    """Local TorchScript file, a program that runs only if its SHA-256 is the published one or `sha256`."""
    sha256: str = ""
    """The SHA-256 of a TorchScript file of your own that you trust."""
    revision: str = ""
    """The hash of the file; empty: what is on this machine."""


class RemovalsConfig(ModelSection):
    """Say how elements are removed from images."""

    uncounted: ClassVar[frozenset[str]] = ModelSection.uncounted | {"lama"}
    inpainter: Literal["telea", "navier-stokes", "lama", "rendered"] = "telea"
    """Who fills the hole: two methods of OpenCV, LaMa, or the renderer of scenes, without the element."""
    lama: LamaConfig = LamaConfig()
    dilate_pixels: Count = 5
    """Pixels by which a mask grows before the hole is filled."""
    feather_pixels: Count = 3
    """Pixels over which the filling fades into the image."""
    context: Annotated[float, Field(ge=0, le=8)] = 0.5
    """Surroundings that LaMa sees on each side of a hole, in sides of its box (ours); 0.5: about as in its training."""
    max_side: Annotated[int, Field(ge=64, le=8192)] = 1024
    """Longest side in pixels of what LaMa sees; holes in larger surroundings are filled at a smaller scale (ours)."""

    @property
    def rendered(self) -> bool:
        """Say whether scenes are photographed again."""
        return self.inpainter == "rendered"


class InspectionConfig(Section):
    """Say by what removals are checked (ours); one that fails is kept with its reason, and not chosen."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"batch_size"})
    detector_enabled: bool = True
    """Whether a detector that looks at pixels looks again: the element must be gone, and nothing new in its place."""
    min_remaining_score: Share = 0.25
    """The element remains where the detector gives its tag in its place at least this score, or that of before."""
    min_grown_score: Share = 0.35
    """A thing found in the hole with at least this score, and not seen beside it before, has grown."""
    max_rim: Annotated[float, Field(ge=0)] = 1.0
    """How strong the edge along the hole's rim may be, as a multiple of the strongest edges around; more is a halo."""
    max_difference: Annotated[float, Field(ge=0)] = 2.0
    """Levels (of 255), beyond noise, by which a rendered removal may differ from the scene without the element."""
    batch_size: Batch = 0
    """Images that the detector takes at once; 0: as many as fit."""
    rendered: Annotated[bool, UNSET, Filled("removals.rendered")] = False
    detection: Annotated[DetectionConfig | None, UNSET, Filled("detection")] = None


class FittedConfig(Section):
    """CLIP model that embeds the images without an element; made of other sections."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"clip", "batch_size"})
    enabled: Annotated[bool, Filled("rejections.by_clip")]
    clip: Annotated[ClipConfig, Filled("embedding.clip")]
    batch_size: Annotated[Batch, Filled("embedding.batch_size")] = 0


class TargetsConfig(Section):
    """Elements that a text about rendered scenes needs removed; made of other sections."""

    enabled: Annotated[bool, Filled("rejections.by_graphs")]
    elements: Annotated[ElementsConfig, Filled("elements")]


class RejectionsConfig(Section):
    """Say which removal rejects a chosen text (paper 004, Eq. 9)."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"clip"})
    enabled: bool = True
    """Whether images are rejected; if not, nothing is removed."""
    scorer: Literal["scene-graph", "clip"] = "scene-graph"
    """What scores: the statements of the text that a removal makes untrue (rendered scenes), or CLIP."""
    min_drop: Annotated[float, Field(ge=0, le=1)] = 0.0
    """A removal is chosen only where the text fits the image worse by more than this (ours)."""
    fallback: Literal["none", "drop", "crop"] = "none"
    """A preference without a removal: has no rejected image, is dropped, or gets a random crop as in mDPO."""
    min_crop_area: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Smallest share of the image that such a crop shows; mDPO's."""
    max_crop_area: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Largest share of the image that such a crop shows; mDPO's."""
    seed: FilledSeed = 0
    clip: Annotated[ClipConfig | None, UNSET, Filled("embedding.clip", when="by_clip")] = None

    @property
    def by_graphs(self) -> bool:
        """Say whether scene graphs score."""
        return self.enabled and self.scorer == "scene-graph"

    @property
    def by_clip(self) -> bool:
        """Say whether CLIP scores."""
        return self.enabled and self.scorer == "clip"


NO_IMAGE = "no rejected image"
"""Why a preference is dropped, with `fallback: drop`."""
SEVERAL = "a given preference about several images"
"""Why one that a source brought is: it is not known what of its text is about which image."""
