"""Builds by real servers of tiny models: vLLM with a parser of thoughts, and transformers."""

import pytest

import pairwright as pw
from pairwright.schemas.writing import ChatConfig, RequestConfig
from pairwright.tasks.serving.probe import probe_model
from tests.fixtures.asking import ask_now
from tests.fixtures.builds import build_here
from tests.fixtures.served_models import MARKS, write_qwen2_vl
from tests.fixtures.transformers_server import running_transformers
from tests.flows.conftest import SMALL, WIDE

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]  # a loaded vLLM starts in minutes
WRITTEN = [
    *("captions.writer=served", "captions.max_tokens=200", "captions.max_attempts=10"),
    *("differences.writer=served", "differences.max_tokens=600", "differences.max_attempts=10"),
]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}


def test_thoughts_are_taken_apart_and_the_form_holds_beside_them(tmp_path, vllm_servers):
    server = vllm_servers.thinking()
    settings = [f"models.chat.endpoint={server.endpoint}", "models.chat.thinking_tokens=400"]
    out = tmp_path / "out"
    report = build_here(out, settings=[*SMALL, *WIDE, *WRITTEN, *settings], until="differences")
    counts = {count.stage: count for count in report.counts}
    assert report.is_complete
    assert pw.open(out).version.profile.resolved.models["chat"].structured_output == "vllm"
    assert counts["described"].ok > counts["described"].dropped
    for table in ("captions", "described"):
        for row in pw.open(out)[table].rows():
            assert not any(mark in row.text for mark in MARKS)
            served = row.served[-1]
            assert 0 < served.thought_tokens < served.completion_tokens
    answers = {count.stage: count for count in report.answers}
    assert answers["described"].thought_tokens > 0


def test_further_fields_of_a_request_reach_the_template(vllm_servers):
    endpoint = vllm_servers.thinking().endpoint
    plain = ChatConfig(endpoint=(endpoint,), model="thinking", thinking_tokens=100)
    off = plain.model_copy(update={"request": RequestConfig(extra_body=OFF)})
    thinking, prompted = ask_now(plain), ask_now(off)
    assert prompted.served.prompt_tokens > thinking.served.prompt_tokens


def test_a_build_by_transformers_serve(tmp_path):
    """It lists no model here, refuses fields that it does not know, and follows no grammar."""
    folder = write_qwen2_vl(tmp_path / "qwen2-vl")
    with running_transformers(folder) as endpoint:
        chat = ChatConfig(endpoint=(endpoint,), model=str(folder))
        found = probe_model(chat, images=2)
        assert found.structured_output == "none"
        settings = [f"models.chat.endpoint={endpoint}", f"models.chat.model={folder}"]
        written = WRITTEN[:3]
        out = tmp_path / "out"
        report = build_here(out, settings=[*SMALL, *WIDE, *written, *settings], until="captions")
    [counts] = [count for count in report.counts if count.stage == "captions"]
    assert not report.failures  # random words may all be refused, so that the gate holds
    assert counts.of == counts.ok + counts.dropped > 0
    reasons = {reason.partition(" (")[0] for reason in counts.reasons}
    assert reasons <= {"cut off", "too short", "no full stop", "repeats itself", "another language"}
    for row in pw.open(out)["captions"].rows():
        assert row.served[-1].completion_tokens > 0
