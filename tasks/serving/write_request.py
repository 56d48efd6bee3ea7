"""Write a question as the body of a request to an OpenAI-compatible server."""

from hashlib import blake2b
from typing import Any

from pairwright.schemas.rows import make_key
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.serving.chat import IMAGE, Grammar, Question
from pairwright.tasks.serving.faults import whole
from pairwright.tasks.serving.pixels import image_url

VERSION = 1
"""Raise it when the same question is asked in another way."""
UNTOUCHED = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""For vLLM, which otherwise takes these from the checkpoint's ``generation_config.json``: Qwen2-VL's has ``top_k`` 1,
so that every seed gives the same answer. Other servers refuse words that they do not know."""


def body_of(question: Question, config: ChatConfig) -> dict[str, Any]:
    """Return the body of the request; images are decoded for it.

    Raises:
        RefusedImageError: an image does not decode.
        ValueError: the text has places for another number of images than there are.
    """
    messages: list[dict[str, Any]] = [{"role": turn.role, "content": whole(turn.text)} for turn in question.before]
    messages.append({"role": "user", "content": _content(question, config)})
    temperature = config.temperature if question.temperature is None else question.temperature
    body = {
        "model": config.model,
        "messages": messages,
        "max_tokens": question.max_tokens,
        "temperature": temperature,
        "top_p": config.top_p,
        "seed": question.seed,
    }
    return body | _special(question.grammar, config)


def key_of(question: Question, config: ChatConfig) -> str:
    """Return the hash of everything that decides the answer."""
    images = [blake2b(image, digest_size=16).digest() for image in question.images]
    turns = [part for turn in question.before for part in (turn.role, turn.text)]
    temperature = config.temperature if question.temperature is None else question.temperature
    special = repr(_special(question.grammar, config))
    asked = (question.prompt, whole(question.text), len(images), *images, len(turns), *map(whole, turns))
    how = (question.seed, question.max_tokens, float(temperature), float(config.top_p), config.max_pixels, special)
    return make_key("answer", VERSION, config.model, config.revision, *asked, *how)


def _content(question: Question, config: ChatConfig) -> str | list[dict[str, Any]]:
    """Return the text with the images in their places."""
    pieces = whole(question.text).split(IMAGE)
    if len(pieces) == 1:
        pieces = [""] * len(question.images) + pieces
    if len(pieces) != len(question.images) + 1:
        raise ValueError(f"{question.prompt}: {len(pieces) - 1} places for {len(question.images)} images")
    if not question.images:
        return pieces[0]
    content: list[dict[str, Any]] = []
    for piece, image in zip(pieces, question.images, strict=False):
        content += _words(piece)
        content.append({"type": "image_url", "image_url": {"url": image_url(image, config.max_pixels)}})
    return content + _words(pieces[-1])


def _words(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []


def _special(grammar: Grammar | None, config: ChatConfig) -> dict[str, Any]:
    """Return what not every server knows: above all, of what form the answer must be."""
    if config.structured_output == "vllm":
        return UNTOUCHED | _vllm_form(grammar)
    if config.structured_output == "json" and grammar and grammar.schema:
        schema = {"name": "answer", "schema": grammar.schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    return {}


def _vllm_form(grammar: Grammar | None) -> dict[str, Any]:
    if not grammar or not (grammar.regex or grammar.schema):
        return {}
    return {"structured_outputs": {"regex": grammar.regex} if grammar.regex else {"json": grammar.schema}}
