"""What a build finds out of its servers when it starts: which model they serve, and whether they
hold to a form."""

import json
import re
import sys

import pytest

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.writing import ChatConfig, LaunchConfig
from pairwright.tasks.serving.connection import Pace
from pairwright.tasks.serving.probe import WORD, probe_model
from tests.fixtures.chat_server import Asked, Hang, Reply, Status, chat_server

QUICK = Pace(backoff_s=0.001, connect_s=2)


def obeys_all(asked: Asked):
    """A vLLM server."""
    form = asked.grammar or {}
    if not form:
        return "A brown square."
    return form["regex"] if "regex" in form else word_of(form)


def word_of(form):
    [word] = form["json_schema"]["schema"]["properties"]["word"]["enum"]
    return json.dumps({"word": word}, indent=1)


def obeys_schemas(asked: Asked):
    """A server that ignores unknown fields."""
    form = asked.grammar or {}
    return word_of(form) if form.get("type") == "json_schema" else "Hello there!"


def refuses_unknown_fields(asked: Asked):
    return (
        Status(400, "unknown field structured_outputs")
        if "structured_outputs" in asked.body
        else obeys_all(asked)
    )


def find(*servers, images=0, **chat):
    return probe_model(
        ChatConfig(endpoint=tuple(one.url for one in servers), **chat), images=images, pace=QUICK
    )


def refusal(error, *servers, **chat) -> str:
    with pytest.raises(error) as caught:
        find(*servers, **chat)
    return str(caught.value)


def test_the_only_model_is_filled_in_and_nothing_else_changes() -> None:
    with chat_server(obeys_all, models=["tiny"]) as server:
        asked = ChatConfig(endpoint=(server.url,), revision="abc", temperature=0.3)
        assert probe_model(asked) == asked.model_copy(
            update={"model": "tiny", "structured_output": "vllm"}
        )


OTHERS = [
    f"{WORD} is what I was told to say",
    '{"word": "hello"}',
    "[" * 20_000,
    Status(400, "no grammars here"),
]
OTHERS += [Reply(None, finish_reason="length"), Reply("", finish_reason="content_filter")]


@pytest.mark.parametrize(
    ("answer", "structured"),
    [
        (obeys_all, "vllm"),
        (obeys_schemas, "json"),
        (refuses_unknown_fields, "json"),
        *((one, "none") for one in OTHERS),
    ],
)
def test_structured_output_is_what_an_answer_shows(answer, structured) -> None:
    with chat_server(answer if callable(answer) else lambda asked: answer) as server:
        assert find(server).structured_output == structured


def test_what_the_profile_says_is_not_asked() -> None:
    with chat_server(obeys_all) as server:
        assert find(server, structured_output="json").structured_output == "json"
        assert server.asked == []


def test_of_several_models_one_must_be_named_that_is_served() -> None:
    with chat_server(obeys_all, models=["one", "two"]) as server:
        said = refusal(ConfigError, server)
        assert said == f"models.chat.model: name one of those that {server.url} serves: one, two"
        said = refusal(ConfigError, server, model="three")
        assert re.fullmatch(rf"models\.chat\.model: {server.url} .*three.* one, two", said)
        assert server.asked == []
        assert find(server, model="two").model == "two"


def test_no_endpoint_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"^models\.chat\.endpoint: .*--until mining\)$"):
        probe_model(ChatConfig(model="tiny"))


@pytest.mark.parametrize("inside", ["", "checkpoint"])
def test_a_model_of_which_a_server_knows_only_a_part_is_refused(tmp_path, inside) -> None:
    """Also where the server says what it serves."""
    (tmp_path / inside).mkdir(exist_ok=True)
    (tmp_path / inside / "differential.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"^models\.chat\.model: .*vLLM"):
        probe_model(ChatConfig(endpoint=("http://127.0.0.1:9/v1",), model=str(tmp_path)))
    with chat_server(obeys_all, models=[str(tmp_path)]) as server:
        assert re.match(r"models\.chat\.model: .*vLLM", refusal(ConfigError, server))


def test_a_server_that_the_build_starts_is_not_asked() -> None:
    launched = ChatConfig(
        model="tiny", launch=LaunchConfig(enabled=True, command=(sys.executable,))
    )
    found = probe_model(launched, images=2)
    assert (found.model, found.structured_output) == ("tiny", "vllm")
    assert (
        probe_model(launched.model_copy(update={"structured_output": "none"})).structured_output
        == "none"
    )
    with pytest.raises(ConfigError, match=r"models\.chat\.model"):
        probe_model(launched.model_copy(update={"model": ""}))


def test_a_model_that_sees_no_images_is_refused_before_the_build() -> None:
    def answer(asked: Asked):
        return (
            Status(400, "At most 1 image(s) may be provided")
            if len(asked.images) > 1
            else obeys_all(asked)
        )

    with chat_server(answer) as server:
        assert find(server, images=1).model == "tiny"
        assert re.match(
            r"models\.chat: tiny at .* 2 images", refusal(ConfigError, server, images=2)
        )


def test_several_servers_must_serve_the_same() -> None:
    with (
        chat_server(obeys_all, models=["one"]) as first,
        chat_server(obeys_all, models=["two"]) as second,
    ):
        for named in ({}, {"model": "one"}):
            assert f'{second.url} does not serve "one"' in refusal(
                ConfigError, first, second, **named
            )


def test_an_address_of_something_else() -> None:
    with chat_server(obeys_all) as server, pytest.raises(ServerError) as caught:
        probe_model(ChatConfig(endpoint=(server.url.removesuffix("/v1"),)), pace=QUICK)
    assert re.search(r"HTTP 404: .*models\.\*\.endpoint.* /v1", str(caught.value))


def test_faults_that_pass_do_not_decide() -> None:
    faults = [Status(429, headers={"Retry-After": "0"}), Status(503), Status(503), Status(500)]
    with chat_server(lambda asked: faults.pop() if faults else obeys_all(asked)) as server:
        assert find(server).structured_output == "vllm"
        assert len(server.asked) == 5


@pytest.mark.parametrize(
    "fault", [Status(503, "loading"), Status(429, headers={"Retry-After": "3600"}), Hang()]
)
def test_a_server_that_stays_busy_decides_nothing(fault) -> None:
    with chat_server(lambda asked: fault) as server:
        said = refusal(ServerError, server, timeout_seconds=0.2, patience_seconds=0.3)
    assert said.startswith(f"{server.url}: ")
