"""The facts about vLLM that the client relies on, seen on a real one. Run by `make serve-test`."""

import base64
import json
import re

import pytest
from PIL import Image

from tests.fixtures.pictures import encode

pytestmark = pytest.mark.live
WORDS = [{"type": "text", "text": "What differs?"}]
FREE = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""What a client says so that the model's ``generation_config.json`` does not make it greedy."""


def picture(colour: str, size: tuple[int, int] = (112, 84)):
    """Return an image of one colour as a part of a message; at 28 x 28 pixels per token, 112 x 84 are 12 tokens."""
    data = base64.b64encode(encode(Image.new("RGB", size, colour))).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def open_client(server):
    from openai import OpenAI

    with OpenAI(base_url=server.endpoint, api_key="none", max_retries=0, timeout=120) as opened:
        yield opened


@pytest.fixture
def qwen(qwen_server):
    yield from open_client(qwen_server)


@pytest.fixture
def mixtral(mixtral_server):
    yield from open_client(mixtral_server)


def ask(client, model, content, *, max_tokens=64, **more):
    body = {key: more.pop(key) for key in ("structured_outputs", "ignore_eos", *FREE) if key in more}
    return client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": content}], max_tokens=max_tokens, extra_body=body, **more
    )


def refusal(client, model, content, **more):
    """Return the status and the message of a request that must be refused."""
    from openai import APIStatusError

    with pytest.raises(APIStatusError) as caught:
        ask(client, model, content, **more)
    return caught.value.status_code, caught.value.body["message"]


def test_two_images_are_seen_in_their_order(qwen) -> None:
    red, blue = picture("red"), picture("blue")
    first, again = ask_for_chances(qwen, [red, blue]), ask_for_chances(qwen, [red, blue])
    swapped, alone = ask_for_chances(qwen, [blue, red]), ask_for_chances(qwen, [])
    assert first.usage.prompt_tokens - alone.usage.prompt_tokens == 2 * (12 + 2)  # each with its start and its end
    assert chances(first) == pytest.approx(chances(again), abs=1e-3)
    assert chances(first) != pytest.approx(chances(swapped), abs=1e-3)


def ask_for_chances(client, images):
    return ask(client, "qwen2-vl", [*images, *WORDS], max_tokens=1, logprobs=True, top_logprobs=5)


def chances(answer) -> dict[str, float]:
    return {each.token: each.logprob for each in answer.choices[0].logprobs.content[0].top_logprobs}


def test_a_regular_expression_is_obeyed_with_images(qwen) -> None:
    form = r"The first image [a-z ]{5,40}, while the second image [a-z ]{5,40}\."
    for seed in range(5):
        told = {"seed": seed, "structured_outputs": {"regex": form}, **FREE}
        answer = ask(qwen, "qwen2-vl", [picture("red"), picture("blue"), *WORDS], **told)
        assert answer.choices[0].finish_reason == "stop"
        assert re.fullmatch(form, answer.choices[0].message.content)


SCHEMA = {
    "type": "object",
    "properties": {"more": {"enum": ["A", "B"]}, "count": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["more", "count"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("said", ["structured_outputs", "response_format"])
def test_a_json_schema_is_obeyed(mixtral, said) -> None:
    forms = {
        "structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}},
    }
    answer = ask(mixtral, "mixtral", "Answer.", max_tokens=512, seed=1, **{said: forms[said]})
    read = json.loads(answer.choices[0].message.content)
    assert set(read) == {"more", "count"}
    assert read["more"] in ("A", "B")
    assert 0 <= read["count"] <= 9


def test_an_answer_is_repeated_by_its_seed(mixtral) -> None:
    said = [
        ask(mixtral, "mixtral", "Say.", seed=seed, temperature=0.9).choices[0].message.content for seed in (1, 1, 2)
    ]
    assert said[0] == said[1] != said[2]


def test_qwens_own_configuration_makes_it_greedy_unless_told_otherwise(qwen) -> None:
    def answers(**more):
        told = [ask(qwen, "qwen2-vl", WORDS, seed=seed, temperature=1, top_p=1, **more) for seed in range(4)]
        return {answer.choices[0].message.content for answer in told}

    assert len(answers()) == 1
    assert len(answers(**FREE)) == 4


def test_what_a_model_cannot_take_is_refused(qwen, mixtral) -> None:
    three = [picture("red"), picture("green"), picture("blue"), *WORDS]
    for client, model, content, words in (
        (qwen, "qwen2-vl", three, "At most 2 image"),
        (mixtral, "mixtral", [picture("red"), *WORDS], "not a multimodal model"),
        (mixtral, "mixtral", "word " * 5000, "maximum context length is 4096"),
    ):
        status, message = refusal(client, model, content)
        assert status == 400
        assert words in message


def test_a_server_that_is_told_to_end_answers_what_it_was_asked(vllm_servers) -> None:
    server = vllm_servers.mixtral()
    for client in open_client(server):
        parts = ask(client, "mixtral", "Say.", max_tokens=3000, ignore_eos=True, stream=True, stream_options=COUNTED)
        next(parts)  # it is under way
        server.process.terminate()
        *_, last = parts
    assert last.usage.completion_tokens == 3000
    assert server.process.wait(timeout=60) == 0


COUNTED = {"include_usage": True}
