"""What a build finds out of its servers: their model, and whether they hold to a form."""

import json
import sys

import pytest

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.writing import ChatConfig, LaunchConfig
from pairwright.tasks.serving.connection import Pace
from pairwright.tasks.serving.probe import WORD, probe_model
from tests.fixtures.chat_server import Hang, Reply, Status, chat_server

QUICK = Pace(backoff_s=0.001, connect_s=2)


def word_of(form):
    [word] = form["json_schema"]["schema"]["properties"]["word"]["enum"]
    return json.dumps({"word": word}, indent=1)


def obeys_all(request):
    """A vLLM server."""
    form = request.grammar or {}
    if not form:
        return "A brown square."
    return form["regex"] if "regex" in form else word_of(form)


def obeys_schemas(request):
    """A server that ignores unknown fields."""
    form = request.grammar or {}
    return word_of(form) if form.get("type") == "json_schema" else "Hello there!"


def refuses_unknown_fields(request):
    unknown = "structured_outputs" in request.body
    return Status(400, "unknown field structured_outputs") if unknown else obeys_all(request)


def probe(*servers, images=0, **chat):
    config = ChatConfig(endpoint=tuple(server.url for server in servers), **chat)
    return probe_model(config, images=images, pace=QUICK)


def refused(words, error=ConfigError):
    return pytest.raises(error, match=words)


def test_the_only_model_is_filled_in_and_nothing_else_changes() -> None:
    with chat_server(obeys_all, models=["tiny"]) as server:
        config = ChatConfig(endpoint=(server.url,), revision="abc", temperature=0.3)
        filled = {"model": "tiny", "structured_output": "vllm"}
        assert probe_model(config) == config.model_copy(update=filled)
        server.asked.clear()
        assert probe(server, structured_output="json").structured_output == "json"
        assert server.asked == [], "a named form is not asked about"


SERVERS = {
    "all forms": (obeys_all, "vllm"),
    "schemas": (obeys_schemas, "json"),
    "schemas, and refuses others": (refuses_unknown_fields, "json"),
    "words around": (lambda _: f"{WORD} is what I was told to say", "none"),
    "another word": (lambda _: '{"word": "hello"}', "none"),
    "deeply nested": (lambda _: "[" * 20_000, "none"),
    "refused": (lambda _: Status(400, "no grammars here"), "none"),
    "cut": (lambda _: Reply(None, finish_reason="length"), "none"),
}


@pytest.mark.parametrize(("answer", "structured"), SERVERS.values(), ids=SERVERS)
def test_structured_output_is_what_an_answer_shows(answer, structured) -> None:
    with chat_server(answer) as server:
        assert probe(server).structured_output == structured


def test_of_several_models_one_must_be_named_that_is_served() -> None:
    with chat_server(obeys_all, models=["one", "two"]) as server:
        with refused(rf"models\.chat\.model: .*{server.url}.*: one, two$"):
            probe(server)
        with refused(rf"models\.chat\.model: {server.url} .*three.* one, two$"):
            probe(server, model="three")
        assert server.asked == []
        assert probe(server, model="two").model == "two"


def test_no_endpoint_is_refused_with_what_to_do() -> None:
    with refused(r"^models\.chat\.endpoint: .*--until mining\)$"):
        probe_model(ChatConfig(model="tiny"))


@pytest.mark.parametrize("inside", ["", "checkpoint"])
def test_a_model_of_which_a_server_knows_only_a_part_is_refused(tmp_path, inside) -> None:
    """Also where the server says what it serves."""
    (tmp_path / inside).mkdir(exist_ok=True)
    (tmp_path / inside / "differential.json").write_text("{}")
    with refused(r"^models\.chat\.model: .*vLLM"):
        probe_model(ChatConfig(endpoint=("http://127.0.0.1:9/v1",), model=str(tmp_path)))
    with (
        chat_server(obeys_all, models=[str(tmp_path)]) as server,
        refused(r"models\.chat\.model: .*vLLM"),
    ):
        probe(server)


def test_a_server_that_the_build_starts_is_not_asked() -> None:
    launch = LaunchConfig(enabled=True, command=(sys.executable,))
    launched = ChatConfig(model="tiny", launch=launch)
    probed = probe_model(launched, images=2)
    assert (probed.model, probed.structured_output) == ("tiny", "vllm")
    plain = launched.model_copy(update={"structured_output": "none"})
    assert probe_model(plain).structured_output == "none"
    with refused(r"models\.chat\.model"):
        probe_model(launched.model_copy(update={"model": ""}))


def test_a_model_that_sees_too_few_images_is_refused_before_the_build() -> None:
    def answer(request):
        at_most = Status(400, "At most 1 image(s) may be provided")
        return at_most if len(request.images) > 1 else obeys_all(request)

    with chat_server(answer) as server:
        assert probe(server, images=1).model == "tiny"
        with refused(r"^models\.chat: tiny at .* 2 images"):
            probe(server, images=2)


@pytest.mark.parametrize("named", [{}, {"model": "one"}], ids=["no name", "a name"])
def test_several_servers_must_serve_the_same(named) -> None:
    with (
        chat_server(obeys_all, models=["one"]) as first,
        chat_server(obeys_all, models=["two"]) as second,
        refused(f'{second.url} does not serve "one"'),
    ):
        probe(first, second, **named)


def test_an_address_of_something_else() -> None:
    with (
        chat_server(obeys_all) as server,
        refused(r"HTTP 404: .*models\.\*\.endpoint.* /v1", ServerError),
    ):
        probe_model(ChatConfig(endpoint=(server.url.removesuffix("/v1"),)), pace=QUICK)


def test_faults_that_pass_do_not_decide() -> None:
    faults = [Status(429, headers={"Retry-After": "0"}), Status(503), Status(503), Status(500)]
    with chat_server(lambda request: faults.pop() if faults else obeys_all(request)) as server:
        assert probe(server).structured_output == "vllm"
        assert len(server.asked) == 5


@pytest.mark.parametrize(
    "fault",
    [Status(503, "loading"), Status(429, headers={"Retry-After": "3600"}), Hang()],
    ids=["loading", "full", "hanging"],
)
def test_a_server_that_stays_busy_decides_nothing(fault) -> None:
    with chat_server(lambda _: fault) as server, refused(f"^{server.url}: ", ServerError):
        probe(server, timeout_seconds=0.2, patience_seconds=0.3)
