"""The whole line against a real vLLM: rendered scenes, described by models of random weights, up to
preferences."""

import pytest

import pairwright as pw
from tests.fixtures.builds import build_here
from tests.flows.conftest import SMALL, WIDE

pytestmark = pytest.mark.live
TABLES = ("captions", "described", "differences", "comparisons", "sampled", "preferences")


def settings_of(qwen_server, mixtral_server) -> list[str]:
    return [
        *SMALL,
        *WIDE,
        f"models.chat.endpoint={qwen_server.endpoint}",
        f"models.language.endpoint={mixtral_server.endpoint}",
        *("captions.writer=served", "captions.max_tokens=200", "captions.max_attempts=10"),
        *("differences.writer=served", "differences.max_tokens=600", "differences.candidates=2"),
        *("comparisons.writer=served", "comparisons.max_tokens=1500"),
        *("sampled_texts.enabled=true", "sampled_texts.samples=2", "sampled_texts.max_tokens=600"),
        *("counterfactuals.enabled=true", "counterfactuals.max_tokens=600"),
        "questions.enabled=true",
    ]


@pytest.fixture(scope="module")
def built(tmp_path_factory, vllm_servers):
    out = tmp_path_factory.mktemp("live") / "out"
    settings = settings_of(vllm_servers.qwen(), vllm_servers.mixtral())
    return out, build_here(out, settings=settings), settings


def test_every_row_is_accounted_for_and_keeps_what_was_asked(
    built, qwen_server, mixtral_server
) -> None:
    out, report, _ = built
    counts = {count.stage: count for count in report.counts}
    assert report.is_complete
    assert all(count.of == count.ok + count.dropped for count in report.counts)
    assert counts["preferences"].ok > 0
    assert {
        name: sum(1 for _ in pw.open(out)[name].rows()) > 0 for name in TABLES
    } == dict.fromkeys(TABLES, True)
    out, *_ = built
    for table, server in (
        ("captions", qwen_server),
        ("differences", qwen_server),
        ("comparisons", mixtral_server),
    ):
        for row in pw.open(out)[table].rows():
            assert row.model == server.model
            assert {asked.model for asked in row.served} == {server.model}
            assert row.served[-1].finish_reason == "stop"
            assert all(
                asked.prompt_tokens > 0 and asked.completion_tokens > 0 for asked in row.served
            )
