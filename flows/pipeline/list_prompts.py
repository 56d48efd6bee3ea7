"""List prompts with what is filled into each: ours, or a user's in place of them."""

from dataclasses import dataclass

from pairwright.flows.pipeline.check_prompts import list_variables
from pairwright.flows.pipeline.read_prompts import OF_EVALUATION, read_prompts, suggest_prompt
from pairwright.prompts import COMMENT, ENDING, load_prompt, prompt_names, use_prompts
from pairwright.schemas.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ListedPrompt:
    """Prompt in the list of `pairwright prompts`."""

    name: str
    about: str
    """Its opening comment: whose words it has."""
    variables: dict[str, list[str]]
    """What is filled in: by kind of wordings, or under the name ""."""
    of_benchmark: bool
    """Whether evaluations of models ask it (`evaluate model --prompts`), not builds."""
    text: str


def list_prompts(name: str = "", folder: str = "") -> list[ListedPrompt]:
    """Return all prompts, or the one of a name, with a folder's in place of ours."""
    names = prompt_names()
    chosen = name.removesuffix(ENDING)
    if chosen and chosen not in names:
        raise ConfigError(f"{name}: no such prompt{suggest_prompt(chosen)}")
    listed: list[ListedPrompt] = []
    with use_prompts(read_prompts(folder) if folder else {}):
        for each in [chosen] if chosen else names:
            text = load_prompt(each).text
            comment = COMMENT.match(text)
            prompt = ListedPrompt(
                name=each,
                about=" ".join(comment[0][2:-2].split()) if comment else "",
                variables=list_variables(text),
                of_benchmark=each in OF_EVALUATION,
                text=text,
            )
            listed.append(prompt)
    return listed
