"""Find out, at the start of a build, a server's model and its support for structured output.

The result is written into the configuration, on record and fixed for the build.
"""

import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.training import SIZES
from pairwright.schemas.writing import ChatConfig, RequestConfig, Structured
from pairwright.tasks.images.decode import encode_png
from pairwright.tasks.serving.chat import (
    REFUSED,
    Grammar,
    Question,
    RefusedQuestionError,
    UnansweredError,
)
from pairwright.tasks.serving.client import Client
from pairwright.tasks.serving.connection import PACE, Pace
from pairwright.tasks.serving.faults import FaultError, MisfitError, StatusError
from pairwright.tasks.serving.launch import check_launch
from pairwright.tasks.serving.loop import run_coroutine

log = logging.getLogger(__name__)
PARAMETERS = {
    "max_tokens": ("max_completion_tokens",),
    "temperature": (1.0,),
    "top_p": (),
    "seed": (),
}
"""Parameters of a request, in the order in which they are tried, and their other names."""
OUT_OF_TOKENS = "output limit was reached"
"""Words of OpenAI's servers where thoughts took all tokens."""
SHOWN = 20  # models listed in a message
TRIES = 3
PATIENCE_S = 60.0  # a slow server is reported before the build
LOOK = "What do you see?"
HELLO = "Say hello."
FINISHED = "checkpoint"  # folder of a training run's model
WORD = "zq7"  # a word that no model writes unless constrained
FORM = Grammar(
    regex=WORD,
    schema={
        "type": "object",
        "properties": {"word": {"type": "string", "enum": [WORD]}},
        "required": ["word"],
        "additionalProperties": False,
    },
)
KINDS: Mapping[Structured, Callable[[str], bool]] = {
    "vllm": lambda text: text.strip() == WORD,
    "json": lambda text: json.loads(text) == {"word": WORD},
}
"""Kinds of structured output, best first, and tests of answers to ``FORM``."""


class FailedRequestError(ServerError):
    """Server fault at a request, which may be the request's own: some fail where others refuse."""


def probe_model(
    chat: ChatConfig,
    *,
    field: str = "models.chat",
    images: int = 0,
    pace: Pace = PACE,
) -> ChatConfig:
    """Return the configuration with the model's name and the kind of structured output filled in.

    With ``launch`` nothing is asked: the build starts vLLM itself. ``field`` is the profile's name
    for the model; it is shown ``images`` small images, the most it will be shown at once. Raises
    ``ConfigError`` for a wrong profile, ``ServerError`` for an unreachable server.
    """
    _check_perception(chat.model, field)
    if chat.launch.enabled:
        check_launch(chat, field)
        if chat.structured_output == "auto":
            return chat.model_copy(update={"structured_output": "vllm"})
        return chat
    if not chat.endpoint:
        raise ConfigError(
            f"{field}.endpoint: name an OpenAI-compatible server (--set {field}.endpoint="
            "http://HOST:PORT/v1), or stop before captions are written (--until mining)"
        )
    resolved = run_coroutine(
        _probe(
            chat,
            field,
            images=images,
            pace=pace,
        )
    )
    _check_perception(resolved.model, field)
    return resolved


def _check_perception(model: str, field: str) -> None:
    """Refuse models with differential perception, which servers would ignore."""
    if not model:
        return
    for folder in (Path(model), Path(model, FINISHED)):
        if (folder / SIZES).is_file():
            raise ConfigError(
                f"{field}.model: {folder} has differential perception, which vLLM would ignore. "
                "Load it locally instead: pairwright evaluate model, without --server"
            )


async def _probe(
    chat: ChatConfig,
    field: str,
    *,
    images: int,
    pace: Pace,
) -> ChatConfig:
    model = chat.model
    for url in chat.endpoint:
        model = await _find_served(
            chat,
            url,
            model,
            field=field,
            pace=pace,
        )
    chat = chat.model_copy(update={"model": model})
    for url in chat.endpoint:
        request = await _fit_request(
            chat,
            url,
            images,
            field=field,
            pace=pace,
        )
        chat = chat.model_copy(update={"request": request})
    if chat.structured_output != "auto":
        return chat
    for kind in KINDS:
        if all([await _obeys(chat, url, kind, pace) for url in chat.endpoint]):
            return chat.model_copy(update={"structured_output": kind})
    return chat.model_copy(update={"structured_output": "none"})


NO_LIST = (StatusError, RefusedQuestionError, MisfitError, FaultError)
"""Errors of a server that may have no list of models."""


def _is_serious(error: Exception) -> bool:
    """Return whether an error says more than that there is no list of models."""
    if isinstance(error, MisfitError):
        return error.status == 401
    if isinstance(error, FaultError):
        return error.reason not in ("broken answer", "server error")
    return isinstance(error, StatusError) and error.status in (402, 403)


async def _find_served(
    chat: ChatConfig,
    url: str,
    model: str,
    *,
    field: str,
    pace: Pace,
) -> str:
    """Return the model if a server has it; without a name, the server's single model.

    A named model needs no list of models.
    """
    async with _open(chat, url, pace) as client:
        try:
            names = tuple(dict.fromkeys(await client.endpoints.all[0].connection.models()))
        except NO_LIST as error:
            if not model or _is_serious(error):
                raise
            return model  # the first question shows whether the server has it
    listed = ", ".join(names[:SHOWN]) or "none"
    if not model and len(names) != 1:
        raise ConfigError(f"{field}.model: name one of those that {url} serves: {listed}")
    model = model or names[0]
    if model not in names and not await _answers_as(chat, url, model, pace):
        raise ConfigError(f'{field}.model: {url} does not serve "{model}"; it serves {listed}')
    return model


async def _answers_as(chat: ChatConfig, url: str, model: str, pace: Pace) -> bool:
    """Return whether a server answers for a model that it does not list, as some load on demand."""
    unlisted = chat.model_copy(update={"model": model, "max_attempts": 1})
    try:
        return not await _refuses(unlisted, url, 0, pace)
    except ServerError:
        return False


@asynccontextmanager
async def _open(
    chat: ChatConfig,
    url: str,
    pace: Pace,
    kind: Structured = "none",
) -> AsyncGenerator[Client]:
    """Open a client of one server with little patience; its faults become ``ServerError``."""
    update = {
        "endpoint": (url,),
        "structured_output": kind,
        "max_attempts": min(TRIES, chat.max_attempts),
        "timeout_seconds": min(chat.timeout_seconds, PATIENCE_S),
        "patience_seconds": min(chat.patience_seconds, PATIENCE_S),
    }
    client = Client(chat.model_copy(update=update), pace)
    try:
        yield client
    except FaultError as fault:
        raise ServerError(f"{url}: {fault}: {fault.advice}") from None
    except StatusError as error:
        advice = f": {error.advice}" if error.advice else ""
        raise ServerError(f"{url}: {error.detail}{advice}") from None
    except UnansweredError as error:
        if error.reason == "server error":
            raise FailedRequestError(f"{url}: {error}") from None
        raise ServerError(f"{url}: {error}") from None
    finally:
        await client.endpoints.close()


def _advise(words: str, images: int) -> str:
    """Return what to do about a refusal, where its words fit; else nothing."""
    lower = words.lower()
    if "template" in lower:
        return ": give the server a chat template of the model (vLLM: --chat-template FILE)"
    if images and any(
        word in lower for word in ("image", "multimodal", "multi-modal", "vision", "modalit")
    ):
        return (
            ": serve a vision model with a sufficient limit (vLLM: "
            f"--limit-mm-per-prompt '{{\"image\": {images}}}')"
        )
    return ""


async def _fit_request(
    chat: ChatConfig,
    url: str,
    images: int,
    *,
    field: str,
    pace: Pace,
) -> RequestConfig:
    """Return the parameters that a server takes; those that it refuses are renamed or left out.

    It is shown small images: one that sees none, or too few, would refuse every row. Raises
    ``ConfigError`` where it refuses the question without parameters, too, and ``ServerError`` where
    it fails at it.
    """
    failures: list[FailedRequestError] = []

    async def find_refusal(request: RequestConfig) -> str:
        try:
            return await _refuses(chat.model_copy(update={"request": request}), url, images, pace)
        except FailedRequestError as error:
            failures.append(error)
            return str(error)

    wanted = chat.request
    if not await find_refusal(wanted):
        return wanted
    request = wanted.model_copy(update=dict.fromkeys(PARAMETERS))
    words = await find_refusal(request)
    if words and not await find_refusal(request.model_copy(update={"temperature": 1.0})):
        request = request.model_copy(update={"temperature": 1.0})
    elif words and failures:
        raise failures[-1]
    elif words:
        raise ConfigError(f"{field}: {chat.model} at {url} {_say_refusal(words, images)}")
    for name, others in PARAMETERS.items():
        for setting in (getattr(wanted, name), *others):
            trial = request.model_copy(update={name: setting})
            if setting is not None and not await find_refusal(trial):
                request = trial
                break
    changes = [_say_change(name, wanted, request) for name in PARAMETERS]
    log.warning("%s: %s refuses parameters: %s", field, url, "; ".join(filter(None, changes)))
    return request


def _say_refusal(words: str, images: int) -> str:
    """Return what a server refuses, in its own words, and advice where these fit."""
    if not images:
        return f"refuses a plain question ({words}){_advise(words, images)}"
    plural = "s" if images > 1 else ""
    return f"refuses {images} image{plural} at once ({words}){_advise(words, images)}"


def _say_change(name: str, wanted: RequestConfig, request: RequestConfig) -> str:
    """Return what becomes of a parameter, in words; empty: it stays."""
    setting = getattr(request, name)
    if setting == getattr(wanted, name):
        return ""
    return f"{name} is left out" if setting is None else f"{name} is sent as {setting}"


async def _refuses(
    chat: ChatConfig,
    url: str,
    images: int,
    pace: Pace,
) -> str:
    """Return the server's words if it refuses a small question; empty: it takes it."""
    import numpy as np

    picture = encode_png(np.full((56, 56, 3), (180, 90, 60), np.uint8))
    question = Question(
        prompt="probe",
        text=LOOK if images else HELLO,
        images=(picture,) * images,
        max_tokens=8,
        temperature=0,
    )
    try:
        async with _open(chat, url, pace) as client:
            await client.ask(question)
    except RefusedQuestionError as refused:
        if refused.reason != REFUSED or OUT_OF_TOKENS in refused.detail:
            return ""
        return refused.detail or refused.reason
    return ""


async def _obeys(
    chat: ChatConfig,
    url: str,
    kind: Structured,
    pace: Pace,
) -> bool:
    """Return whether an answer has the required form; servers ignore or refuse unknown options."""
    question = Question(
        prompt="probe",
        text=HELLO,
        max_tokens=64,
        temperature=0,
        grammar=FORM,
    )
    try:
        async with _open(chat, url, pace, kind) as client:
            answer = await client.ask(question)
            return KINDS[kind](answer.text)
    except (RefusedQuestionError, FailedRequestError, ValueError, RecursionError):
        return False
