"""Grounding DINO detector (Liu et al., 2023), and MM Grounding DINO (Zhao et al., 2024).

By transformers' ``AutoModelForZeroShotObjectDetection`` and processor.

An image's tags are packed into as few prompts as fit the network's 256 tokens, assembled from the
tags' tokens, so that each tag's position is known. Only images of exactly one size are batched:
padding affects the library's backbone and group normalisations. On a GPU boxes and scores are
float32: bfloat16 would round boxes by pixels.

Kept, as in the public demonstrations: a box whose best score over all tokens reaches
``box_threshold``, for each tag whose own tokens' best score for it is above ``text_threshold``; of
two boxes of one tag that overlap by more than ``max_iou``, the better one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from types import MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.model_names import DETECTORS
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.adaptive_batches import AdaptiveBatches
from pairwright.tasks.models.boxes import suppress_boxes
from pairwright.tasks.models.checkpoints import load_pretrained
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.weights import Pretrained, is_model_folder, loading, require_modules

if TYPE_CHECKING:
    from torch import Tensor, device

FIELD = "detection"
KNOWN = {
    "IDEA-Research/grounding-dino-base": "12bdfa3120f3e7ec7b434d90674b3396eccf88eb",
    "IDEA-Research/grounding-dino-tiny": "a2bb814dd30d776dcf7e30523b00659f4f141c71",
}
"""Default commits."""
MAX_IMAGES = 16
"""Maximum images at once on a GPU; one takes a gigabyte or two at the published size. A CPU takes
one: four are no faster (31 s each of the tiny model, 6.4 GB in place of 3.0). """
MAX_ASPECT = 32
"""Thinner images are stretched: the library fails where a side becomes 0 pixels, or where the
network has fewer cells (of 8 to 64 pixels) than queries (900). """
FRAMING = re.compile(r"[.?\[\]]")
"""Characters that end a tag in a prompt, or name a special token ("[SEP]")."""


class ResizedImage(NamedTuple):
    """Resized image."""

    pixels: NDArray[np.uint8]
    """``(3, h, w)``"""
    size: tuple[int, int]
    """Height and width of the original image."""


class TagPrompt(NamedTuple):
    """Tokens of an image's tags."""

    ids: list[int]
    spans: dict[int, slice]
    """Tokens of each tag, by its position among the image's."""


class Query(NamedTuple):
    """Image with one of its prompts."""

    position: int
    """Position of the image in the input."""
    image: ResizedImage
    prompt: TagPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingDino:
    """Detector by Grounding DINO; its weights are loaded at the first use, once per process."""

    config: DetectionConfig

    @property
    def name(self) -> str:
        """Return the name in profiles."""
        return _family_of(self.config)

    @property
    def version(self) -> str:
        """Return the identity of the weights."""
        return FAMILIES[self.name].identify(self.model, self.config.revision)

    @property
    def model(self) -> str:
        """Return the model's name on the Hub, or its folder; by default the usual weights."""
        return self.config.model or DETECTORS.weights_of(self.name)

    def prepare(self, image: DecodedImage) -> ResizedImage:
        """Return the image as resized by the model's processor; loads no weights."""
        height, width = image.pixels.shape[:2]
        min_side = -(-max(height, width) // MAX_ASPECT)
        rows = image.pixels.repeat(-(-min_side // height), axis=0)
        pixels = rows.repeat(-(-min_side // width), axis=1)
        processor = _processor(self.model, self.config.revision, self.name)
        resized = processor.image_processor(
            images=pixels,
            do_rescale=False,
            do_normalize=False,
            do_pad=False,
            return_tensors="pt",
            input_data_format="channels_last",
        )
        return ResizedImage(resized["pixel_values"][0].numpy(), (height, width))

    def detect(
        self,
        prepared: Sequence[ResizedImage],
        tags: Sequence[Sequence[Tag]],
    ) -> list[tuple[Box, ...]]:
        """Return the boxes of each image, in its pixels, by tag and then by falling score.

        A tag has at most 900 boxes, the network's queries; tags too long for a prompt have none.
        """
        network = _load(self.model, self.config.revision, self.name)
        answers: dict[tuple[int, int], list[Box]] = {}
        queries = _make_queries(network, prepared, tags)
        for query, boxes in network.answer_all(queries, self.config):
            answers[query.position, min(query.prompt.spans)] = boxes
        boxes_of_images: list[list[Box]] = [[] for _ in prepared]
        for position, first_tag in sorted(answers):
            boxes_of_images[position] += answers[position, first_tag]
        return [tuple(boxes) for boxes in boxes_of_images]


def _make_queries(
    network: "GroundingNetwork",
    prepared: Sequence[ResizedImage],
    tags: Sequence[Sequence[Tag]],
) -> list[Query]:
    """Return all images' prompts, sorted by the image's size.

    Within a size they are sorted by length: prompts are padded to the longest.
    """
    queries: list[Query] = []
    images = zip(prepared, tags, strict=True)
    for position, (image, image_tags) in enumerate(images):
        names = [tag.name for tag in image_tags]
        prompts = network.prompts(names)
        queries += [Query(position, image, prompt) for prompt in prompts]
    return sorted(queries, key=lambda query: (_shape(query), len(query.prompt.ids)))


def _shape(query: Query) -> tuple[int, ...]:
    return query.image.pixels.shape


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingNetwork:
    """Network on its device, with its processor."""

    model: Any
    """transformers' model of zero-shot object detection."""
    processor: Any
    """Its ``GroundingDinoProcessor``."""
    device: "device"
    batches: dict[int, AdaptiveBatches]
    """Sizes found so far, by the configured one."""

    def prompts(self, names: Sequence[str]) -> list[TagPrompt]:
        """Return the prompts of an image's tags, in order.

        Tags too long or without known tokens are left out.
        """
        if not names:
            return []
        tokenizer = self.processor.tokenizer
        limit = self.model.config.max_text_len
        end = tokenizer.convert_tokens_to_ids(".")
        texts = [_clean(name) for name in names]
        tokens = tokenizer(texts, add_special_tokens=False)
        prompts: list[TagPrompt] = []
        for tag, ids in enumerate(tokens["input_ids"]):
            is_unknown = not set(ids) - {tokenizer.unk_token_id}
            if is_unknown or len(ids) + 3 > limit:
                continue
            if not prompts or len(prompts[-1].ids) + len(ids) + 2 > limit:
                prompts.append(TagPrompt([tokenizer.cls_token_id], {}))
            prompt = prompts[-1]
            start = len(prompt.ids)
            prompt.spans[tag] = slice(start, start + len(ids))
            prompt.ids.extend([*ids, end])
        for prompt in prompts:
            prompt.ids.append(tokenizer.sep_token_id)
        return prompts

    def answer_all(
        self,
        queries: Sequence[Query],
        config: DetectionConfig,
    ) -> Iterator[tuple[Query, list[Box]]]:
        """Yield queries, sorted by their images' size, with their boxes."""
        batches = self.batches.setdefault(
            config.batch_size,
            AdaptiveBatches(config.batch_size, most=MAX_IMAGES, on_cpu=1),
        )
        work = partial(self.find_boxes, config=config)
        for _, group in groupby(queries, key=_shape):
            same_size = list(group)
            answers = batches.each(work, same_size)
            yield from zip(same_size, answers, strict=True)

    def find_boxes(
        self,
        queries: Sequence[Query],
        config: DetectionConfig,
    ) -> list[list[Box]]:
        """Return the boxes found in images of one size, each by its prompt."""
        logits, boxes = self._run(queries)
        if bool(logits.isnan().any()) or not bool(boxes.isfinite().all()):
            raise ModelError(
                f"{FIELD}.model: Grounding DINO gave boxes or scores that are not finite"
            )
        outputs = zip(queries, logits, boxes, strict=True)
        results: list[list[Box]] = []
        for query, query_logits, query_boxes in outputs:
            selected = self._select_boxes(
                query,
                query_logits,
                query_boxes,
                config,
            )
            results.append(list(selected))
        return results

    def _run(self, queries: Sequence[Query]) -> "tuple[Tensor, Tensor]":
        """Return the network's logits and boxes; padding has logits of minus infinity."""
        import torch

        images = self.processor.image_processor(
            images=[torch.from_numpy(query.image.pixels) for query in queries],
            do_resize=False,
            return_tensors="pt",
            device=self.device,
            input_data_format="channels_first",
        )
        ids = {"input_ids": [query.prompt.ids for query in queries]}
        text = self.processor.tokenizer.pad(ids, return_tensors="pt").to(self.device)
        on_gpu = self.device.type == "cuda"
        autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=on_gpu)
        with torch.inference_mode(), autocast:
            types = torch.zeros_like(text["input_ids"])
            output = self.model(**images, **text, token_type_ids=types)
            return output.logits.float().cpu(), output.pred_boxes.float().cpu()

    def _select_boxes(
        self,
        query: Query,
        logits: "Tensor",
        boxes: "Tensor",
        config: DetectionConfig,
    ) -> Iterator[Box]:
        """Yield the boxes of a prompt's tags that pass the thresholds, clipped to the image.

        The library's labels mix the words of several tags, so each tag is post-processed alone,
        other tokens hidden.
        """
        import torch

        prompt = query.prompt
        size = query.image.size
        count = len(prompt.spans)
        scores = logits[:, : len(prompt.ids)].sigmoid().amax(dim=1)
        is_sure = scores >= config.box_threshold
        results = self.processor.post_process_grounded_object_detection(
            _split_by_tag(prompt, logits[is_sure], boxes[is_sure]),
            input_ids=torch.tensor([prompt.ids]).expand(count, -1),
            threshold=config.text_threshold,
            text_threshold=1.0,  # no labels
            target_sizes=[size] * count,
        )
        for tag, result in zip(prompt.spans, results, strict=True):
            yield from suppress_boxes(tag, result, size, max_iou=config.max_iou)


def _split_by_tag(
    prompt: TagPrompt,
    logits: "Tensor",
    boxes: "Tensor",
) -> SimpleNamespace:
    """Return the network's output once per tag, the logits of other tokens hidden."""
    import torch

    count = len(prompt.spans)
    hidden = torch.full((count, *logits.shape), -torch.inf)
    for tag_logits, span in zip(hidden, prompt.spans.values(), strict=True):
        tag_logits[:, span] = logits[:, span]
    repeated = boxes.expand(count, -1, -1)
    return SimpleNamespace(logits=hidden, pred_boxes=repeated)


def _clean(name: str) -> str:
    """Return a tag as part of a prompt, without lone surrogates, which cannot be tokenised."""
    text = FRAMING.sub(" ", name)
    return text.encode("utf-8", "ignore").decode().lower()


def pin_grounding_dino(config: DetectionConfig, *, download: bool) -> DetectionConfig:
    """Return the configuration with the revision of the local weights; local folders are checked.

    ``ModelError``: weights or packages are missing, damaged or another model's, before a build
    starts.
    """
    require_modules(FIELD, "torch", "torchvision", "transformers")
    family = _family_of(config)
    model = config.model or DETECTORS.weights_of(family)
    update = FAMILIES[family].pin(model, config.revision, download=download)
    pinned = config.model_copy(update=update)
    if is_model_folder(pinned.model):
        _processor(pinned.model, pinned.revision, family)
    return pinned


def _family_of(config: DetectionConfig) -> str:
    """Return the family's name; of another detector's settings, that of the papers."""
    return config.detector if config.detector in FAMILIES else "grounding-dino"


def _describe(kind: str, *types: str) -> Pretrained:
    """Return the files of a family."""
    return Pretrained(
        field=FIELD,
        kind=kind,
        types=types,
        known=KNOWN,
        weights=("model.safetensors",),
        extra=(
            *("config.json", "preprocessor_config.json"),
            *("tokenizer.json", "tokenizer_config.json"),
        ),
    )


FAMILIES = {
    "grounding-dino": _describe("Grounding DINO", "grounding-dino"),
    "mm-grounding-dino": _describe("MM Grounding DINO", "mm-grounding-dino"),
}
"""Files by the detector's name in profiles."""
EXACT = ("MLPPredictionHead", "ContrastiveEmbedding")
"""Ends of the names of modules that compute in float32: boxes and scores."""


@lru_cache(maxsize=4)
def _processor(model: str, revision: str, family: str = "grounding-dino") -> Any:
    from transformers import GroundingDinoProcessor

    folder = FAMILIES[family].resolve_folder(model, revision)
    with loading(FIELD, folder):
        return GroundingDinoProcessor.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
        )


@lru_cache(maxsize=1)
def _load(model: str, revision: str, family: str = "grounding-dino") -> GroundingNetwork:
    import torch
    from transformers import AutoModelForZeroShotObjectDetection

    device = choose_device()
    models = FAMILIES[family]
    folder = models.checked_folder(model, revision)
    models.find_type(folder)
    network = load_pretrained(
        AutoModelForZeroShotObjectDetection,
        folder,
        field=FIELD,
        use_safetensors=True,
        trust_remote_code=False,
    )
    for module in network.modules():
        if type(module).__name__.endswith(EXACT):
            exact = torch.amp.custom_fwd(
                type(module).forward,
                device_type=device.type,
                cast_inputs=torch.float32,
            )
            module.forward = MethodType(exact, module)
    return GroundingNetwork(
        model=network.eval().to(device),
        processor=_processor(model, revision, family),
        device=device,
        batches={},
    )
