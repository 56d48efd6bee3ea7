"""Models that a profile can name, by place: name, usual weights, licence.

Plugins add further names (``pairwright.taggers``, ...). Only names and texts are here: what loads a
model is in ``tasks/models`` and ``tasks/perception``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from pairwright.schemas.plugins import Group, check_plugin_name

APACHE = "Apache-2.0"
MIT = "MIT"
OURS = "none: no weights"


@dataclass(frozen=True, slots=True)
class NamedModel:
    """Model that a profile can name in one place."""

    name: str
    description: str
    weights: str = ""
    """Usual weights: a name on the Hub, or of a published file; empty: none."""
    licence: str = OURS
    """Licence of the usual weights, as their publisher states it."""


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """Place of the line that a model fills."""

    group: Group
    """Group of plugins ("taggers": the entry points ``pairwright.taggers``)."""
    setting: str
    """Setting that names the model."""
    weights_setting: str
    """Setting of other weights; empty: there are none."""
    models: Sequence[NamedModel]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of our own models."""
        return tuple(model.name for model in self.models)

    def weights_of(self, name: str) -> str:
        """Return the usual weights of one of our models; empty: it has none."""
        weights = {model.name: model.weights for model in self.models}
        return weights.get(name, "")


SCENE = "the rendered scene's own graph"
EMBEDDERS = ModelPlace(
    "embedders",
    "embedding.embedders",
    "embedding.NAME",
    (
        NamedModel("colour-layout", "layout of colours"),
        NamedModel("gradients", "layout of edges"),
        NamedModel(
            "clip",
            "CLIP, SigLIP or SigLIP 2 by open_clip: image and text tower",
            "ViT-L-14-quickgelu openai",
            MIT,
        ),
        NamedModel("dinov2", "DINOv2 (transformers)", "facebook/dinov2-large", APACHE),
        NamedModel(
            "encoder",
            "DINOv3, or another image encoder with a pooled output (transformers' AutoModel)",
            "facebook/dinov3-vitl16-pretrain-lvd1689m",
            "DINOv3 License, to be accepted on the Hub",
        ),
    ),
)
TAGGERS = ModelPlace(
    "taggers",
    "tagging.taggers",
    "tagging.ram",
    (
        NamedModel("scene-graph", SCENE),
        NamedModel("ram", "RAM: 4,585 tags", "ram_swin_large_14m.pth", APACHE),
        NamedModel("nouns", "the nouns of the preferred texts (`nouns`)"),
        NamedModel("served", "a served model that sees the image (`tagging.model`)"),
    ),
)
DETECTORS = ModelPlace(
    "detectors",
    "detection.detector",
    "detection.model",
    (
        NamedModel("scene-graph", SCENE),
        NamedModel("grounding-dino", "Grounding DINO", "IDEA-Research/grounding-dino-base", APACHE),
        NamedModel(
            "mm-grounding-dino",
            "MM Grounding DINO, or LLMDet",
            "openmmlab-community/mm_grounding_dino_large_all",
            APACHE,
        ),
        NamedModel("owlv2", "OWLv2, or OWL-ViT", "google/owlv2-large-patch14-ensemble", APACHE),
        NamedModel("served", "a served model that writes boxes (`detection.server`): Qwen-VL"),
    ),
)
SEGMENTERS = ModelPlace(
    "segmenters",
    "segmentation.segmenter",
    "segmentation.model",
    (
        NamedModel("scene-graph", "the renderer's masks"),
        NamedModel("sam", "SAM (the package segment-anything)", "sam_vit_h_4b8939.pth", APACHE),
        NamedModel("sam1", "SAM (transformers)", "facebook/sam-vit-huge", APACHE),
        NamedModel("sam2", "SAM 2 and 2.1", "facebook/sam2.1-hiera-large", APACHE),
        NamedModel(
            "sam3", "SAM 3, prompted by boxes", "facebook/sam3", "SAM License, to be accepted"
        ),
    ),
)
REMOVERS = ModelPlace(
    "removers",
    "removals.inpainter",
    "removals.lama",
    (
        NamedModel("rendered", "the scene rendered again without the element"),
        NamedModel("lama", "LaMa", "big-lama.pt", APACHE),
        NamedModel("edited", "a server that edits images (`removals.editor`)"),
    ),
)
SCORERS = ModelPlace(
    "scorers",
    "rejections.scorer",
    "embedding.clip",
    (
        NamedModel("scene-graph", "statements about the scene that become untrue"),
        NamedModel(
            "clip",
            "the text tower of the embedder clip (CLIP, SigLIP, SigLIP 2)",
            "ViT-L-14-quickgelu openai",
            MIT,
        ),
    ),
)
NOUNS = ModelPlace(
    "nouns",
    "nouns.finder",
    "nouns.model",
    (NamedModel("spacy", "a spaCy pipeline", "en_core_web_sm", MIT),),
)
MODEL_PLACES: Mapping[Group, ModelPlace] = {
    place.group: place
    for place in (EMBEDDERS, TAGGERS, DETECTORS, SEGMENTERS, REMOVERS, SCORERS, NOUNS)
}


def _checks(place: ModelPlace) -> AfterValidator:
    """Return the check that a name is one of ours or a plugin's."""
    return AfterValidator(lambda name: check_plugin_name(place.group, name, place.names))


def _listed(place: ModelPlace) -> WithJsonSchema:
    """Return the values that documents and errors list."""
    return WithJsonSchema({"enum": [*place.names, "a plugin's"]})


EmbedderName = Annotated[str, _checks(EMBEDDERS), _listed(EMBEDDERS)]
TaggerName = Annotated[str, _checks(TAGGERS), _listed(TAGGERS)]
DetectorName = Annotated[str, _checks(DETECTORS), _listed(DETECTORS)]
SegmenterName = Annotated[str, _checks(SEGMENTERS), _listed(SEGMENTERS)]
RemoverName = Annotated[str, _checks(REMOVERS), _listed(REMOVERS)]
ScorerName = Annotated[str, _checks(SCORERS), _listed(SCORERS)]
FinderName = Annotated[str, _checks(NOUNS), _listed(NOUNS)]
