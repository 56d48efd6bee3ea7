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
from collections import Counter
from dataclasses import asdict, replace
from itertools import count
from typing import Any

from pairwright.prompts import hash_prompt
from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import Served
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.images.decode import RefusedImageError
from pairwright.tasks.serving.chat import (
    Answer,
    ModeratedError,
    Question,
    RefusedQuestionError,
    UnansweredError,
)
from pairwright.tasks.serving.connection import PACE, Connection, Pace
from pairwright.tasks.serving.endpoints import Endpoint, Endpoints, Limiter
from pairwright.tasks.serving.faults import FaultError, StatusError
from pairwright.tasks.serving.loop import background, run_coroutine
from pairwright.tasks.serving.write_request import PROBABILITY_FIELDS, body_of, key_of
from pairwright.tasks.store.answers import Answers

_CLIENTS: dict[tuple[ChatConfig, Pace], "Client"] = {}
_MAKING = threading.Lock()


class Client:
    """Client of the servers of one configuration."""

    def __init__(self, config: ChatConfig, pace: Pace = PACE) -> None:
        """Open the connections; ``ConfigError`` for a bad or missing address, or a bad key."""
        if not config.endpoint:
            raise ConfigError(
                "models.*.endpoint: not set; use an address like http://127.0.0.1:8000/v1"
            )
        self._config = config
        self._pace = pace
        max_requests = config.max_concurrency
        endpoints: list[Endpoint] = []
        for url in config.endpoint:
            connection = Connection(
                url,
                config.key,
                timeout_s=config.timeout_seconds,
                pace=pace,
            )
            endpoints.append(Endpoint(connection, Limiter(max_requests, pace.start)))
        self.endpoints = Endpoints(
            endpoints,
            most=max_requests,
            patience_s=config.patience_seconds,
            pace=pace,
        )
        self._numbers = count()
        self._gives_probabilities = True  # until a question is accepted only without them
        self._declined = Counter[int]()  # requests by the status that ended them, since an answer
        self._refused: int | None = 0  # questions refused before the first answer; None: after it

    async def ask(self, question: Question, answers: Answers | None = None) -> Answer:
        """Return the answer, from memory or new; new answers are stored."""
        key = key_of(question, self._config)
        stored = answers.get(key) if answers is not None else None
        if stored is not None:
            content = json.loads(stored)
            first_token = tuple((token, share) for token, share in content.get("first_token", ()))
            served = Served(**content["served"])
            served = replace(served, removed=tuple(served.removed))
            refused = RefusedText(**content["refused"]) if content["refused"] else None
            return Answer(
                text=content["text"],
                served=served,
                first_token=first_token,
                refused=refused,
            )
        try:
            body = await asyncio.to_thread(body_of, question, self._config)  # decodes images
        except RefusedImageError as refused:
            raise RefusedQuestionError(refused.reason, refused.detail) from refused
        answer = await self._request_with_probabilities(question, body)
        if answers is not None:
            answers.store_value(key, json.dumps(asdict(answer)).encode())
        return answer

    async def _request_with_probabilities(self, question: Question, body: dict[str, Any]) -> Answer:
        """Return the answer, from a server that gives no probabilities without these."""
        if not question.alternatives:
            return await self._request(question, body)
        plain_body = {name: body[name] for name in body if name not in PROBABILITY_FIELDS}
        if not self._gives_probabilities:
            return await self._request(question, plain_body)
        try:
            return await self._request(question, body, counts_refusal=False)
        except RefusedQuestionError:
            answer = await self._request(question, plain_body)
        self._gives_probabilities = False
        return answer

    async def _request(
        self, question: Question, body: dict[str, Any], *, counts_refusal: bool = True
    ) -> Answer:
        tries = 0
        request = next(self._numbers)
        times_sent = 0
        while True:
            # A server that turns new requests away may take those that waited; only once, so that
            # a request that is always turned away does not keep others waiting.
            endpoint = await self.endpoints.acquire(goes_first=times_sent == 1)
            times_sent += 1
            sent = time.monotonic()
            try:
                answer = await self.endpoints.post(endpoint, body, request)
            except FaultError as fault:
                tries += self._is_counted(fault, sent)
                if tries >= self._config.max_attempts:
                    tried = f"({tries} tries, last at {endpoint.connection.url})"
                    raise UnansweredError(fault.reason, f"{fault.detail} {tried}") from None
            except StatusError as error:
                tries += 1
                if not error.is_retried or tries >= self._config.max_attempts:
                    self._count_declined(error, endpoint)
                    tried = f"({tries} tries, last at {endpoint.connection.url})"
                    reason = f"HTTP {error.status}"
                    detail = error.detail.removeprefix(f"{reason}: ")
                    raise UnansweredError(reason, f"{detail} {tried}") from None
            except RefusedQuestionError as refused:
                if counts_refusal and not isinstance(refused, ModeratedError):
                    self._count_refused(refused, endpoint)
                raise
            else:
                self._refused = None
                self._declined.clear()
                return self._complete(answer, question, latency=time.monotonic() - sent)
            backoff_s = self._pace.backoff_s * 2 ** max(0, tries - 1)
            max_wait_s = min(self._pace.backoff_most_s, backoff_s)
            await asyncio.sleep(random.uniform(0, max_wait_s))

    def _is_counted(self, fault: FaultError, sent: float) -> bool:
        """Return whether a fault counts as a try of the request sent at this time.

        An overload or lost connection is the servers' fault; but an overload counts if they
        answered other requests meanwhile.
        """
        if fault.reason == "server busy":
            return self.endpoints.answered_at >= sent
        return fault.reason != "no connection"

    def _count_refused(self, refused: RefusedQuestionError, endpoint: Endpoint) -> None:
        """Raise ``ServerError`` if the first questions are all refused: the setup is wrong."""
        if self._refused is None:
            return
        self._refused += 1
        if self._refused >= self._pace.refusals:
            raise ServerError(
                f"{endpoint.connection.url}: refused each of the first {self._refused} questions "
                f"({refused.detail or refused.reason})"
            ) from None

    def _count_declined(self, error: StatusError, endpoint: Endpoint) -> None:
        """Raise ``ServerError`` if the requests of different rows have ended with one status."""
        self._declined[error.status] += 1
        count = self._declined[error.status]
        if count >= self._pace.refusals:
            advice = f": {error.advice}" if error.advice else ""
            raise ServerError(
                f"{endpoint.connection.url}: {error.detail}{advice} ({count} requests in turn "
                "ended so, and none was answered)"
            ) from None

    def _complete(
        self,
        answer: Answer,
        question: Question,
        *,
        latency: float,
    ) -> Answer:
        """Return the answer with the data of its question; the server's own names come first."""
        served = replace(
            answer.served,
            prompt=question.prompt,
            prompt_sha256=hash_prompt(question.prompt),
            model=answer.served.model or self._config.model,
            revision=answer.served.revision or self._config.revision,
            seed=question.seed,
            latency=latency,
        )
        return replace(answer, served=served)


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
            run_coroutine(_CLIENTS.popitem()[1].endpoints.close())
