"""Grounding DINO detector (Liu et al., 2023), by transformers' model, processor and post-processing.

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
from functools import lru_cache
from itertools import groupby
from types import MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.adaptive_batches import AdaptiveBatches
from pairwright.tasks.models.checkpoints import load_pretrained
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.weights import Pretrained, is_local, loading, require_packages

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
FRAMING = re.compile(r"[.?\[\]]")  # ends a tag in a prompt, or names a special token ("[SEP]")
SCORE_DIGITS, PIXEL_DIGITS = 4, 2  # of a written box: later digits depend on the batch size


class ResizedImage(NamedTuple):
    """Resized image."""

    pixels: NDArray[np.uint8]  # ``(3, h, w)``
    size: tuple[int, int]  # height and width of the original image


class TagPrompt(NamedTuple):
    """Tokens of an image's tags."""

    ids: list[int]
    spans: dict[int, slice]  # tokens of each tag, by its position among the image's


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingDino:
    """Detector by Grounding DINO; its weights are loaded at the first use, once per process."""

    config: DetectionConfig

    @property
    def version(self) -> str:
        """Return the identity of the weights."""
        return MODELS.identify(self.config.model, self.config.revision)

    def prepare(self, seen: DecodedImage) -> ResizedImage:
        """Return the image as resized by the model's processor; loads no weights."""
        height, width = seen.pixels.shape[:2]
        least = -(-max(height, width) // MAX_ASPECT)
        pixels = seen.pixels.repeat(-(-least // height), axis=0).repeat(-(-least // width), axis=1)
        resize = _processor(self.config.model, self.config.revision).image_processor
        made = resize(
            images=pixels, do_rescale=False, do_normalize=False, do_pad=False, return_tensors="pt",
            input_data_format="channels_last",
        )  # fmt: skip
        return ResizedImage(made["pixel_values"][0].numpy(), (height, width))

    def detect(
        self, prepared: Sequence[ResizedImage], tags: Sequence[Sequence[Tag]]
    ) -> list[tuple[Box, ...]]:
        """Return the boxes of each image, in its pixels, by tag and then by falling score.

        A tag has at most 900 boxes, the network's queries; tags too long for a prompt have none.
        """
        network = _load(self.config.model, self.config.revision)
        batches = network.batches.setdefault(
            self.config.batch_size,
            AdaptiveBatches(self.config.batch_size, most=MAX_IMAGES, on_cpu=1),
        )
        asks = [
            (place, prompt)
            for place, names in enumerate(tags)
            for prompt in network.prompts([tag.name for tag in names])
        ]
        found: dict[tuple[int, int], list[Box]] = {}
        # Within a size, sort by prompt length: prompts are padded to the longest.
        asks.sort(key=lambda ask: (prepared[ask[0]].pixels.shape, len(ask[1].ids)))
        for _, group in groupby(asks, key=lambda ask: prepared[ask[0]].pixels.shape):
            some = [(prepared[place], prompt, place) for place, prompt in group]
            answers = batches.each(
                lambda ask: network.answer([one[:2] for one in ask], self.config), some
            )
            for (_, prompt, place), boxes in zip(some, answers, strict=True):
                found[place, min(prompt.spans)] = boxes
        boxes_of: list[list[Box]] = [[] for _ in prepared]
        for place, first in sorted(found):
            boxes_of[place] += found[place, first]
        return [tuple(boxes) for boxes in boxes_of]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingNetwork:
    """Network on its device, with its processor."""

    model: Any  # transformers' ``GroundingDinoForObjectDetection``
    processor: Any  # its ``GroundingDinoProcessor``
    device: "device"
    batches: dict[int, AdaptiveBatches]  # sizes found so far, by the configured one

    def prompts(self, names: Sequence[str]) -> list[TagPrompt]:
        """Return the prompts of an image's tags, in order; tags too long or without known tokens are left out."""
        tokenizer, limit = self.processor.tokenizer, self.model.config.max_text_len
        # Lone surrogates cannot be tokenised.
        clean = [
            FRAMING.sub(" ", name).encode("utf-8", "ignore").decode().lower() for name in names
        ]
        read = tokenizer(clean, add_special_tokens=False)["input_ids"] if clean else []
        stop = tokenizer.convert_tokens_to_ids(".")
        made: list[TagPrompt] = []
        for tag, ids in enumerate(read):
            if not set(ids) - {tokenizer.unk_token_id} or len(ids) + 3 > limit:
                continue
            if not made or len(made[-1].ids) + len(ids) + 2 > limit:
                made.append(TagPrompt([tokenizer.cls_token_id], {}))
            made[-1].spans[tag] = slice(len(made[-1].ids), len(made[-1].ids) + len(ids))
            made[-1].ids.extend([*ids, stop])
        return [TagPrompt([*prompt.ids, tokenizer.sep_token_id], prompt.spans) for prompt in made]

    def answer(
        self, asks: Sequence[tuple[ResizedImage, TagPrompt]], config: DetectionConfig
    ) -> list[list[Box]]:
        """Return the boxes found in images of one size, each by its prompt."""
        import torch

        images = [torch.from_numpy(image.pixels) for image, _ in asks]
        seen = self.processor.image_processor(
            images=images,
            do_resize=False,
            return_tensors="pt",
            device=self.device,
            input_data_format="channels_first",
        )
        text = self.processor.tokenizer.pad(
            {"input_ids": [prompt.ids for _, prompt in asks]}, return_tensors="pt"
        )
        text = text.to(self.device)
        on_gpu = self.device.type == "cuda"
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, torch.bfloat16, enabled=on_gpu),
        ):
            found = self.model(**seen, **text, token_type_ids=torch.zeros_like(text["input_ids"]))
            # Padding has logits of minus infinity.
            logits, boxes = found.logits.float().cpu(), found.pred_boxes.float().cpu()
        if bool(logits.isnan().any()) or not bool(boxes.isfinite().all()):
            raise ModelError(
                f"{FIELD}.model: Grounding DINO gave boxes or scores that are not finite"
            )
        return [
            list(self._kept(image, prompt, logits[n], boxes[n], config))
            for n, (image, prompt) in enumerate(asks)
        ]

    def _kept(
        self,
        image: ResizedImage,
        prompt: TagPrompt,
        logits: "Tensor",
        boxes: "Tensor",
        config: DetectionConfig,
    ) -> Iterator[Box]:
        """Yield the boxes of a prompt's tags that pass the thresholds, clipped to the image.

        The library's labels mix the words of several tags, so each tag is post-processed alone,
        other tokens hidden.
        """
        import torch
        from torchvision.ops import clip_boxes_to_image, nms

        sure = logits[:, : len(prompt.ids)].sigmoid().amax(dim=1) >= config.box_threshold
        own = torch.full((len(prompt.spans), int(sure.sum()), logits.shape[1]), -torch.inf)
        for shown, span in zip(own, prompt.spans.values(), strict=True):
            shown[:, span] = logits[sure, span]
        results = self.processor.post_process_grounded_object_detection(
            SimpleNamespace(logits=own, pred_boxes=boxes[sure].expand(len(own), -1, -1)),
            input_ids=torch.tensor([prompt.ids]).expand(len(own), -1),
            threshold=config.text_threshold,
            text_threshold=1.0,  # no labels
            target_sizes=[image.size] * len(own),
        )
        for tag, result in zip(prompt.spans, results, strict=True):
            corners, scores = clip_boxes_to_image(result["boxes"], image.size), result["scores"]
            (whole,) = (corners[:, 2:] > corners[:, :2]).all(dim=1).nonzero(as_tuple=True)
            for place in whole[nms(corners[whole], scores[whole], config.max_iou)].tolist():
                x0, y0, x1, y1 = (round(corner, PIXEL_DIGITS) for corner in corners[place].tolist())
                yield Box(
                    tag=tag,
                    score=round(float(scores[place]), SCORE_DIGITS),
                    x0=x0,
                    y0=y0,
                    x1=x1,
                    y1=y1,
                )


def pin_grounding_dino(config: DetectionConfig, *, download: bool) -> DetectionConfig:
    """Return the configuration with the revision of the local weights; local folders are checked.

    ``ModelError``: weights or packages are missing, damaged or another model's, before a build
    starts.
    """
    require_packages(FIELD, "torch", "torchvision", "transformers")
    pinned = config.model_copy(update=MODELS.pin(config.model, config.revision, download=download))
    if is_local(pinned.model):
        _processor(pinned.model, pinned.revision)
    return pinned


MODELS = Pretrained(
    field=FIELD,
    kind="Grounding DINO",
    types=("grounding-dino",),
    known=KNOWN,
    weights=("model.safetensors",),
    beside=("config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"),
)


@lru_cache(maxsize=4)
def _processor(model: str, revision: str) -> Any:
    from transformers import GroundingDinoProcessor

    folder = MODELS.folder(model, revision)
    with loading(FIELD, folder):
        return GroundingDinoProcessor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )


@lru_cache(maxsize=1)
def _load(model: str, revision: str) -> GroundingNetwork:
    import torch
    from transformers import GroundingDinoForObjectDetection
    from transformers.models.grounding_dino import modeling_grounding_dino as library

    device = choose_device()
    folder = MODELS.checked_folder(model, revision)
    MODELS.find_type(folder)
    network = load_pretrained(
        GroundingDinoForObjectDetection, folder, field=FIELD, use_safetensors=True
    )
    for module in network.modules():
        if isinstance(
            module,
            (library.GroundingDinoMLPPredictionHead, library.GroundingDinoContrastiveEmbedding),
        ):
            exact = torch.amp.custom_fwd(
                type(module).forward, device_type=device.type, cast_inputs=torch.float32
            )
            module.forward = MethodType(exact, module)
    processor = _processor(model, revision)
    return GroundingNetwork(
        model=network.eval().to(device), processor=processor, device=device, batches={}
    )
