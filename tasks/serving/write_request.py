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
from pairwright.tasks.serving.connection import whole

VERSION = 1  # raise when the same question is asked in another way
UNTOUCHED = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""For vLLM, which otherwise reads these from ``generation_config.json``: Qwen2-VL's has ``top_k``
1, which makes seeds useless. Other servers refuse unknown fields. """
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
    return {
        "model": config.model,
        "messages": messages,
        "max_tokens": question.max_tokens,
        "temperature": config.temperature if question.temperature is None else question.temperature,
        "top_p": config.top_p,
        "seed": question.seed,
        **_server_fields(question.grammar, config),
    }


def key_of(question: Question, config: ChatConfig) -> str:
    """Return the hash of everything that affects the answer."""
    images = [blake2b(image, digest_size=16).digest() for image in question.images]
    turns = [part for turn in question.before for part in (turn.role, turn.text)]
    temperature = config.temperature if question.temperature is None else question.temperature
    special = repr(_server_fields(question.grammar, config))
    asked = (
        question.prompt,
        whole(question.text),
        len(images),
        *images,
        len(turns),
        *map(whole, turns),
    )
    how = (
        question.seed,
        question.max_tokens,
        float(temperature),
        float(config.top_p),
        config.max_pixels,
        special,
    )
    return make_key("answer", VERSION, config.model, config.revision, *asked, *how)


def _content(question: Question, config: ChatConfig) -> str | list[dict[str, Any]]:
    pieces = whole(question.text).split(IMAGE)
    if len(pieces) == 1:
        pieces = [""] * len(question.images) + pieces
    if len(pieces) != len(question.images) + 1:
        raise ValueError(
            f"{question.prompt}: {len(pieces) - 1} places for {len(question.images)} images"
        )
    if not question.images:
        return pieces[0]
    content: list[dict[str, Any]] = []
    for place, piece in enumerate(pieces):
        if piece:
            content.append({"type": "text", "text": piece})
        if place < len(question.images):
            url = image_url(question.images[place], config.max_pixels)
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
    """Return an image of at most ``pixels`` pixels as a data URL; cached, as pairs are asked about again.

    Raises ``RefusedImageError`` for undecodable bytes.
    """
    with _DECODING:
        rgb = decode_rgb(data)  # also checks files that are sent unchanged
        height, width = rgb.shape[:2]
        size = _fitting(width, height, pixels)
        if size != (width, height) or not is_plain(data):
            image = Image.fromarray(rgb)
            if image.size != size:
                image = image.resize(size, Image.Resampling.LANCZOS)
            if image.width * image.height <= SMALL or image.getcolors(FEW_COLOURS):
                data = encode_png(np.asarray(image))
            else:
                sink = io.BytesIO()
                image.save(sink, format="JPEG", quality=95, subsampling=0)
                data = sink.getvalue()
    kind = (
        "jpeg" if data.startswith(b"\xff\xd8") else "png" if data.startswith(b"\x89PNG") else "webp"
    )
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _fitting(width: int, height: int, pixels: int) -> tuple[int, int]:
    """Return the size at which an image is sent, in its shape unless too narrow for the model."""
    short, long = sorted((width, height))
    scale = max(min(1.0, math.sqrt(pixels / (short * long))), SHORTEST / short)
    short = max(SHORTEST, int(short * scale))
    long = max(SHORTEST, min(int(long * scale), pixels // short, ELONGATED * short, LONGEST))
    return (short, long) if width <= height else (long, short)
