"""Taggers by name: the scene's graph, RAM, a served model, plugins'. They name what is in an image.

The nouns of texts (``nouns``) are tags without a model: a stage of their own finds them.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from pairwright.schemas.config import TaggingConfig
from pairwright.schemas.rows import Tag
from pairwright.tasks.models.model_registry import ModelRegistry, OwnModel
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.ram import RamTagger, pin_ram
from pairwright.tasks.models.scene_models import SceneTagger
from pairwright.tasks.perception.image_faults import ImageFault
from pairwright.tasks.perception.served_models import ServedTagger

NOUNS = "nouns"
"""Tagger that reads no image."""
ImageTags = tuple[Tag, ...] | ImageFault


@runtime_checkable
class Tagger(Protocol):
    """Model that names what is in an image."""

    @property
    def name(self) -> str:
        """Name in profiles."""
        ...

    @property
    def version(self) -> str:
        """Identity, which changes with its tags."""
        ...

    def prepare(self, image: DecodedImage) -> Any:
        """Return the model's input of one image; may run in another thread."""
        ...

    def tag(self, prepared: Sequence[Any]) -> Sequence[ImageTags]:
        """Return the tags of each prepared image, or why there are none."""
        ...


def _make_graph(_: TaggingConfig) -> Tagger:
    return SceneTagger()


def _make_ram(config: TaggingConfig) -> Tagger:
    return RamTagger(config=config.ram, batch=config.batch_size)


def _pin_ram(config: TaggingConfig) -> TaggingConfig:
    return config.model_copy(update={"ram": pin_ram(config.ram, download=config.download)})


def _make_served(config: TaggingConfig) -> Tagger:
    return ServedTagger(config=config)


TAGGERS: ModelRegistry[TaggingConfig, Tagger] = ModelRegistry(
    "taggers",
    Tagger,
    {
        "scene-graph": OwnModel(_make_graph),
        "ram": OwnModel(_make_ram, _pin_ram),
        "served": OwnModel(_make_served),
    },
    reserved=(NOUNS,),
)
"""All taggers that read images, by name."""
