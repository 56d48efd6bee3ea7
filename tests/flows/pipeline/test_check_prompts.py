"""Changed prompts: what a build could not fill in, show or read back is found, with its line."""

import pytest

from pairwright.flows.pipeline.check_prompts import find_problems, list_variables
from pairwright.prompts import load_prompt, prompt_names

TEMPLATE = (
    "The difference between the two images is that the first image {{ first_verb }} {{ first }}, "
    "while the second image {{ second_verb }} {{ second }}."
)
SAME = "yes | {{ first }} {{ second }} Same?\nno | {{ first }} {{ second }} Different?\n"
VERBS = load_prompt("difference_verbs").text.rstrip()
LAYOUT = "Commonalities:\n{% for text in commonalities %}\n{{ loop.index }}. {{ text }}\n"
LAYOUT += "{% endfor %}\n"


@pytest.mark.parametrize("name", prompt_names())
def test_our_own_prompts_are_taken(name: str) -> None:
    assert find_problems(name, load_prompt(name).text) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("describe_image", "Beschreibe das Bild in einem Absatz.\n"),
        ("retrieve_image", "{# mine #}\n{% if caption %}Which one: {{ caption }}?{% endif %}"),
        ("compare_images", "Compare the two images."),
        ("difference_template", TEMPLATE),
        ("confirm_same", SAME),
        ("confirm_same", "yes | Same?\nno | Different?"),
        ("ask_questions", 'Ask {{ rounds }} times.\n{"question": "What is it?", "answer": "A."}'),
    ],
)
def test_a_text_that_can_be_used_is_taken(name: str, text: str) -> None:
    assert find_problems(name, text) == []


@pytest.mark.parametrize(
    ("name", "text", "line", "words"),
    [
        ("describe_image", "{# mine #}\n\n", 1, "empty"),
        ("describe_image", "{# mine #}\nSay\n{{ caption }}", 3, "'caption'; it gets nothing"),
        ("describe_image", "Look at <image>.", 1, "come first"),
        ("retrieve_image", "One\n{{ caption | shout }}", 2, "shout"),
        ("retrieve_image", "One\n{% for %}", 2, "Jinja"),
        ("retrieve_image", "One\n{{ caption.words }}", 2, "cannot be filled in"),
        ("retrieve_image", "{{ caption }}<|im_end|>", 1, "<|im_end|>"),
        ("compare_images", "First <image>", 1, "must name <image> <image>"),
        ("judge_difference", "{{ second }} {{ first }} {{ description }}", 1, "<image 1>"),
        ("judge_difference", "{{ first }} {{ description }}", 1, "<image 1> <image 2>"),
        ("confirm_same", "# a\n" + SAME, 1, "kind | wording"),
        ("confirm_same", "{# a\nb #}\nmaybe | Same?\n" + SAME, 3, "choose from yes, no"),
        ("confirm_same", "yes | Same?", 1, "no wording of the kind no"),
        ("edit_kinds", load_prompt("edit_kinds").text + "\nobject | more", 10, "second wording"),
        ("difference_template", TEMPLATE.replace("while", "and"), 1, "off the template"),
        ("difference_template", "{# mine #}\n" + TEMPLATE[:-1], 2, "full stop"),
        ("ask_questions", "Ask.\nAnswer with JSON.", 2, "examples"),
        ("difference_verbs", f"{VERBS}\nverb | Shows!", 51, "'Shows!' is no verb"),
        ("difference_verbs", f"{VERBS}\nnoun | cup", 51, "no such kind"),
        ("judge_coverage", "{{ number }}", 1, "must show {{ answer }}"),
        ("comparison_layout_list", LAYOUT, 1, "no differences"),
    ],
)
def test_a_text_that_cannot_be_used_is_found(name: str, text: str, line: int, words: str) -> None:
    (problem,) = find_problems(name, text)
    assert problem.line == line
    assert words in problem.reason


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        (
            "difference_phrases",
            "verb | shows\n",
            "verb | proves\n",
            "'proves' is none of the verbs",
        ),
        ("difference_phrases", "things | {{ things }}", "things | {{ things | upper }}", "plain"),
        ("caption_sentences", "This is {{ place }}.", "This is {{ place }}", "full stop"),
        ("comparison_sentences", "| Object types", "| What I see here in the two", "label"),
    ],
)
def test_wordings_that_cannot_be_read_back_are_found(
    name: str, old: str, new: str, words: str
) -> None:
    changed = load_prompt(name).text.replace(old, new, 1)
    problems = find_problems(name, changed)
    assert len(problems) == 1
    assert words in problems[0].reason
    assert new.strip().splitlines()[0] in changed.splitlines()[problems[0].line - 1]


def test_a_clause_has_one_meaning() -> None:
    added = "\ngone | someone added {{ a_thing }}\ngone | "
    changed = load_prompt("answer_sentences").text.replace("\ngone | ", added, 1)
    (problem,) = find_problems("answer_sentences", changed)
    assert "also a wording of 'gone'" in problem.reason
    assert changed.splitlines()[problem.line - 1] == "new | someone added {{ a_thing }}"


def test_variables_are_listed_by_kind() -> None:
    assert list_variables(load_prompt("retrieve_image").text) == {"": ["caption"]}
    assert list_variables(load_prompt("confirm_same").text) == {
        "yes": ["first", "second"],
        "no": ["first", "second"],
    }
