"""A served model that sees as tagger and as detector: names in words, boxes in JSON.

Its answers are read by ``tasks/serving/read_things.py``. An answer that cannot be read is asked for
again; after the last try its image has the reason in place of tags or boxes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pairwright.prompts import load_prompt
from pairwright.schemas.config import DetectionConfig, TaggingConfig
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import Box, Tag, make_key
from pairwright.tasks.images.decode import encode_png
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.perception.ask_images import ask_images
from pairwright.tasks.perception.image_faults import ImageFault
from pairwright.tasks.serving.chat import Chat, Grammar, Question, ask_until, seed_of
from pairwright.tasks.serving.read_things import NamedBox, read_boxes, read_names
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.serving.write_request import sent_size
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.texts.things import tidy

NAME = "served"
NAME_THINGS = "name_things"
FIND_BOXES = "find_boxes"
TRIES = 2
MAX_TOKENS = 1024
SIDE = 1000
"""Width and height of every image, in the units of most models' boxes."""
STEP = 28
"""Pixels of which Qwen2.5-VL's processor makes both sides multiples."""
SCALE = f", in thousandths of the image's width and height (0 to {SIDE})"
NAMES_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"things": {"type": "array", "items": {"type": "string"}}},
    "required": ["things"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class SeenImage:
    """Image as it is shown to a model."""

    file: bytes
    size: tuple[int, int]
    """Height and width."""

    @property
    def key(self) -> str:
        """Return the hash of its bytes."""
        return make_key(self.file)


C = TypeVar("C", TaggingConfig, DetectionConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel(Generic[C]):
    """Served model that sees images."""

    config: C
    answers: Answers | None = None
    name: str = NAME

    @property
    def version(self) -> str:
        """Return the model's name; how it is asked is in the settings."""
        chat = self.config.chat
        return f"served {chat.model}" if chat else "served"

    def prepare(self, image: DecodedImage) -> SeenImage:
        """Return the file of an image; pixels that are no file become one."""
        height, width = image.pixels.shape[:2]
        return SeenImage(image.file or encode_png(image.pixels), (height, width))


class ServedTagger(ServedModel[TaggingConfig]):
    """Tagger by a served model."""

    __slots__ = ()

    def tag(self, prepared: Sequence[SeenImage]) -> list[tuple[Tag, ...] | ImageFault]:
        """Return the tags of each image, in the order in which the model names them."""
        results = ask_images(self._ask, prepared, self.config.served, answers=self.answers)
        return [_or_fault(result) for result in results]

    async def _ask(self, image: SeenImage, chat: Chat) -> tuple[Tag, ...] | RefusedText:
        prompt = load_prompt(NAME_THINGS)

        def ask(attempt: int) -> Question:
            return Question(
                prompt=NAME_THINGS,
                text=prompt.render(count=self.config.max_tags),
                images=(image.file,),
                seed=seed_of(image.key, prompt, seed=self.config.seed, attempt=attempt),
                max_tokens=MAX_TOKENS,
                grammar=Grammar(schema=NAMES_SCHEMA),
            )

        names, _ = await ask_until(chat, ask, read_names, tries=TRIES)
        if isinstance(names, RefusedText):
            return names
        return tuple(Tag(name=name, score=1.0, tagger=NAME) for name in names)


def _or_fault(result: Any) -> Any:
    """Return a refusal as the image's fault; other results stay."""
    if isinstance(result, RefusedText):
        return ImageFault(reason=result.reason, detail=result.detail)
    return result


class ServedDetector(ServedModel[DetectionConfig]):
    """Detector by a served model that writes boxes, such as Qwen-VL."""

    __slots__ = ()

    def detect(
        self, prepared: Sequence[SeenImage], tags: Sequence[Sequence[Tag]]
    ) -> list[tuple[Box, ...] | ImageFault]:
        """Return the boxes of each image, in its pixels, by tag; all have the score 1."""
        items = list(zip(prepared, tags, strict=True))
        results = ask_images(self._ask, items, self.config.served, answers=self.answers)
        return [_or_fault(result) for result in results]

    async def _ask(
        self, item: tuple[SeenImage, Sequence[Tag]], chat: Chat
    ) -> tuple[Box, ...] | RefusedText:
        image, tags = item
        if not tags:
            return ()
        prompt = load_prompt(FIND_BOXES)
        names = as_data("; ".join(tag.name for tag in tags))
        scale = SCALE if self.config.coordinates == "thousandths" else ", in pixels"

        def ask(attempt: int) -> Question:
            return Question(
                prompt=FIND_BOXES,
                text=prompt.render(names=names, scale=scale),
                images=(image.file,),
                seed=seed_of(image.key, prompt, seed=self.config.seed, attempt=attempt),
                max_tokens=2 * MAX_TOKENS,
                temperature=0.0 if attempt == 1 else None,
            )

        boxes, _ = await ask_until(chat, ask, read_boxes, tries=TRIES)
        if isinstance(boxes, RefusedText):
            return boxes
        return tuple(self._place_boxes(boxes, image, tags))

    def _place_boxes(
        self, boxes: Sequence[NamedBox], image: SeenImage, tags: Sequence[Tag]
    ) -> Iterator[Box]:
        """Yield the boxes of the tags, in pixels of the image, by tag, without near-copies."""
        across, down = self._measure_scale(image)
        height, width = image.size
        placed: list[Box] = []
        for named in boxes:
            tag = _match_tag(named.label, tags)
            if tag is None:
                continue
            x0, y0, x1, y1 = named.corners
            box = Box(
                tag=tag,
                score=1.0,
                x0=round(min(max(x0 * across, 0.0), width), 2),
                y0=round(min(max(y0 * down, 0.0), height), 2),
                x1=round(min(max(x1 * across, 0.0), width), 2),
                y1=round(min(max(y1 * down, 0.0), height), 2),
            )
            is_copy = any(_overlap(box, other) > self.config.max_iou for other in placed)
            if box.x0 < box.x1 and box.y0 < box.y1 and not is_copy:
                placed.append(box)
        yield from sorted(placed, key=lambda box: box.tag)

    def _measure_scale(self, image: SeenImage) -> tuple[float, float]:
        """Return the pixels of the image per unit of a box, across and down."""
        height, width = image.size
        if self.config.coordinates == "thousandths":
            return width / SIDE, height / SIDE
        sent_width, sent_height = sent_size(width, height, self.config.served.max_pixels)
        columns = max(round(sent_width / STEP), 1) * STEP
        rows = max(round(sent_height / STEP), 1) * STEP
        return width / columns, height / rows


def _match_tag(label: str, tags: Sequence[Tag]) -> int | None:
    """Return the position of the tag that a label names: in the same words, or the only one in it.

    ``None``: it names none of them.
    """
    name = tidy(label)
    names = [tidy(tag.name) for tag in tags]
    if name in names:
        return names.index(name)
    words = set(name.split())
    within = [number for number, other in enumerate(names) if set(other.split()) <= words]
    return within[0] if len(within) == 1 else None


def _overlap(box: Box, other: Box) -> float:
    """Return the intersection over union of two boxes of one tag; 0 of different tags."""
    width = min(box.x1, other.x1) - max(box.x0, other.x0)
    height = min(box.y1, other.y1) - max(box.y0, other.y0)
    if box.tag != other.tag or width <= 0 or height <= 0:
        return 0.0
    areas = [(each.x1 - each.x0) * (each.y1 - each.y0) for each in (box, other)]
    return width * height / (sum(areas) - width * height)
