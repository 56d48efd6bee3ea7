"""Responses of many servers become a text, or a refusal with its true reason."""

import json

import pytest

from pairwright.schemas.replies import RefusedText
from pairwright.tasks.serving.chat import RefusedQuestionError
from pairwright.tasks.serving.faults import FaultError
from pairwright.tasks.serving.read_response import read_response, read_text, refuse_text

TEXT = "A red cup stands on the table beside a blue plate."
CURES = ("enable_thinking", "models.*.thinking_tokens")


def respond(content=TEXT, finish="stop", usage=None, **message):
    """Return the answer in a response with these fields."""
    message = {"role": "assistant", "content": content, **message}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return read_response(json.dumps({"choices": [choice], "usage": usage}).encode())


@pytest.mark.parametrize(
    "finish",
    [
        *("stop", "end_turn", "STOP", "eos", "eos_token", "stop_sequence", "COMPLETE", None, ""),
        *("FINISH_REASON_STOP", "unknown", {"type": "stop", "matched": 2}),
    ],
)
def test_a_whole_answer_is_taken_however_it_ended(finish) -> None:
    assert read_text(respond(finish=finish)) == TEXT


@pytest.mark.parametrize(
    "finish",
    [
        *("length", "max_tokens", "MAX_TOKENS", "model_length", "model_context_window_exceeded"),
        {"type": "length", "length": 20},
    ],
)
def test_only_an_answer_at_its_limit_is_cut_off(finish) -> None:
    answer = respond(finish=finish)
    assert (answer.text, answer.finish_reason) == (TEXT, "length")
    assert read_text(answer).reason == "cut off"


@pytest.mark.parametrize(
    "finish",
    [
        *("content_filter", "SAFETY", "refusal", "PROHIBITED_CONTENT", "RECITATION", "BLOCKLIST"),
        *("content_filter: SPII", "sensitive"),
    ],
)
def test_a_filter_ends_an_answer(finish) -> None:
    with pytest.raises(RefusedQuestionError, match=finish) as caught:
        respond(finish=finish)
    assert caught.value.reason == "the server ended the answer"


def test_an_error_of_the_server_is_tried_again() -> None:
    with pytest.raises(FaultError, match="finish reason network_error"):
        respond(finish="network_error")


PART = {"type": "text", "text": TEXT}
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}]}


@pytest.mark.parametrize(
    ("parts", "thoughts"),
    [
        ([PART], 0),
        ([THINKING, PART], 11),
        ([{"type": "reasoning", "text": "Hm."}, PART], 3),
        ([{"type": "output_text", "text": TEXT, "annotations": []}], 0),
        ([{"type": "text", "text": {"value": TEXT, "annotations": []}}], 0),
        ([{"text": TEXT[:9]}, TEXT[9:]], 0),
        (PART, 0),
        ({"parts": [PART]}, 0),
    ],
    ids=[
        *("text", "thinking and text", "reasoning and text", "output_text", "values"),
        *("without types", "one part", "an object of parts"),
    ],
)
def test_parts_of_text_are_joined(parts, thoughts) -> None:
    tokens = 100
    answer = respond(parts, usage={"completion_tokens": tokens})
    assert read_text(answer) == TEXT
    assert answer.served.thought_tokens == round(tokens * thoughts / (len(TEXT) + thoughts))


def event(choice, **fields):
    return f"data: {json.dumps({'choices': [choice], **fields})}\n\n"


BODIES = {
    "a stream": event({"delta": {"role": "assistant", "content": ""}, "finish_reason": None})
    + event({"delta": {"content": TEXT[:9]}, "finish_reason": None})
    + ": a comment\n\n"
    + event({"delta": {"content": TEXT[9:]}, "finish_reason": None})
    + event({"delta": {}, "finish_reason": "stop"}, usage=None)
    + 'data: {"choices": [], "usage": {"completion_tokens": 12}}\n\ndata: [DONE]\n\n',
    "an event": event({"message": {"content": TEXT}, "finish_reason": "stop"}),
    "a chunk": json.dumps({"choices": [{"delta": {"content": TEXT}, "finish_reason": "stop"}]}),
    "a text": json.dumps({"choices": [{"text": TEXT, "finish_reason": "stop"}]}),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_answers_of_servers_that_stream_unasked(body) -> None:
    answer = read_response(body.encode())
    assert (read_text(answer), answer.finish_reason) == (TEXT, "stop")
    assert answer.served.completion_tokens == (12 if "[DONE]" in body else 0)


@pytest.mark.parametrize("body", ["data: \n\n", "data: [DONE]\n\n", 'data: {"choices": [{}]}\n\n'])
def test_a_stream_without_an_answer_is_broken(body) -> None:
    with pytest.raises(FaultError, match="broken answer"):
        read_response(body.encode())


@pytest.mark.parametrize(
    ("finish", "reason"), [("stop", "empty"), ("length", "thoughts without an answer")]
)
def test_a_message_without_a_content_has_its_true_reason(finish, reason) -> None:
    choice = {"message": {"role": "assistant"}, "finish_reason": finish}
    answer = read_response(json.dumps({"choices": [choice]}).encode())
    assert read_text(answer).reason == reason


def test_an_error_of_a_choice_is_told_in_its_words() -> None:
    choice = {"message": {"content": ""}, "error": {"code": 502, "message": "Upstream died"}}
    with pytest.raises(FaultError, match="server error: Upstream died"):
        read_response(json.dumps({"choices": [choice]}).encode())


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thoughts_beside_the_text_are_counted(field) -> None:
    details = {"completion_tokens": 60, "completion_tokens_details": {"reasoning_tokens": 40}}
    answer = respond(usage=details, **{field: "Let me see."})
    assert read_text(answer) == TEXT
    assert (answer.served.completion_tokens, answer.served.thought_tokens) == (60, 40)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_thoughts_without_a_text_name_the_field_and_cures(field, finish) -> None:
    refused = read_text(respond(None, finish, **{field: TEXT}))
    assert refused.reason == "thoughts without an answer"
    assert all(words in refused.detail for words in (field, *CURES))


@pytest.mark.parametrize("content", ["<think>Let me see", "Let me see.</think>"])
def test_thoughts_within_a_text_without_an_answer(content) -> None:
    refused = read_text(respond(content, "length"))
    assert refused.reason == "thoughts without an answer"
    assert all(words in refused.detail for words in CURES)


def test_thoughts_have_no_first_token() -> None:
    message = {"content": f"<think>Yes?</think>{TEXT}"}
    logprobs = {"content": [{"token": "Yes", "logprob": 0.0, "top_logprobs": []}]}
    choice = {"message": message, "finish_reason": "stop", "logprobs": logprobs}
    answer = read_response(json.dumps({"choices": [choice]}).encode())
    assert (answer.text, answer.first_token) == (TEXT, ())
    assert answer.served.removed == ("thoughts",)


@pytest.mark.parametrize(("content", "reason"), [(None, "empty"), ("", "empty"), (" \n", "empty")])
def test_an_empty_answer_is_named_so(content, reason) -> None:
    assert read_text(respond(content)).reason == reason


def test_a_tool_call_is_no_answer_unless_there_is_a_text() -> None:
    call = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    refused = read_text(respond(None, "tool_calls", tool_calls=call))
    assert refused.reason == "a tool call instead of an answer"
    assert read_text(respond(finish="tool_calls", tool_calls=call)) == TEXT


def test_a_refusal_in_its_own_field_drops_the_row() -> None:
    with pytest.raises(RefusedQuestionError, match="I cannot help"):
        respond(None, refusal="I cannot help.")


GERMAN = (
    "Das Bild zeigt einen Hund auf einer Wiese vor einem Haus, und im Hintergrund sieht man einen "
    "Baum neben einer hohen Mauer aus Stein."
)
UNFIT = {
    "empty": ["", "...", "*"],
    "declined": ["I'm sorry, but I can't help with that.", "As an AI, I cannot see images."],
    "control tokens": [
        TEXT.replace("cup", f"cup {token}")
        for token in ("<|im_end|>", "<image>", "</s>", "[INST]", "<end_of_turn>", "<|eot_id|>")
    ],
    "control characters": [TEXT.replace("cup", f"c{c}up") for c in "\0\x1b\u202e\u2066\x07"],
    "another language": ["两张图片的区别是第一张图片显示一只狗。", GERMAN, "На столе стоит чашка."],
    "repeats itself": ["There is a red cup" + ", a blue cup and a plate" * 8 + "."],
}


@pytest.mark.parametrize(
    ("reason", "text"), [(reason, text) for reason, texts in UNFIT.items() for text in texts]
)
def test_each_unfit_text_has_its_own_reason(reason, text) -> None:
    refused = refuse_text(text)
    assert isinstance(refused, RefusedText)
    assert refused.reason == reason


@pytest.mark.parametrize("text", [TEXT, "Ein Hund.", "A caf\u00e9.\nIt is open.", "It is 5 < 6."])
def test_fit_texts(text) -> None:
    assert refuse_text(text) is None


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"caption": TEXT}),
        f"- {TEXT}",
        f"1. {TEXT}",
        f'```json\n{{"description": "{TEXT}"}}\n```',
    ],
)
def test_the_only_item_of_a_list_or_object_is_the_text(content) -> None:
    assert read_text(respond(content=content)) == TEXT


@pytest.mark.parametrize("space", ["\u0120", "\u2581"])
def test_tokens_that_were_not_decoded_are_refused(space) -> None:
    refused = refuse_text(TEXT.replace(" ", space))
    assert refused is not None
    assert refused.reason == "tokens that were not decoded"


@pytest.mark.parametrize("content", [f"1. {TEXT} 2. {TEXT}", '{"a": "b", "c": "d"}', "{a: b}"])
def test_several_items_stay(content) -> None:
    assert read_text(respond(content=content)) == content


def body_of(choice) -> bytes:
    return json.dumps({"choices": [choice]}).encode()


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {"content": {"type": "text", "text": TEXT}}},
        {"message": {"content": [{"type": "output_text", "text": TEXT}]}},
        {"message": {"content": [{"type": "text", "text": {"value": TEXT}}]}},
        {"message": {"content": TEXT}, "finish_reason": {"type": "stop"}},
        {"message": {"content": TEXT}, "finish_details": {"type": "stop"}},
        {"delta": {"content": TEXT}, "finish_reason": "stop"},
        {"text": TEXT, "finish_reason": "stop"},
    ],
)
def test_other_forms_of_a_message(choice) -> None:
    assert read_text(read_response(body_of(choice))) == TEXT


@pytest.mark.parametrize(
    "message",
    [
        {"content": None, "refusal": "I will not."},
        {"content": [{"type": "refusal", "refusal": "I will not."}]},
    ],
)
def test_a_refusal_is_found_in_a_field_and_a_part(message) -> None:
    with pytest.raises(RefusedQuestionError, match=r"I will not\."):
        read_response(body_of({"message": message, "finish_reason": "stop"}))


@pytest.mark.parametrize(
    "response",
    [
        {"error": {"message": "overloaded", "code": 503}},
        {"error": "overloaded"},
        {"choices": None, "error": {"error": {"message": "overloaded"}}},
        {"choices": [{"error": {"message": "overloaded"}, "finish_reason": "error"}]},
    ],
)
def test_an_error_with_the_status_of_a_success_is_said(response) -> None:
    with pytest.raises(FaultError, match="server error: overloaded"):
        read_response(json.dumps(response).encode())


def test_a_message_without_content_at_the_limit_is_cut_off() -> None:
    answer = read_response(body_of({"message": {"role": "assistant"}, "finish_reason": "length"}))
    assert read_text(answer).reason == "thoughts without an answer"


def test_a_message_without_content_by_a_filter_is_refused() -> None:
    with pytest.raises(RefusedQuestionError, match="content_filter"):
        read_response(body_of({"message": {}, "finish_reason": "content_filter"}))
