"""Write a question as a request body for an OpenAI-compatible server, images as data URLs.

A file that all decoders show alike (RGB or grey, 8 bits, upright, opaque, one frame) within the
pixel budget is sent unchanged; any other is decoded here (``decode_rgb``), shrunk and encoded
again.
"""

import base64
import io
import math
import threading
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from PIL import Image

from pairwright.schemas.rows import make_key
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.images.decode import decode_rgb, encode_png, is_plain
from pairwright.tasks.serving.chat import IMAGE, Grammar, Question
from pairwright.tasks.serving.faults import whole

VERSION = 2  # raise when the same question is asked in another way
UNTOUCHED = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""For vLLM, which otherwise reads these from ``generation_config.json``: Qwen2-VL's has ``top_k``
1, which makes seeds useless. Other servers refuse unknown fields. """
PROBABILITY_FIELDS = ("logprobs", "top_logprobs")
"""Fields that request the probabilities of tokens; some servers refuse them."""
SHORTEST = 28  # minimum pixels per side: one token of Qwen2-VL
ELONGATED = 199  # maximum aspect ratio: Qwen2-VL refuses 200 and more
LONGEST = 65_500  # maximum side of a JPEG
SMALL = 65_536  # images of at most SMALL pixels or FEW_COLOURS colours are sent as PNG
FEW_COLOURS = 4096
_DECODING = threading.Semaphore(4)  # images of 40 million pixels are 120 MB each


def body_of(question: Question, config: ChatConfig) -> dict[str, Any]:
    """Return the body of the request; ``RefusedImageError`` for an undecodable image."""
    messages: list[dict[str, Any]] = [
        {"role": turn.role, "content": whole(turn.text)} for turn in question.before
    ]
    messages.append({"role": "user", "content": _content(question, config)})
    body = {
        "model": config.model,
        "messages": messages,
        **_parameters(question, config),
        **_server_fields(question.grammar, config),
    }
    if question.alternatives:
        body |= dict(zip(PROBABILITY_FIELDS, (True, question.alternatives), strict=True))
    return body | config.request.extra_fields


def _parameters(question: Question, config: ChatConfig) -> dict[str, Any]:
    """Return the parameters of a request as the server takes them; others are left out."""
    values = {
        "max_tokens": question.max_tokens + config.thinking_tokens,
        "temperature": _temperature(question, config),
        "top_p": config.top_p,
        "seed": question.seed,
    }
    parameters: dict[str, Any] = {}
    for name, value in values.items():
        setting = getattr(config.request, name)
        if isinstance(setting, str):
            parameters[setting] = value
        elif setting is not None:
            is_whole = name in ("max_tokens", "seed")
            parameters[name] = int(setting) if is_whole else setting
    return parameters


def key_of(question: Question, config: ChatConfig) -> str:
    """Return the hash of everything that affects the answer."""
    images = [blake2b(image, digest_size=16).digest() for image in question.images]
    turns: list[str] = []
    for turn in question.before:
        turns += [whole(turn.role), whole(turn.text)]
    content = [question.prompt, whole(question.text), len(images), *images, len(turns), *turns]
    sampling = (
        question.seed,
        config.max_pixels,
        repr(sorted(_parameters(question, config).items())),
        repr(_server_fields(question.grammar, config)),
        config.request.extra_body,
    )
    if question.alternatives:
        sampling = (*sampling, "alternatives", question.alternatives)
    return make_key("answer", VERSION, config.model, config.revision, *content, *sampling)


def _temperature(question: Question, config: ChatConfig) -> float:
    """Return the question's temperature, by default the profile's."""
    return config.temperature if question.temperature is None else question.temperature


def _content(question: Question, config: ChatConfig) -> str | list[dict[str, Any]]:
    """Return the text of a question, or its texts and images in order."""
    texts = whole(question.text).split(IMAGE)
    if len(texts) == 1:  # without placeholders, images come first
        texts = [""] * len(question.images) + texts
    if len(texts) != len(question.images) + 1:
        raise ValueError(
            f"{question.prompt}: {len(texts) - 1} places for {len(question.images)} images"
        )
    if not question.images:
        return texts[0]
    content: list[dict[str, Any]] = []
    for index, text in enumerate(texts):
        if text:
            content.append({"type": "text", "text": text})
        if index < len(question.images):
            url = image_url(question.images[index], config.max_pixels)
            content.append({"type": "image_url", "image_url": {"url": url}})
    return content


def _server_fields(grammar: Grammar | None, config: ChatConfig) -> dict[str, Any]:
    """Return server-specific fields, mainly the required form of the answer."""
    if config.structured_output == "vllm":
        if not grammar or not (grammar.regex or grammar.schema):
            return dict(UNTOUCHED)
        form = {"regex": grammar.regex} if grammar.regex else {"json": grammar.schema}
        return UNTOUCHED | {"structured_outputs": form}
    if config.structured_output == "json" and grammar and grammar.schema:
        schema = {"name": "answer", "schema": grammar.schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    return {}


@lru_cache(maxsize=64)
def image_url(data: bytes, pixels: int) -> str:
    """Return an image of at most ``pixels`` pixels as a data URL.

    Cached, as pairs are asked about again. Raises ``RefusedImageError`` for undecodable bytes.
    """
    with _DECODING:
        rgb = decode_rgb(data)  # also checks files that are sent unchanged
        height, width = rgb.shape[:2]
        size = sent_size(width, height, pixels)
        if size != (width, height) or not is_plain(data):
            data = _encode(Image.fromarray(rgb), size)
    return f"data:image/{_media_type(data)};base64,{base64.b64encode(data).decode()}"


def _encode(image: Image.Image, size: tuple[int, int]) -> bytes:
    """Return the image in this size: small ones, and those of few colours, as PNG, else as JPEG."""
    if image.size != size:
        image = image.resize(size, Image.Resampling.LANCZOS)
    if image.width * image.height <= SMALL or image.getcolors(FEW_COLOURS):
        return encode_png(np.asarray(image))
    sink = io.BytesIO()
    image.save(
        sink,
        format="JPEG",
        quality=95,
        subsampling=0,
    )
    return sink.getvalue()


def _media_type(data: bytes) -> str:
    if data.startswith(b"\xff\xd8"):
        return "jpeg"
    if data.startswith(b"\x89PNG"):
        return "png"
    return "webp"


def sent_size(
    width: int,
    height: int,
    pixels: int,
) -> tuple[int, int]:
    """Return the size at which an image is sent, in its shape unless too narrow for the model."""
    short, long = sorted((width, height))
    shrinking = min(1.0, math.sqrt(pixels / (short * long)))
    scale = max(shrinking, SHORTEST / short)
    short = max(SHORTEST, int(short * scale))
    max_long = min(int(long * scale), pixels // short, ELONGATED * short, LONGEST)
    long = max(SHORTEST, max_long)
    return (short, long) if width <= height else (long, short)
