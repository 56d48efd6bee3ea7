"""Client of a served model: one OpenAI-compatible server, or several that share the load.

One client per configuration lives as long as the process, so that its knowledge of servers lasts
across shards. Everything in it runs on the background loop.
"""

import asyncio
import atexit
import json
import random
import threading
import time
from dataclasses import asdict, replace
from itertools import count
from typing import Any

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.rows import Served
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.images.decode import RefusedImageError
from pairwright.tasks.serving.chat import Answer, Question, RefusedQuestionError, UnansweredError
from pairwright.tasks.serving.connection import PACE, Connection, FaultError, Pace
from pairwright.tasks.serving.endpoints import Endpoint, Endpoints, Limiter
from pairwright.tasks.serving.loop import background, run
from pairwright.tasks.serving.write_request import body_of, key_of
from pairwright.tasks.store.answers import Answers

_CLIENTS: dict[tuple[ChatConfig, Pace], "Client"] = {}
_MAKING = threading.Lock()


class Client:
    """Client of the servers of one configuration."""

    def __init__(self, config: ChatConfig, pace: Pace = PACE) -> None:
        """Open the connections; ``ConfigError`` for a missing or invalid address, or an invalid key."""
        if not config.endpoint:
            raise ConfigError(
                "models.*.endpoint: not set; use an address like http://127.0.0.1:8000/v1"
            )
        self._config = config
        self._pace = pace
        most, timeout_s = config.max_concurrency, config.timeout_seconds
        opened = [
            Connection(url, config.key, timeout_s=timeout_s, pace=pace) for url in config.endpoint
        ]
        endpoints = [Endpoint(connection, Limiter(most, pace.start)) for connection in opened]
        self.endpoints = Endpoints(
            endpoints, most=most, patience_s=config.patience_seconds, pace=pace
        )
        self._numbers = count()
        self._refused: int | None = 0  # questions refused before the first answer; None: after it

    async def ask(self, question: Question, answers: Answers | None = None) -> Answer:
        """Return the answer, from memory or new; new answers are stored."""
        key = key_of(question, self._config)
        if answers is not None and (kept := answers.get(key)) is not None:
            said = json.loads(kept)
            return Answer(text=said["text"], served=Served(**said["served"]))
        try:
            body = await asyncio.to_thread(body_of, question, self._config)  # decodes images
        except RefusedImageError as refused:
            raise RefusedQuestionError(refused.reason, refused.detail) from refused
        answer = await self._request(question, body)
        if answers is not None:
            answers.put(key, json.dumps(asdict(answer)).encode())
        return answer

    async def _request(self, question: Question, body: dict[str, Any]) -> Answer:
        tries, request = 0, next(self._numbers)
        while True:
            endpoint, sent = await self.endpoints.take(), time.monotonic()
            try:
                said = await self.endpoints.post(endpoint, body, request)
            except FaultError as fault:
                # These two are the servers' fault, unless they answered other requests meanwhile.
                busy, gone = fault.reason == "server busy", fault.reason == "no connection"
                tries += self.endpoints.answered_at >= sent if busy else not gone
                if tries >= self._config.max_attempts:
                    where = f"({tries} tries, last at {endpoint.connection.url})"
                    raise UnansweredError(fault.reason, f"{fault.detail} {where}") from None
            except RefusedQuestionError as refused:
                if self._refused is not None:
                    self._refused += 1
                    if self._refused >= self._pace.refusals:
                        raise ServerError(
                            f"{endpoint.connection.url}: refused each of the first "
                            f"{self._refused} questions "
                            f"({refused.detail or refused.reason}). Start it with other limits, "
                            f"or correct the profile"
                        ) from None
                raise
            else:
                self._refused = None
                served = replace(
                    said.served,
                    prompt=question.prompt,
                    model=said.served.model or self._config.model,
                    revision=said.served.revision or self._config.revision,
                    seed=question.seed,
                    latency=time.monotonic() - sent,
                )
                return Answer(text=said.text, served=served)
            longest = min(self._pace.backoff_most_s, self._pace.backoff_s * 2 ** max(0, tries - 1))
            await asyncio.sleep(random.uniform(0, longest))


def client_of(config: ChatConfig, pace: Pace = PACE) -> Client:
    """Return the process's client of a configuration."""
    with _MAKING:
        if not _CLIENTS:
            background()  # first, as exit handlers run in reverse order
            atexit.register(close_clients)
        if (config, pace) not in _CLIENTS:
            _CLIENTS[config, pace] = Client(config, pace)
        return _CLIENTS[config, pace]


def close_clients() -> None:
    """Close all clients and their connections."""
    atexit.unregister(close_clients)
    with _MAKING:
        while _CLIENTS:
            run(_CLIENTS.popitem()[1].endpoints.close())
