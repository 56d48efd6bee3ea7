"""Arguments of chat templates: defaults of the template that others can still overrule."""

import pytest
from transformers import AutoProcessor

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.training.load_model import load_processor
from pairwright.tasks.training.template_arguments import list_arguments, set_arguments

TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content[0].text }}\n{% endfor %}"
    "{% if add_generation_prompt %}{% generation %}{% endgeneration %}assistant: "
    "{% if thinking is defined and thinking %}<think>{% endif %}{{ style | default('plain') }}"
    "{% endif %}"
)
ASKED = [{"role": "user", "content": [{"type": "text", "text": "Q"}]}]


@pytest.fixture
def processor(qwen):
    processor = AutoProcessor.from_pretrained(qwen)
    processor.chat_template = TEMPLATE
    return processor


def prompt(processor, **arguments):
    return processor.apply_chat_template(ASKED, add_generation_prompt=True, **arguments)


def test_optional_variables_are_the_arguments(processor):
    assert list_arguments(processor) == ["style", "thinking"]


def test_arguments_become_defaults(processor):
    assert prompt(processor) == "user: Q\nassistant: plain"
    set_arguments(processor, {"thinking": True, "style": 'the "new" one'})
    assert prompt(processor) == 'user: Q\nassistant: <think>the "new" one'
    assert prompt(processor, thinking=False, style="x") == "user: Q\nassistant: x"
    set_arguments(processor, {"style": "newer"})
    assert prompt(processor).endswith("<think>newer"), "as of a run that starts from another one"


def test_an_unknown_argument_gives_the_known_ones(processor):
    with pytest.raises(ConfigError, match=r"template_kwargs: .*'thinkin'.*: style, thinking"):
        set_arguments(processor, {"thinkin": True})


def test_a_processor_is_loaded_with_them(folder):
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    assert prompt(load_processor(folder, {"style": "short"})).endswith("short")
    assert prompt(load_processor(folder)).endswith("plain")
