"""The verb that shows what models are asked: prompts."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app

if TYPE_CHECKING:
    from pairwright.flows.pipeline.list_prompts import ListedPrompt


@app.command(
    epilog="Examples: `pairwright prompts`, `pairwright prompts describe_image > "
    "mine/describe_image.j2`"
)
def prompts(
    name: Annotated[str, Argument(help="One prompt, to see its text.")] = "",
    *,
    folder: Annotated[
        str, Option(help="Check a folder of your prompts, and show them in place of ours.")
    ] = "",
    as_json: options.AsJson = False,
) -> None:
    """List what models are asked, and the wordings of composed texts, with their variables.

    Copy one into a folder, change it, and build with `--set prompts=FOLDER`; questions of
    benchmarks: `evaluate model --prompts FOLDER`.
    """
    from pairwright.flows.pipeline.list_prompts import list_prompts

    listed = list_prompts(name, folder)
    if as_json:
        options.print_json(listed)
    elif name:
        print(listed[0].text.rstrip("\n"))
        for line in _say_variables(listed[0]):
            print(line, file=sys.stderr)  # so that the text alone goes into a file
    else:
        for prompt in listed:
            _print_prompt(prompt)


def _print_prompt(prompt: "ListedPrompt") -> None:
    """Print name, variables and origin of a prompt; of wordings, the variables of each kind."""
    note = "  (of a benchmark: evaluate model --prompts)" if prompt.of_benchmark else ""
    print(f"{prompt.name}{note}")
    print(f"    {prompt.about}")
    for line in _say_variables(prompt):
        print(f"    {line}")


def _say_variables(prompt: "ListedPrompt") -> Iterator[str]:
    """Yield what a prompt gets; of wordings, a line for each kind."""
    for kind, names in prompt.variables.items():
        label = f"kind {kind!r}" if kind else "variables"
        yield f"{label}: {', '.join(names) or 'none'}"
