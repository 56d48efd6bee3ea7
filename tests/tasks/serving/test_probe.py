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
        assert [request.grammar for request in server.asked] == [None], "a named form is taken"


def refuses_grammars(request):
    return Status(400, "no grammars here") if request.grammar else "Hello."


def fails_at_other_fields(request):
    """llama-cpp-python's server, which allows no ``top_k`` of -1."""
    return Status(500, "1 validation error: top_k") if "top_k" in request.body else "Hello."


SERVERS = {
    "all forms": (obeys_all, "vllm"),
    "schemas": (obeys_schemas, "json"),
    "schemas, and refuses others": (refuses_unknown_fields, "json"),
    "words around": (lambda _: f"{WORD} is what I was told to say", "none"),
    "another word": (lambda _: '{"word": "hello"}', "none"),
    "deeply nested": (lambda _: "[" * 20_000, "none"),
    "refused": (refuses_grammars, "none"),
    "failed": (fails_at_other_fields, "none"),
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


def test_a_model_that_a_server_loads_on_demand_need_not_be_listed() -> None:
    """The list of `transformers serve` is the Hub's cache; where there is none, it is an error."""
    lists = (Status(200, body=b'{"data": [{"id": "other"}]}'), Status(500, "Internal Server Error"))
    for listed in lists:
        with chat_server(obeys_all) as server:
            server.listed = listed
            assert probe(server, model="tiny").model == "tiny"
            words = 'HTTP 404: The model .unknown. does not|does not serve "unknown"'
            with refused(words, (ConfigError, ServerError)):
                probe(server, model="unknown")


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
        assert len(server.asked) == 6


@pytest.mark.parametrize(
    "fault",
    [Status(503, "loading"), Status(429, headers={"Retry-After": "3600"}), Hang()],
    ids=["loading", "full", "hanging"],
)
def test_a_server_that_stays_busy_decides_nothing(fault) -> None:
    with chat_server(lambda _: fault) as server, refused(f"^{server.url}: ", ServerError):
        probe(server, timeout_seconds=0.2, patience_seconds=0.3)


OWN_WORDS = "Unsupported parameter: '{}' is not supported with this model."


def refuses(*fields, words=OWN_WORDS):
    """Return the answers of a server that refuses requests with any of these fields."""

    def answer(request):
        taken = [name for name in fields if name in request.body]
        return Status(400, words.format(taken[0])) if taken else "Hello."

    return answer


def sent_of(request):
    """Return the parameters that are sent."""
    return {name: value for name, value in request if name != "extra_body" and value is not None}


ALL = {"temperature", "top_p", "seed", "max_tokens"}


@pytest.mark.parametrize("words", [OWN_WORDS, "Extra inputs are not permitted"])
@pytest.mark.parametrize(
    ("fields", "left_out"),
    [
        (["seed"], {"seed"}),
        (["top_p", "seed"], {"top_p", "seed"}),
        (["max_tokens", "max_completion_tokens"], {"max_tokens"}),
        (["temperature"], {"temperature"}),
    ],
)
@pytest.mark.parametrize("images", [0, 2])
def test_a_refused_parameter_is_left_out(words, fields, left_out, images, caplog) -> None:
    with chat_server(refuses(*fields, words=words)) as server:
        found = probe(server, images=images, structured_output="none")
    assert set(sent_of(found.request)) == ALL - left_out
    [line] = caplog.messages
    assert all(f"{name} is left out" in line for name in left_out)


def test_a_parameter_at_which_a_server_fails_is_left_out(caplog) -> None:
    def answer(request):
        return Status(500, "seed: input too large") if "seed" in request.body else "Hello."

    with chat_server(answer) as server:
        request = probe(server, structured_output="none").request
    assert set(sent_of(request)) == ALL - {"seed"}
    assert "seed is left out" in caplog.messages[-1]


def test_a_server_that_fails_at_each_request_is_no_refusal() -> None:
    with (
        chat_server(lambda _: Status(500, "out of order")) as server,
        refused(f"{server.url}: server error: HTTP 500: out of order", ServerError),
    ):
        probe(server)


def test_openai_parameters_are_found_and_said(caplog) -> None:
    """Its reasoning models take neither ``max_tokens`` nor a temperature or a share."""

    def answer(request):
        if "max_tokens" in request.body:
            return Status(400, "Use 'max_completion_tokens' instead.")
        return refuses("temperature", "top_p")(request)

    with chat_server(answer) as server:
        request = probe(server, structured_output="none").request
    assert sent_of(request) == {"max_tokens": "max_completion_tokens", "seed": "seed"}
    assert "max_tokens is sent as max_completion_tokens" in caplog.text


def test_a_server_that_takes_one_temperature_alone() -> None:
    def answer(request):
        if request.body.get("temperature") != 1:
            return Status(400, "Only the default (1) value of temperature is supported.")
        return "Hello."

    with chat_server(answer) as server:
        request = probe(server, structured_output="none").request
    assert sent_of(request) == {**{name: name for name in ALL}, "temperature": 1}


def test_two_parameters_that_exclude_each_other() -> None:
    def answer(request):
        both = {"temperature", "top_p"} <= request.body.keys()
        return Status(400, "Please use only one.") if both else "Hello."

    with chat_server(answer) as server:
        request = probe(server, structured_output="none").request
    assert set(sent_of(request)) == ALL - {"top_p"}


def test_what_a_profile_leaves_out_or_fixes_is_sent_so() -> None:
    body = {"chat_template_kwargs": {"enable_thinking": False}}
    request = {"seed": None, "temperature": 1, "max_tokens": "max_completion_tokens"}
    with chat_server(refuses("seed", "max_tokens")) as server:
        probe(server, request={**request, "extra_body": body}, structured_output="none")
        [asked] = server.asked
    assert asked.body.keys() >= {"max_completion_tokens", "chat_template_kwargs", "top_p"}
    assert (asked.body["temperature"], asked.body["chat_template_kwargs"]) == (
        1,
        body["chat_template_kwargs"],
    )


@pytest.mark.parametrize("body", [b'{"detail": "Not Found"}', b"[]"])
def test_a_named_model_needs_no_list(body) -> None:
    with chat_server(obeys_all) as server:
        server.listed = Status(404 if b"detail" in body else 200, body=body)
        assert probe(server, model="tiny").model == "tiny"
        with refused("models", ServerError):
            probe(server)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("At most 1 image(s) may be provided", "--limit-mm-per-prompt"),
        ("As of transformers v4.44, default chat template is no longer allowed", "--chat-template"),
        ("Input is too short", None),
    ],
)
def test_advice_is_given_where_the_words_fit(words, advice) -> None:
    with chat_server(lambda _: Status(400, words)) as server, pytest.raises(ConfigError) as caught:
        probe(server, images=2)
    assert words in str(caught.value)
    assert ("--" in str(caught.value)) == bool(advice)
    assert advice is None or advice in str(caught.value)
