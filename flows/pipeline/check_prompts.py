"""Check a user's prompt: what is filled into it, the images that it names, what reads its text.

Our prompt of the same name states all of this: its variables, its kinds of wordings, its places for
images. Reads and writes no file.
"""

import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import TemplateSyntaxError, meta, nodes

from pairwright.prompts import (
    COMMENT,
    Prompt,
    difference_verbs,
    environment,
    list_wordings,
    load_prompt,
    load_wordings,
    natural_verbs,
    use_prompts,
)
from pairwright.prompts.difference_prompts import VERBS, difference_regex, fill_template
from pairwright.schemas.control_tokens import refuse_control_in_prompt
from pairwright.schemas.replies import RefusedText
from pairwright.tasks.captioning.ask_questions import read_rounds
from pairwright.tasks.scenes.read_claims import BLANK, reader_of_kind
from pairwright.tasks.texts.comparisons import read_axes, read_comparison
from pairwright.tasks.texts.differences import Difference, read_difference

WORDING = re.compile(r"\w[\w ]* \| ")
IMAGE = re.compile(r"<image(?: \d)?>")
TWO_IMAGES = {"first": "<image 1>", "second": "<image 2>"}
IMAGES_OF: Mapping[str, Mapping[str, str]] = {
    "confirm_same": TWO_IMAGES,
    "confirm_statement": {"image": "<image 1>"},
    "judge_difference": TWO_IMAGES,
}
"""Variables that are filled with images, by prompt."""
COMMONALITIES = ("Both images show a red cube.",)
DIFFERENCES = (
    ("Object types", "Image 1 shows a dog, Image 2 shows a cat."),
    ("Counting the objects", "Image 1 has one ball, Image 2 has two balls."),
)
SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "comparison_layout": {"commonalities": COMMONALITIES[0], "differences": DIFFERENCES},
    "comparison_layout_list": {"commonalities": COMMONALITIES, "differences": DIFFERENCES},
    "ask_questions": {"rounds": 3},
}
"""Values of other types than text, or with a meaning, by prompt."""
SAMPLE = "a red cube"
SINGLE = ("control_reversed", "edit_kinds")  # files with one wording of each kind
SENTENCES = ("caption_sentences", "comparison_sentences")
RUBRICS = ("judge_answer", "judge_coverage", "judge_hallucination")
LABEL = "label_"
PHRASES = "difference_phrases"
VERB_KINDS = ("verb", "plain_verb")
VERB = re.compile(r"[a-z]+(?: [a-z]+)*")
HALVES = ("a red cube on a table", "a blue ball")


class Problem(NamedTuple):
    """Reason against a prompt, at a line of its file."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class PromptForm:
    """Form that a template must have, as ours states it."""

    variables: frozenset[str]
    images: tuple[str, ...]
    """Its places for images, in order."""


def list_variables(text: str) -> dict[str, list[str]]:
    """Return what is filled into a prompt: by kind of wordings, or under the name ""."""
    if not has_wordings(text):
        return {"": sorted(_find_variables(text))}
    variables: dict[str, list[str]] = {}
    for _, kind, wording in list_wordings(text):
        names = {*variables.get(kind, ()), *_find_variables(wording)}
        variables[kind] = sorted(names)
    return variables


def has_wordings(text: str) -> bool:
    """Return whether a file has alternative wordings rather than one prompt."""
    lines = COMMENT.sub("", text).splitlines()
    return all(WORDING.match(line) for line in lines if line.strip())


def find_problems(
    name: str, text: str, others: Mapping[str, str] = MappingProxyType({})
) -> list[Problem]:
    """Return what is wrong with a text in place of our prompt of this name.

    ``others``: texts in place of other prompts.
    """
    if not COMMENT.sub("", text).strip():
        return [Problem(1, "is empty")]
    if has_wordings(load_prompt(name).text):
        problems = list(_check_wordings(name, text))
    else:
        problems = list(_check_template(name, text, _form_of(name)))
    reader = READ_BY.get(name)
    if reader and not problems:
        with use_prompts({**others, name: text}):
            problems = list(reader(name))
    return problems


@cache
def _form_of(name: str, kind: str = "") -> PromptForm:
    """Return the form of our prompt, or of its wordings of a kind."""
    if not kind:
        text = load_prompt(name).text
        return PromptForm(frozenset(_find_variables(text)), _find_images(name, text))
    wordings = load_wordings(name).kinds[kind]
    variables = frozenset[str]()
    for wording in wordings:
        variables |= _find_variables(wording.text)
    return PromptForm(variables, _find_images(name, wordings[0].text))


def _find_variables(text: str) -> set[str]:
    return meta.find_undeclared_variables(environment().parse(text))


def _find_images(name: str, text: str) -> tuple[str, ...]:
    return tuple(IMAGE.findall(_fill_in(name, text)))


def _fill_in(name: str, text: str) -> str:
    """Return a template filled with samples."""
    values = dict.fromkeys(_find_variables(text), SAMPLE)
    values |= SAMPLES.get(name, {})
    values |= IMAGES_OF.get(name, {})
    return Prompt(text, "").render(**values)


def _check_wordings(name: str, text: str) -> Iterator[Problem]:
    ours = load_wordings(name).kinds
    kinds: dict[str, int] = {}
    for line, kind, wording in list_wordings(text):
        if not kind or not wording:
            yield Problem(line, 'must look like "kind | wording"')
        elif kind not in ours:
            yield Problem(line, f"no such kind {kind!r}; choose from {', '.join(ours)}")
        elif kind in kinds and name in SINGLE:
            yield Problem(line, f"a second wording of {kind!r}, which has one")
        else:
            kinds[kind] = line
            yield from _check_template(name, wording, _form_of(name, kind), line=line)
    missing = [kind for kind in ours if kind not in kinds]
    if missing:
        yield Problem(1, f"no wording of the kind {', '.join(missing)}")


def _check_template(name: str, text: str, form: PromptForm, *, line: int = 1) -> Iterator[Problem]:
    """Yield the problems of a template whose first line is this line of its file."""
    try:
        tree = environment().parse(text)
        environment().from_string(text)
    except TemplateSyntaxError as error:
        yield Problem(line + error.lineno - 1, f"is no Jinja template: {error.message}")
        return
    unknown = meta.find_undeclared_variables(tree) - form.variables
    for node in tree.find_all(nodes.Name):
        if node.name in unknown:
            unknown.remove(node.name)
            known = ", ".join(sorted(form.variables)) or "nothing"
            reason = f"unknown variable {node.name!r}; it gets {known}"
            yield Problem(line + node.lineno - 1, reason)
    refused = refuse_control_in_prompt(COMMENT.sub("", text))
    if refused:
        yield Problem(line, f"has {refused.reason}: {refused.detail}")
    try:
        images = _find_images(name, text)
    except Exception as error:  # noqa: BLE001  (a template may compute anything)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        inner = frame.lineno or 1
        place = line + inner - 1 if frame.filename == "<template>" else line
        yield Problem(place, f"cannot be filled in: {error}")
        return
    if images and images != form.images:
        yield Problem(line, _say_images(images, form.images))


def _say_images(images: Sequence[str], ours: Sequence[str]) -> str:
    shown = " ".join(images)
    if not ours:
        return f"names images ({shown}), but its images come first: leave {shown} out"
    return f"names the images {shown}; it must name {' '.join(ours)}, or none"


def _first_line(name: str) -> int:
    """Return the number of the first line outside of comments."""
    text = load_prompt(name).text
    blanked = COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    return blanked[: len(blanked) - len(blanked.lstrip())].count("\n") + 1


def _read_template(name: str) -> Iterator[Problem]:
    """Fill the template of descriptions, and read it as answers are read."""
    verbs = (natural_verbs()[0], natural_verbs()[1])
    text = fill_template(verbs, *HALVES)
    read = read_difference(text, difference_verbs())
    if isinstance(read, RefusedText):
        reason = f"a description in it is refused ({read.reason}): {text}"
        yield Problem(_first_line(name), reason)
        return
    expected = Difference(*HALVES, verbs, text)
    if read != expected or not re.fullmatch(difference_regex(), text):
        yield Problem(_first_line(name), f"the halves of a description in it are not found: {text}")


def _read_verbs(name: str) -> Iterator[Problem]:
    """Check that verbs are words, and that they hold those that composed halves begin with."""
    verbs = difference_verbs()
    for verb in verbs:
        if not VERB.fullmatch(verb):
            line = _line_of(name, "verb", verb)
            yield Problem(line, f"{verb!r} is no verb: words in lower case, without variables")
    for kind in VERB_KINDS:
        composed = {wording.text for wording in load_wordings(PHRASES).kinds[kind]}
        missing = ", ".join(sorted(composed.difference(verbs)))
        if missing:
            reason = f"lacks {missing}, which begin composed halves ({PHRASES}.j2, {kind!r})"
            yield Problem(1, reason)


def _read_rubric(name: str) -> Iterator[Problem]:
    """Check that a judge sees the number that its reply repeats, and the answer."""
    text = load_prompt(name).text
    for variable in sorted({"answer", "number"} - _find_variables(text)):
        reason = f"must show {{{{ {variable} }}}}: a rating without it cannot be read"
        yield Problem(_first_line(name), reason)


def _read_phrases(name: str) -> Iterator[Problem]:
    """Check verbs by the list that halves may begin with, and blanks."""
    yield from _check_blanks(name)
    file = load_wordings(name)
    for kind in VERB_KINDS:
        verbs = {wording.text for wording in file.kinds[kind]}
        unknown = sorted(verbs.difference(difference_verbs()))
        for verb in unknown:
            line = _line_of(name, kind, verb)
            yield Problem(line, f"{verb!r} is none of the verbs that begin a half")
        if len(verbs) < 2:
            line = _line_of(name, kind, min(verbs))
            yield Problem(line, f"a description needs two different verbs of the kind {kind!r}")


def _read_clauses(name: str) -> Iterator[Problem]:
    """Check that a clause is read as what it was written for."""
    yield from _check_blanks(name)
    reader_of: dict[str, tuple[str, Callable[..., Any]]] = {}
    for line, kind, wording in list_wordings(load_prompt(name).text):
        reader = reader_of_kind(kind)
        other, first_reader = reader_of.setdefault(wording.lower(), (kind, reader))
        if first_reader is not reader:
            yield Problem(line, f"also a wording of {other!r}: it cannot be read back")


def _check_blanks(name: str) -> Iterator[Problem]:
    """Refuse more than plain variables: texts are read back by these wordings."""
    for line, _, wording in list_wordings(load_prompt(name).text):
        if "{" in BLANK.sub("", wording):
            yield Problem(line, "only plain variables ({{ name }}) can be read back")


def _read_sentences(name: str) -> Iterator[Problem]:
    """Check that sentences end, and that labels of differences name the axes that ours name."""
    with use_prompts({}):
        ours = load_wordings(name).kinds
    for line, kind, wording in list_wordings(load_prompt(name).text):
        if kind.startswith(LABEL):
            axes = read_axes(ours[kind][0].text)
            if read_axes(wording) != axes:
                yield Problem(line, f"{wording!r} is not read as a label of {', '.join(axes)}")
        elif not wording.endswith("."):
            yield Problem(line, "must end with a full stop, as it stands among sentences")


def _read_layout(name: str) -> Iterator[Problem]:
    """Lay a summary out, and read it as answers are read."""
    text = load_prompt(name).render(**SAMPLES[name]).strip()
    summary = read_comparison(text)
    if isinstance(summary, RefusedText):
        yield Problem(_first_line(name), f"a summary in it is refused ({summary.reason}): {text}")
        return
    texts = tuple(difference.text for difference in summary.differences)
    if summary.commonalities != COMMONALITIES or texts != tuple(text for _, text in DIFFERENCES):
        yield Problem(_first_line(name), f"the parts of a summary in it are not found: {text}")


def _read_examples(name: str) -> Iterator[Problem]:
    """Read the examples in the last line as answers are read."""
    lines = load_prompt(name).text.strip().splitlines()
    rounds = read_rounds(lines[-1])
    if isinstance(rounds, RefusedText):
        reason = f"the last line must show examples as answers have them ({rounds.reason})"
        yield Problem(len(lines), reason)


READ_BY: Mapping[str, Callable[[str], Iterator[Problem]]] = {
    "difference_template": _read_template,
    PHRASES: _read_phrases,
    VERBS: _read_verbs,
    "answer_sentences": _read_clauses,
    "ask_questions": _read_examples,
    **dict.fromkeys(SENTENCES, _read_sentences),
    **dict.fromkeys(RUBRICS, _read_rubric),
    **dict.fromkeys(("comparison_layout", "comparison_layout_list"), _read_layout),
}
"""Readers of prompts whose text, or the texts made with it, our code reads back."""


def _line_of(name: str, kind: str, wording: str) -> int:
    for line, own_kind, text in list_wordings(load_prompt(name).text):
        if (own_kind, text) == (kind, wording):
            return line
    return 1
