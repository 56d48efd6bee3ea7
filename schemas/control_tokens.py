"""Control tokens of chat formats and control characters, which no text of a dataset may have.

One list for texts of servers and of people, for exports and for training: a token in a text would
end the answer, open a turn or stand for an image where a model reads it.
"""

import re
from collections.abc import Iterable

from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import Turn

CONTROL_TOKENS = "control tokens"
CONTROL_CHARACTERS = "control characters"

BAR = "[|\xa6\u01c0\u2223\u2502\u2503\u2758\uff5c]"
BRACKETED = (
    "INST",
    "SYS",
    "SYSTEM_PROMPT",
    "AVAILABLE_TOOLS",
    "TOOL_RESULTS",
    "TOOL_CALLS",
    "TOOL_CONTENT",
    "CALL_ID",
    "MODEL_SETTINGS",
    "IMG_BREAK",
    "IMG_END",
    "BEGIN_AUDIO",
    "THINK",
    "CLS",
    "UNK",
    "BOS",
    "EOS",
    "GMASK",
    "SMASK",
    "SYSTEM",
    "USER",
    "ASSISTANT",
    r"CONTROL_\d+",
)
"""Names in square brackets: Mistral, BERT, GLM."""
TAGS = (
    "s bos eos eot eom eod eop sop pad unk mask cls sep sys inst system user human assistant bot "
    "endoftext image images img video audio speech imagehere global-img box ref quad point poly "
    "grounding think thinking thought thoughts reasoning reflection analysis scratchpad answer "
    "final response solution output tool tools toolcall function functions"
)
"""Names in angle brackets; those with an underscore, a colon or a number need no list."""
NUMBERED = "unused|reserved|special|loc|seg|image|img|video|audio|frame|patch|extra|sentinel"
TOKEN = (
    # ChatML, Llama 3, Phi, Qwen, DeepSeek, GLM, Granite, gpt-oss
    rf"<{BAR}[^<>|\n]{{0,64}}?{BAR}>"
    rf"|<{BAR}/?[A-Za-z][\w./:-]{{0,48}}>|</?[A-Za-z][\w./:-]{{0,48}}{BAR}>"  # Gemma 4
    rf"|<{{1,2}}[/!]?(?i:{'|'.join(TAGS.split())})\s?/?>{{1,2}}"  # <s>, <<SYS>>, </think>
    r"|</?[A-Za-z]+(?:_[A-Za-z0-9]+)+/?>"  # <start_of_turn>, <BOS_TOKEN>, <image_soft_token>
    rf"|</?(?i:{NUMBERED})[_-]?\d{{1,6}}>|<0[xX][0-9A-Fa-f]{{2}}>"  # <unused94>, <loc0123>, <0x0A>
    r"|</?[a-z]+:[a-z_]+>"  # <seed:think>
    rf"|\[/?(?i:{'|'.join(BRACKETED)})\]"
    # in small letters these are words
    r"|\[/?(?:IMG|PREFIX|MIDDLE|SUFFIX|ARGS|AUDIO|PAD|MASK|SEP|TRANSCRIBE)\]"
    r"|\u25c1/?[a-z_]+\u25b7"  # Kimi
    r"|\[\|[^\[\]|]{0,64}\|\]|[\[\]][!a-z]{0,2}~[!a-z]{0,2}[\[\]]"  # EXAONE; MiniMax
    # Falcon, Fuyu, OLMo
    r"|>>[A-Z_]{2,32}<<|\|{1,3}(?:SPEAKER|NEWLINE|ENDOFTEXT|[A-Z]+_ADDRESS|PHONE_NUMBER)\|{1,3}"
)
"""Pattern of one control token."""
_TOKEN = re.compile(TOKEN)
_CHARACTER = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]")
"""C0 and C1 controls other than white space, and characters that turn the direction of a text."""
IMAGE = "<image>"
"""Placeholder of an image in a prompt."""


def refuse_control(text: str) -> RefusedText | None:
    """Return why a text must not be stored, exported or trained on; ``None``: nothing."""
    token = find_token(text)
    if token:
        return RefusedText(CONTROL_TOKENS, token)
    character = _CHARACTER.search(text)
    if character:
        return RefusedText(CONTROL_CHARACTERS, f"U+{ord(character[0]):04X}")
    return None


def refuse_control_in_prompt(text: str) -> RefusedText | None:
    """Return why a prompt must not be used; its placeholders of images are no control tokens."""
    return refuse_control(text.replace(IMAGE, " "))


def refuse_conversation(turns: Iterable[Turn], answers: Iterable[str] = ()) -> RefusedText | None:
    """Return the first reason against a conversation and further answers; ``None``: there is none.

    Placeholders of images are allowed in what the user says.
    """
    for turn in turns:
        is_answer = turn.role == "assistant"
        refused = refuse_control(turn.text) if is_answer else refuse_control_in_prompt(turn.text)
        if refused:
            return refused
    refusals = map(refuse_control, answers)
    return next(filter(None, refusals), None)


def find_token(text: str) -> str:
    """Return the first control token of a text; empty: none."""
    token = _TOKEN.search(text)
    return token[0] if token else ""
