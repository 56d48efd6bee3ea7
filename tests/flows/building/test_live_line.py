"""The whole line against a real vLLM: rendered scenes, described by models of random weights."""

import pytest

import pairwright as pw
from tests.fixtures.builds import build_here
from tests.flows.conftest import SMALL, WIDE

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]  # a loaded vLLM starts in minutes
TABLES = ("captions", "described", "differences", "comparisons", "sampled", "preferences")
WRITTEN = [
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
    endpoints = [
        f"models.chat.endpoint={vllm_servers.qwen().endpoint}",
        f"models.language.endpoint={vllm_servers.mixtral().endpoint}",
    ]
    return out, build_here(out, settings=[*SMALL, *WIDE, *endpoints, *WRITTEN])


def test_every_row_is_accounted_for(built):
    out, report = built
    counts = {count.stage: count for count in report.counts}
    assert report.is_complete
    assert all(count.of == count.ok + count.dropped for count in report.counts)
    assert counts["preferences"].ok > 0
    empty = [name for name in TABLES if not any(True for _ in pw.open(out)[name].rows())]
    assert empty == []


@pytest.mark.parametrize(
    ("table", "server"),
    [
        ("captions", "qwen_server"),
        ("differences", "qwen_server"),
        ("comparisons", "mixtral_server"),
    ],
)
def test_rows_keep_what_was_asked(built, request, table, server):
    model = request.getfixturevalue(server).model
    for row in pw.open(built[0])[table].rows():
        assert row.model == model
        assert {served.model for served in row.served} == {model}
        assert row.served[-1].finish_reason == "stop"
        assert all(min(served.prompt_tokens, served.completion_tokens) > 0 for served in row.served)
