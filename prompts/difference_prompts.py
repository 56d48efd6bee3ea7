"""Questions about the difference of a pair, and the grammar of their answers (paper 001, D.2).

The three instructions are the paper's, chosen by the available texts. Ours: two different verbs are
drawn for the quoted template, by default of those that make natural English, and where a caption is
missing neither is given: a prompt about one image only would tilt the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from pairwright.prompts import difference_verbs, load_prompt, natural_verbs

UNCHANGED = "{second}. Both images show {first}."
"""Description of an unchanged pair (ours): without a difference, the template cannot be filled."""
SLOT = "[object description]"
TEMPLATE = "difference_template"
WITHOUT_CAPTIONS = {
    "difference_from_captions": "difference_from_images",
    "difference_from_human": "difference_from_human_only",
    "difference_from_edit": "difference_from_edit_only",
}
VERBS = "difference_verbs"
READ_BACK = (TEMPLATE, VERBS)
"""Prompt files by which descriptions are read and filled in."""
PROMPTS = (*READ_BACK, *WITHOUT_CAPTIONS, *WITHOUT_CAPTIONS.values())
"""All prompt files of the instructions."""
FORBIDDEN = r".!?\[\]{}"
"""Characters of no half: ends of sentences (a full stop before a letter or digit is none), template
brackets."""
FREE = rf"[^,\t\n\r{FORBIDDEN}]|\.[0-9A-Za-z]"
AFTER_COMMA = (
    rf"[^,\s{FORBIDDEN}]",
    rf" [^w,\s{FORBIDDEN}]",
    *(rf" {'while'[:n]}[^{'while'[n]},\s{FORBIDDEN}]" for n in range(1, 5)),
)
"""Continuations other than " while", which begins the second half."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """Text of the question about two images."""

    prompt: str  # name of the prompt file
    text: str
    known: str  # "captions", "human difference" or "edit"; empty: nothing


def draw_verbs(rng: Random, *, paper: bool = False) -> tuple[str, str]:
    """Draw two different verbs: of those that make natural English, or of the paper's list."""
    verbs = difference_verbs() if paper else natural_verbs()
    first, second = rng.sample(verbs, 2)
    return first, second


def instruct(
    verbs: Sequence[str],
    *,
    captions: tuple[str, str] | None,
    human: str = "",
    edit: str = "",
) -> Instruction:
    """Return the instruction for the available texts.

    ``edit`` made the second image of the first; ``human`` is a person's difference, which says less
    than an edit. All of them are data.
    """
    values: dict[str, str] = {}
    if edit:
        name = "difference_from_edit"
        basis = "edit"
        values["instruction"] = edit
    elif human:
        name = "difference_from_human"
        basis = "human difference"
        values["difference"] = human
    else:
        name = "difference_from_captions"
        basis = "captions" if captions else ""
    if captions:
        values["first_caption"], values["second_caption"] = captions
    else:
        name = WITHOUT_CAPTIONS[name]
    template = fill_template(verbs, SLOT, SLOT)
    return Instruction(name, load_prompt(name).render(**values, template=template), basis)


def fill_template(
    verbs: Sequence[str],
    first: str,
    second: str,
) -> str:
    """Return the template with two verbs and two halves; without verbs, state no change."""
    if not verbs:
        return UNCHANGED.format(first=first, second=second)
    first_verb, second_verb = verbs
    return load_prompt(TEMPLATE).render(
        first_verb=first_verb,
        first=first,
        second_verb=second_verb,
        second=second,
    )


def difference_regex() -> str:
    """Return the grammar of a description, for servers that constrain answers.

    Any verb of the list may stand in it, as in validation, since a grammar for each pair of verbs
    would be compiled again and again: xgrammar 0.2.8 takes 0.5 s for this one (150,000 tokens, two
    cores). Halves have no greatest length for the same reason (400 characters: 7 s, and vLLM gives
    up after 5): ``max_tokens`` ends them, and a description that it cut off is asked for again with
    more. Stars stand over plain alternatives: with one inside another, each token took thousands of
    times as long.
    """
    verb = f"(?:{'|'.join(difference_verbs())})"
    half = rf"[\"'“‘(]?[0-9A-Za-z](?:{FREE}|,{'|,'.join(AFTER_COMMA)})*"
    fixed = fill_template(("VERB", "VERB"), "HALF", "HALF").replace(".", r"\.")
    return fixed.replace("VERB", verb).replace("HALF", half)
