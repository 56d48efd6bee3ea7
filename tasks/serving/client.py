"""Ask a served model: any OpenAI-compatible server, or several that share the load.

One client for each configuration is kept for the process's life, so that what it has learnt of its servers stays from
shard to shard. Everything in it runs on the background loop. Needs the network, and ``openai``.
"""

import asyncio
import json
import random
import threading
import time
from dataclasses import asdict
from typing import Any

from schemas.errors import ConfigError
from schemas.rows import Served
from schemas.served import ChatConfig
from tasks.serving.chat import Answer, Question, RefusedQuestionError, UnansweredError
from tasks.serving.endpoints import Endpoint, Endpoints
from tasks.serving.faults import FaultError, Said, read_answer
from tasks.serving.keys import load_key
from tasks.serving.limiter import Limiter
from tasks.serving.loop import run
from tasks.serving.pace import PACE, Pace
from tasks.serving.requests import body_of, key_of
from tasks.store.answers import Answers

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
            raise ConfigError("chat.endpoint: no address of a server is given")
        self._config = config
        self._pace = pace
        key = load_key(config.key)
        self._endpoints = Endpoints(
            [
                Endpoint(url, key, Limiter(config.concurrency, pace.start), timeout_s=config.timeout_seconds, pace=pace)
                for url in config.endpoint
            ],
            patience_s=config.patience_seconds,
            pace=pace,
        )

    @property
    def room(self) -> int:
        """Return how many requests there may be at once, as far as is known."""
        return self._endpoints.room

    async def ask(self, question: Question, answers: Answers | None = None) -> Answer:
        """Return the answer, from the memory where it is there."""
        key = key_of(question, self._config)
        if answers is not None and (kept := answers.get(key)) is not None:
            return _remember(kept)
        body = await asyncio.to_thread(body_of, question, self._config)
        answer = await self._try(question, body)
        if answers is not None:
            answers.put(key, json.dumps(asdict(answer)).encode())
        return answer

    async def _try(self, question: Question, body: dict[str, Any]) -> Answer:
        tries = 0
        while True:
            endpoint = await self._endpoints.take()
            sent = time.monotonic()
            try:
                said = read_answer(await endpoint.post(body))
            except FaultError as fault:
                self._endpoints.failed(endpoint, fault)
                tries += not fault.is_servers or self._endpoints.answered_at > sent
                if tries >= self._config.attempts:
                    raise UnansweredError(fault.reason, f"{fault.detail} ({tries} tries)") from None
                await asyncio.sleep(self._backoff(tries))
            except RefusedQuestionError:
                self._endpoints.answered(endpoint)
                raise
            except BaseException:
                self._endpoints.left(endpoint)
                raise
            else:
                self._endpoints.answered(endpoint)
                return Answer(text=said.text, served=self._served(question, said, time.monotonic() - sent))

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

    async def close(self) -> None:
        """Close all connections."""
        await self._endpoints.close()


def _remember(kept: bytes) -> Answer:
    said = json.loads(kept)
    return Answer(text=said["text"], served=Served(**said["served"]))


def client_of(config: ChatConfig, pace: Pace = PACE) -> Client:
    """Return the process's client of a configuration."""
    with _MAKING:
        if (config, pace) not in _CLIENTS:
            _CLIENTS[config, pace] = Client(config, pace)
        return _CLIENTS[config, pace]


def close_clients() -> None:
    """Close all clients: what they know is forgotten, and no connection stays."""
    with _MAKING:
        while _CLIENTS:
            run(_CLIENTS.popitem()[1].close())
