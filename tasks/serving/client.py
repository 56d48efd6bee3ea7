"""Ask a served model: any OpenAI-compatible server, or several that share the load.

One client for each configuration is kept for the process's life, so that what it has learnt of its servers stays from
shard to shard. Everything in it runs on the background loop. Needs the network, and ``openai``.
"""

import asyncio
import atexit
import json
import random
import threading
import time
from dataclasses import asdict
from functools import lru_cache
from itertools import count
from typing import Any

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.rows import Served
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.serving.chat import Answer, Question, RefusedQuestionError, UnansweredError
from pairwright.tasks.serving.connection import Connection
from pairwright.tasks.serving.endpoints import Endpoint, Endpoints, Turn
from pairwright.tasks.serving.faults import FaultError, Said
from pairwright.tasks.serving.keys import load_key
from pairwright.tasks.serving.limiter import Limiter
from pairwright.tasks.serving.loop import background, run
from pairwright.tasks.serving.pace import PACE, Pace
from pairwright.tasks.serving.write_request import body_of, key_of
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.images import RefusedImageError

_CLIENTS: dict[tuple[ChatConfig, Pace], "Client"] = {}
_MAKING = threading.Lock()


class Client:
    """Ask the servers of one configuration."""

    def __init__(self, config: ChatConfig, pace: Pace = PACE) -> None:
        """Load the key; nothing is asked yet.

        Raises:
            ConfigError: there is no address, or no key where there should be one.
        """
        if not config.endpoint:
            raise ConfigError(
                "models.*.endpoint: it names no server; set it to an address like http://127.0.0.1:8000/v1"
            )
        self._config = config
        self._pace = pace
        self._endpoints = _open_endpoints(config, pace)
        self._numbers = count()
        self._naming = asyncio.Lock()
        self._refused: int | None = 0
        """Questions that were refused before one was answered; ``None``: one was."""

    @property
    def room(self) -> int:
        """Return how many requests there may be at once, as far as is known."""
        return self._endpoints.room

    async def ask(self, question: Question, answers: Answers | None = None) -> Answer:
        """Return the answer, from the memory where it is there; a new one is put there."""
        if not self._config.model:
            await self._name_model()
        key = key_of(question, self._config)
        if answers is not None and (kept := answers.get(key)) is not None:
            said = json.loads(kept)
            return Answer(text=said["text"], served=Served(**said["served"]))
        answer = await self._try(question, await self._body(question))
        if answers is not None:
            answers.put(key, json.dumps(asdict(answer)).encode())
        return answer

    async def _body(self, question: Question) -> dict[str, Any]:
        if not question.images:
            return body_of(question, self._config)
        try:
            return await asyncio.to_thread(body_of, question, self._config)
        except RefusedImageError as refused:
            raise RefusedQuestionError(refused.reason, refused.detail) from refused

    async def _try(self, question: Question, body: dict[str, Any]) -> Answer:
        """Send a request until it is answered or has failed often enough."""
        tries, request = 0, next(self._numbers)
        while True:
            turn = await self._endpoints.take()
            sent = time.monotonic()
            try:
                said = await self._ask_once(turn, body, request)
            except FaultError as fault:
                tries += self._is_counted(fault, sent)
                if tries >= self._config.max_attempts:
                    where = turn.endpoint.connection.url
                    raise UnansweredError(fault.reason, f"{fault.detail} ({tries} tries, last at {where})") from None
            else:
                return Answer(text=said.text, served=self._served(question, said, time.monotonic() - sent))
            await asyncio.sleep(self._backoff(tries))

    def _is_counted(self, fault: FaultError, sent: float) -> bool:
        """Say whether a fault is one of the request's tries: one that only servers can be blamed for is not.

        A server that is busy while it answers others may have something against this request, though.
        """
        if fault.reason == "server busy":
            return self._endpoints.answered_at >= sent
        return fault.reason != "no connection"

    async def _ask_once(self, turn: Turn, body: dict[str, Any], request: int) -> Said:
        """Send a request once, and tell what became of it."""
        try:
            said = await turn.endpoint.connection.post(body)
        except FaultError as fault:
            self._endpoints.failed(turn, fault, request)
            raise
        except RefusedQuestionError as refused:
            self._endpoints.answered(turn)
            self._count_refusal(turn, refused)
            raise
        except ServerError as error:
            self._endpoints.refused(turn, error)
            raise
        except BaseException:
            self._endpoints.left(turn)
            raise
        self._endpoints.answered(turn)
        self._refused = None
        return said

    def _count_refusal(self, turn: Turn, refused: RefusedQuestionError) -> None:
        """Hold the server for wrong, and not its questions, when it refuses all of them from the start."""
        if self._refused is None:
            return
        self._refused += 1
        if self._refused >= self._pace.refusals:
            raise ServerError(
                f"{turn.endpoint.connection.url}: it refused each of the first {self._refused} questions "
                f"({refused.detail or refused.reason}): start it with other limits, or correct the profile"
            ) from None

    def _backoff(self, tries: int) -> float:
        return random.uniform(0, min(self._pace.backoff_most_s, self._pace.backoff_s * 2 ** max(0, tries - 1)))

    def _served(self, question: Question, said: Said, latency: float) -> Served:
        return Served(
            prompt=question.prompt,
            model=said.model or self._config.model,
            revision=said.fingerprint or self._config.revision,
            seed=question.seed,
            prompt_tokens=said.prompt_tokens,
            completion_tokens=said.completion_tokens,
            latency=latency,
            finish_reason=said.finish_reason,
        )

    async def _name_model(self) -> None:
        """Find out the only model of the server, where nobody has written it down."""
        async with self._naming:
            if self._config.model:
                return
            url = self._endpoints.first.url
            try:
                served = await self._endpoints.first.models()
            except FaultError as fault:
                raise ServerError(f"{url}: does not say which model it has ({fault}): set models.*.model") from None
            if len(served) != 1:
                raise ServerError(f"{url}: it has {len(served)} models ({', '.join(served)}): set models.*.model")
            self._config = self._config.model_copy(update={"model": served[0]})

    async def close(self) -> None:
        """Close all connections."""
        await self._endpoints.close()


def _open_endpoints(config: ChatConfig, pace: Pace) -> Endpoints:
    key = load_key(config.key)
    endpoints = [
        Endpoint(
            Connection(url, key, timeout_s=config.timeout_seconds, pace=pace),
            Limiter(config.max_concurrency, pace.start, time.monotonic),
        )
        for url in config.endpoint
    ]
    return Endpoints(endpoints, most=config.max_concurrency, patience_s=config.patience_seconds, pace=pace)


def client_of(config: ChatConfig, pace: Pace = PACE) -> Client:
    """Return the process's client of a configuration."""
    with _MAKING:
        _close_at_exit()
        if (config, pace) not in _CLIENTS:
            _CLIENTS[config, pace] = Client(config, pace)
        return _CLIENTS[config, pace]


@lru_cache(maxsize=1)
def _close_at_exit() -> None:
    background()  # what is registered later is called earlier, and this needs the loop
    atexit.register(close_clients)


def close_clients() -> None:
    """Close all clients: what they know is forgotten, and no connection stays."""
    with _MAKING:
        while _CLIENTS:
            run(_CLIENTS.popitem()[1].close())
