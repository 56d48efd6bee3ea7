"""Read a user's prompts in place of ours: the folder that `prompts` names."""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pairwright.flows.pipeline.check_prompts import find_problems
from pairwright.prompts import ENDING, prompt_names
from pairwright.schemas.config import Profile, ResolvedProfile, add_findings
from pairwright.schemas.errors import ConfigError

FOUND = "prompt_texts"
OF_EVALUATION = (
    "choose_image",
    "describe_difference",
    "judge_answer",
    "judge_coverage",
    "judge_hallucination",
    "judge_pair_statement",
    "judge_statement",
)
"""Prompts of benchmarks, which only `pairwright evaluate model --prompts` asks."""


def pin_prompts(profile: Profile, *, again: bool = False) -> Profile:
    """Return the profile with the texts of its folder of prompts.

    A profile that a build has resolved keeps its texts, as the folder may have changed since;
    ``again``: it names another folder.
    """
    is_pinned = isinstance(profile, ResolvedProfile) and FOUND in profile.found
    if is_pinned and not again:
        return profile
    if not is_pinned and not profile.prompts:
        return profile
    texts = read_prompts(profile.prompts) if profile.prompts else {}
    return add_findings(profile, {FOUND: texts})


def say_changed_prompts(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield which prompts have another text in one profile than in another, as JSON."""
    old: dict[str, str] = before.get("found", {}).get(FOUND, {})
    new: dict[str, str] = after.get("found", {}).get(FOUND, {})
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            source = "a new text" if name in new else "ours again"
            yield f"prompt {name}: {source}"


def read_prompts(folder: str) -> dict[str, str]:
    """Return the texts of a folder by the names of the prompts that they replace.

    Raises ``ConfigError`` with file and line of everything that a build could not use.
    """
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError(f"prompts: {folder}: no such folder")
    texts: dict[str, str] = {}
    messages: list[str] = []
    for file in sorted(path.iterdir()):
        if file.name.startswith("."):
            continue
        name = file.name.removesuffix(ENDING)
        refusal = _refuse_file(file, name)
        if refusal:
            messages.append(f"{file}: {refusal}")
            continue
        try:
            texts[name] = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            messages.append(f"{file}: cannot be read as text: {error}")
    for name, text in texts.items():
        for line, reason in find_problems(name, text, texts):
            messages.append(f"{path / name}{ENDING}:{line}: {reason}")
    if messages:
        raise ConfigError("\n".join(messages))
    return texts


def _refuse_file(file: Path, name: str) -> str:
    """Return why a file replaces no prompt; empty: it does."""
    if not file.name.endswith(ENDING) or name not in prompt_names():
        return f"no prompt has this name{suggest_prompt(name)}"
    return ""


def suggest_prompt(name: str) -> str:
    """Return a hint for an unknown name."""
    close = difflib.get_close_matches(name, prompt_names(), n=1)
    hint = f"; did you mean {close[0]}{ENDING}?" if close else ""
    return f"{hint} (pairwright prompts lists them)"
