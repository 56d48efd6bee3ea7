"""Find boxes for tags with Grounding DINO (Liu et al., 2023), by transformers.

Reads a folder as ``save_pretrained`` writes it (``config.json``, the files of image processor and tokenizer, weights
as safetensors), local or in the Hub's cache; no code comes with the weights. Needs PyTorch, torchvision, transformers.
``groundingdino-py``, the authors' package, does not run with transformers 5 (its BERT wrapper calls what is gone);
transformers has the same network and is maintained.

All tags of an image are asked for in as few prompts as fit into the network's 256 tokens ("tag . tag ."); thirty tags
are some 100. An image with several prompts goes through the whole network once for each: text and image are fused from
the encoder's first layer on, and the backbone before it is called inside the library's forward.

What is kept, as in the public demonstrations: a box whose best score, over all tokens of its prompt, reaches
``box_threshold``, for each tag whose score for it, the best over the tag's own tokens, reaches ``text_threshold`` (so a
box may be of several tags, or of none). The tag's score is the box's. Of two boxes of one tag that overlap by more than
``nms``, the one with the higher score stays. A tag's tokens are known by their place in the prompt: the strings that
the library makes of the tokens above the threshold mix the words of several tags.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.batches import Batches
from pairwright.tasks.models.devices import choose_device, count_gpus
from pairwright.tasks.models.grounding.fit_images import Fit, Fitted, fit_of
from pairwright.tasks.models.grounding.network import MOST, MOST_ON_CPU, Answer, Ask, GroundingNetwork, compute_exactly
from pairwright.tasks.models.grounding.pack_tags import Prompt, TagPacker
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.pretrained import Pretrained, is_local
from pairwright.tasks.models.weights import find_local, loading, require_packages

FIELD = "detection"
CONFIG, TOKENS, TOKENIZER = "config.json", "tokenizer.json", "tokenizer_config.json"
PROCESSOR, WHOLE_PROCESSOR = "preprocessor_config.json", "processor_config.json"
"""Where the image processor is described: on its own, as published, or with the tokenizer's name, as transformers 5
writes it."""
KNOWN = {
    "IDEA-Research/grounding-dino-base": "12bdfa3120f3e7ec7b434d90674b3396eccf88eb",
    "IDEA-Research/grounding-dino-tiny": "a2bb814dd30d776dcf7e30523b00659f4f141c71",
}
"""The commits that are taken where a profile names none."""
SCORE_DIGITS, PIXEL_DIGITS = 4, 2
"""Of a box that is written: the size of a batch changes later ones."""
DELIMITERS = {"[CLS]": 101, "[SEP]": 102, ".": 1012, "?": 1029}
"""At these ids the network splits a prompt into phrases, whatever its tokenizer says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingDino:
    """Detect with Grounding DINO; its weights are loaded once per process, when they are first needed."""

    config: DetectionConfig
    looks: bool = True

    @property
    def version(self) -> str:
        """Say which weights these are."""
        return MODELS.identify(self.config.model, self.config.revision)

    def prepare(self, seen: Seen) -> Fitted:
        """Return the image as the model's own transform resizes it; loads no weights."""
        return _fit(self.config.model, self.config.revision)(seen)

    def detect(self, prepared: Sequence[Fitted], tags: Sequence[Sequence[Tag]]) -> list[tuple[Box, ...]]:
        """Return the boxes of each image, in its pixels, by tag and then by falling score.

        A tag has at most as many boxes as the network has queries (900); tags that no prompt can hold have none.

        Raises:
            ModelError: the weights do not load or give no numbers, or one image does not fit in the memory.
        """
        network = _load(self.config.model, self.config.revision)
        prompts = network.pack([[tag.name for tag in names] for names in tags])
        places = [place for place, some in enumerate(prompts) for _ in some]
        asks = [Ask(image, prompt) for image, some in zip(prepared, prompts, strict=True) for prompt in some]
        answers = network.answer(asks, _batches(self.config.model, self.config.revision, self.config.batch_size))
        found: list[list[Box]] = [[] for _ in prepared]
        for place, ask, answer in zip(places, asks, answers, strict=True):
            found[place] += boxes_of(answer, ask.prompt, ask.image, self.config)
        return [tuple(boxes) for boxes in found]


def boxes_of(answer: Answer, prompt: Prompt, image: Fitted, config: DetectionConfig) -> Iterator[Box]:
    """Yield the boxes of a prompt's tags that reach the thresholds, clipped to the image, as the module says."""
    corners = _corners(answer.boxes, image.height, image.width)
    whole = (corners[:, 2] > corners[:, 0]) & (corners[:, 3] > corners[:, 1])
    good = whole & (answer.scores.max(axis=1) >= config.box_threshold)
    for span in prompt.spans:
        scores = answer.scores[:, span.start : span.stop].max(axis=1)
        (places,) = np.nonzero(good & (scores >= config.text_threshold))
        for place in places[_unlike(corners[places], scores[places], config.max_iou)]:
            x0, y0, x1, y1 = corners[place].round(PIXEL_DIGITS).tolist()
            yield Box(tag=span.tag, score=float(scores[place].round(SCORE_DIGITS)), x0=x0, y0=y0, x1=x1, y1=y1)


def _corners(boxes: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """Return ``(n, 4)`` corners in pixels of the image, none outside of it."""
    size = np.array([width, height], dtype=np.float32)
    centre, half = boxes[:, :2], boxes[:, 2:] / 2
    corners = np.concatenate([(centre - half) * size, (centre + half) * size], axis=1)
    return np.clip(corners, 0, np.tile(size, 2)).astype(np.float32)


def _unlike(corners: NDArray[np.float32], scores: NDArray[np.float32], overlap: float) -> NDArray[np.int64]:
    """Return the places of those that no better one overlaps by more, by falling score."""
    import torch
    from torchvision.ops import nms

    return nms(torch.from_numpy(corners), torch.from_numpy(scores), overlap).numpy()


def pin_grounding_dino(config: DetectionConfig, *, download: bool) -> DetectionConfig:
    """Return the configuration with the revision of the weights that are on this machine.

    Raises:
        ModelError: weights or packages are missing, or the weights are not those that the configuration names.
    """
    require_packages(FIELD, "torch", "torchvision", "transformers")
    return config.model_copy(update=MODELS.pin(config.model, config.revision, download=download))


def check_grounding_dino(config: DetectionConfig) -> None:
    """Refuse a local folder of another model, or one with damaged weights, before a build has worked to come to it.

    Raises:
        ModelError: names the folder, and what is wrong with it.
    """
    from safetensors import safe_open

    if not is_local(config.model):
        return
    folder = Path(config.model).expanduser()
    with loading(FIELD, folder):
        _check_kind(folder)
        for file in _local_files(folder):
            if file.suffix == ".safetensors":
                with safe_open(file, framework="np"):  # its header says how long the file must be
                    pass


def _local_files(folder: Path) -> list[Path]:
    processor = WHOLE_PROCESSOR if (folder / WHOLE_PROCESSOR).is_file() else PROCESSOR
    found = find_local(f"{FIELD}.model", folder, beside=(CONFIG, processor, TOKENS, TOKENIZER))
    if not any(file.suffix == ".safetensors" for file in found):
        raise ModelError(f"{FIELD}.model: {folder} holds no weights as safetensors")
    return found


MODELS = Pretrained(
    field=FIELD,
    kind="Grounding DINO",
    known=KNOWN,
    weights=("model.safetensors",),
    beside=(CONFIG, PROCESSOR, TOKENS, TOKENIZER),
    list_local=_local_files,
)


@lru_cache(maxsize=4)
def _fit(model: str, revision: str) -> Fit:
    folder = MODELS.folder(model, revision)
    with loading(FIELD, folder):
        return fit_of(_processor(folder), field=f"{FIELD}.model: {folder}")


def _processor(folder: Path) -> Mapping[str, Any]:
    """Return what is said of the image processor."""
    whole = folder / WHOLE_PROCESSOR
    if whole.is_file() and (said := json.loads(whole.read_text(encoding="utf-8")).get("image_processor")):
        return said
    return json.loads((folder / PROCESSOR).read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _load(model: str, revision: str) -> GroundingNetwork:
    """Load the model and its tokenizer by transformers' own loaders."""
    from transformers import GroundingDinoForObjectDetection

    device = choose_device()
    folder = MODELS.checked_folder(model, revision)
    with loading(FIELD, folder):
        _check_kind(folder)
        network: Any = GroundingDinoForObjectDetection.from_pretrained(
            folder, local_files_only=True, use_safetensors=True
        )
        network = network.eval().to(device)
        compute_exactly(_heads(network), device.type)
        pack = _packer(folder, network.config.max_text_len)
    return GroundingNetwork(model=network, fit=_fit(model, revision), pack=pack, device=device)


@lru_cache(maxsize=8)
def _batches(model: str, revision: str, fixed: int) -> Batches:  # noqa: ARG001 - batches are found for each network
    """Return how many images this process has found to go at once; it is kept for the next call."""
    return Batches(fixed, MOST if count_gpus() else MOST_ON_CPU)


def _check_kind(folder: Path) -> None:
    kind = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("model_type")
    if kind != "grounding-dino":
        raise ModelError(f"{FIELD}.model: {folder / CONFIG} describes a {kind}, not a grounding-dino")


def _heads(network: Any) -> list[Any]:
    """Return the modules that say where boxes are, and of what."""
    from transformers.models.grounding_dino import modeling_grounding_dino as library

    kinds = (library.GroundingDinoMLPPredictionHead, library.GroundingDinoContrastiveEmbedding)
    return [module for module in network.modules() if isinstance(module, kinds)]


def _packer(folder: Path, limit: int) -> TagPacker:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    found = {token: tokenizer.convert_tokens_to_ids(token) for token in DELIMITERS}
    if found != DELIMITERS:
        raise ModelError(
            f"{FIELD}.model: {folder}: its tokenizer is not BERT's, uncased, which the network was made for: "
            f"{found} instead of {DELIMITERS}"
        )
    words = {tokenizer.unk_token_id}
    return TagPacker(
        tokenize=lambda texts: tokenizer(texts, add_special_tokens=False)["input_ids"],
        first=DELIMITERS["[CLS]"],
        last=DELIMITERS["[SEP]"],
        stop=DELIMITERS["."],
        unknown=tokenizer.unk_token_id,
        forbidden=frozenset({*DELIMITERS.values(), *tokenizer.all_special_ids} - words),
        limit=limit,
    )
