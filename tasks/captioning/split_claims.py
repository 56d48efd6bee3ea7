"""Split a description into statements about each image (ours).

What the scene grammar reads becomes claims, each worded as a sentence. Another half without a
conjunction is one statement; a longer one is split by the served model, as for AdaViP's statements.
"""

import re

from pairwright.schemas import phrases
from pairwright.schemas.claims import Claim
from pairwright.tasks.scenes.read_claims import read_claims
from pairwright.tasks.serving.chat import Chat
from pairwright.tasks.serving.split_text import ask_split, read_split
from pairwright.tasks.texts.words import split_by_rules

JOINED = re.compile(r",|;|\b(?:and|but|with|without|while|which|that)\b", re.IGNORECASE)
"""Words that join several statements in one half."""
MAX_CHARACTERS = 2000  # of a half that is split; nobody writes so much about one image


async def split_half(
    half: str,
    verb: str,
    chat: Chat,
    *,
    key: str,
    seed: int,
    max_tokens: int,
) -> list[str]:
    """Return the different statements of one half; at least one.

    ``verb``: the template's before the half ("shows").
    """
    whole = f"The image {verb} {half}".strip()[:MAX_CHARACTERS]
    if not JOINED.search(half):
        return [whole]
    answer = await ask_split(
        chat,
        whole,
        key=f"{key} {half}",
        seed=seed,
        max_tokens=max_tokens,
    )
    return list(read_split(answer, whole) or split_by_rules(whole) or (whole,))


def read_description(text: str) -> tuple[list[str], list[str]] | None:
    """Return the statements of a description about each image; ``None``: it is in other words."""
    reading = read_claims(text)
    if not reading.understood:
        return None
    statements: tuple[list[str], list[str]] = ([], [])
    for claim in reading.claims:
        sentence = word_claim(claim)
        if sentence not in statements[claim.side]:
            statements[claim.side].append(sentence)
    return statements if all(statements) else None


def word_claim(claim: Claim) -> str:
    """Return the claim about one image as a sentence."""
    if claim.kind == "absent":
        return f"There is {phrases.some(claim.selector, 0)}."
    if claim.kind == "place":
        return f"The image was taken {phrases.within(claim.value)}."
    if claim.kind in ("light", "viewpoint"):
        return f"The image was taken with {claim.value}."
    if claim.kind == "count":
        verb = "is" if claim.count == 1 else "are"
        return f"There {verb} exactly {phrases.some(claim.selector, claim.count)}."
    if claim.relation is not None:
        relation = f"{phrases.SPOKEN[claim.relation]} {phrases.the(claim.other)}"
        return f"There is {phrases.some(claim.selector)} {relation}."
    return f"There is {phrases.some(claim.selector)}."
