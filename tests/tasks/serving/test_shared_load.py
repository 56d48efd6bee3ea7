"""Several workers, each a process with a client of its own, share several servers between them."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from pairwright.tasks.serving.client import close_clients
from tests.fixtures.asking import asked, config_of, items, texts
from tests.fixtures.chat_server import chat_server


def ask_shards(urls: tuple[str, ...], shards: int, rows: int) -> int:
    """Ask as a worker does, shard after shard, few rows in each; return how many were answered."""
    config = config_of(*urls, max_concurrency=1)
    answered = sum(len(texts(list(asked(items(rows), config)))) for _ in range(shards))
    close_clients()
    return answered


@pytest.mark.slow
def test_shards_of_several_workers_are_spread_over_all_servers() -> None:
    with chat_server(lambda asked: asked.text) as first, chat_server(lambda asked: asked.text) as second:
        urls = (first.url, second.url)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
            assert sum(workers.map(ask_shards, [urls] * 2, [10] * 2, [3] * 2)) == 60
        assert len(first.asked) == len(second.asked) == 30


def test_clients_that_begin_together_begin_with_different_servers() -> None:
    with chat_server(lambda asked: asked.text) as first, chat_server(lambda asked: asked.text) as second:
        for _ in range(20):  # all with the same one: once in half a million times
            assert ask_shards((first.url, second.url), 1, 1) == 1
        assert first.asked
        assert second.asked
