"""Arguments of a chat template besides the messages, such as ``enable_thinking``.

They become defaults of the template itself, so that the finished model has them wherever it is
loaded: here, in transformers, in vLLM. Needs Jinja.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pairwright.schemas.errors import ConfigError

FIELD = "model.template_kwargs"
OWN = {
    "add_generation_prompt",
    "content",
    "continue_final_message",
    "documents",
    "messages",
    "raise_exception",
    "strftime_now",
    "tools",
}
"""Variables that transformers or the messages set, beside special tokens."""
DEFINED = ("defined", "undefined", "default", "d")  # tests and filters of optional arguments
GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")  # transformers' own statement


def set_arguments(processor: Any, arguments: Mapping[str, Any]) -> None:
    """Make arguments the defaults of a processor's chat template, in place.

    ``ConfigError``: the template has no such argument.
    """
    if not arguments:
        return
    available = list_arguments(processor)
    unknown = [name for name in arguments if name not in available]
    if unknown:
        choices = ", ".join(available) or "it has none"
        raise ConfigError(
            f"{FIELD}: the chat template has no argument {unknown[0]!r}; choose from: {choices}"
        )
    defaults = ""
    for name, value in arguments.items():
        literal = "none" if value is None else json.dumps(value)
        defaults += f"{{% if {name} is not defined %}}{{% set {name} = {literal} %}}{{% endif %}}"
    processor.chat_template = defaults + processor.chat_template


def list_arguments(processor: Any) -> Sequence[str]:
    """Return the names of a chat template's optional arguments, sorted.

    Those are the variables from outside that it tests for being defined.
    """
    from jinja2 import Environment, TemplateError, meta, nodes

    environment = Environment(extensions=["jinja2.ext.loopcontrols"])  # noqa: S701 -- only parsed
    template = processor.chat_template
    if not isinstance(template, str):
        return ()
    try:
        tree = environment.parse(GENERATION.sub("", template))
        outside = meta.find_undeclared_variables(tree)
    except TemplateError:  # of a dialect that only transformers reads
        return ()
    tested: set[str] = set()
    for test in (*tree.find_all(nodes.Test), *tree.find_all(nodes.Filter)):
        if test.name in DEFINED and isinstance(test.node, nodes.Name):
            tested.add(test.node.name)
    names = outside & tested - OWN
    return sorted(name for name in names if not name.endswith("_token"))
