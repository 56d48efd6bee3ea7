"""Word the texts of a pair as a kind of text that is drawn by its key.

Where the claims of all texts of a pair are known, all are worded as one kind, and the prompt asks
for that kind (ours). People's texts stay unchanged.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Literal

from pairwright.schemas.claims import CLAIMS
from pairwright.schemas.config import PreferencesConfig
from pairwright.schemas.rows import (
    MAKERS,
    NO_ROWS,
    CheckRow,
    DifferenceRow,
    PairRow,
    RejectedTextRow,
    make_key,
)
from pairwright.tasks.texts.say_claims import KINDS, MENTIONING, OF_ANY_PAIR, Kind, say_claims

SHARES: Mapping[Kind, int] = {"template": 1, "changes": 4, "sentences": 2, "list": 2, "short": 4}
"""Weights of the kinds of texts; the template, the kind of the descriptions, is the rarest."""
MAX_OBJECTS: Mapping[Kind, int] = {"short": 2, "sentences": 1}
"""Maximum mentions of objects of one image in texts about one scene; more are no short answer."""
UNKNOWN_CLAIMS = ("", "[]")
Worded = tuple[Kind | Literal["given"], DifferenceRow, Sequence[RejectedTextRow]]
"""Kind of the texts, the chosen one and the rejected ones."""


def select_false(
    pair_key: str,
    texts: Mapping[str, Mapping[str, tuple[RejectedTextRow, ...]]],
    checks: Sequence[CheckRow],
) -> list[RejectedTextRow]:
    """Return a pair's rejected texts in the order of their methods, without those judged true."""
    true_keys = {check.description for check in checks if check.passed}
    selected: list[RejectedTextRow] = []
    for maker in MAKERS:
        pair_texts = texts.get(maker, NO_ROWS).get(pair_key, ())
        selected.extend(text for text in pair_texts if text.key not in true_keys)
    return selected


def word_texts(
    pair: PairRow,
    difference: DifferenceRow,
    rejected: Sequence[RejectedTextRow],
    *,
    groups: Collection[str],
    config: PreferencesConfig,
) -> Worded:
    """Word the texts of a pair as a kind drawn by its key: the template if some claims are unknown.

    A kind that words a rejected text like the chosen one is skipped. The same description is
    returned where its text stays. ``groups``: those of the pair's images.
    """
    all_claims = [row.claims for row in (difference, *rejected)]
    if any(claims in UNKNOWN_CLAIMS for claims in all_claims):
        drawn_kinds: Sequence[Kind] = ()
    else:
        max_mentions = max(map(_count_mentions, all_claims))
        drawn_kinds = _draw_kinds(pair, groups, config, max_mentions)
    seed = make_key("told", config.seed, pair.key)
    for kind in drawn_kinds:
        chosen_text, *rejected_texts = [
            say_claims(CLAIMS.validate_json(claims), kind, Random(seed)) for claims in all_claims
        ]
        if chosen_text not in rejected_texts:
            reworded = [
                replace(row, text=text) for row, text in zip(rejected, rejected_texts, strict=True)
            ]
            return kind, replace(difference, text=chosen_text), reworded
    return "given" if difference.is_given else "template", difference, rejected


def _draw_kinds(
    pair: PairRow,
    groups: Collection[str],
    config: PreferencesConfig,
    max_mentions: int,
) -> Sequence[Kind]:
    """Return kinds of texts to try in turn, up to the template.

    Only images of one scene are described as changes. ``max_mentions``: of objects of one image, in
    any of the texts.
    """
    is_one_scene = len(set(groups)) == 1 and all(groups)
    kinds: Sequence[Kind] = OF_ANY_PAIR
    if is_one_scene:
        kinds = [kind for kind in KINDS if max_mentions <= MAX_OBJECTS.get(kind, max_mentions)]
    weights = [SHARES[kind] for kind in kinds]
    rng = Random(make_key("kind", config.seed, pair.key))
    drawn = rng.sample(kinds, sum(weights), counts=weights)
    return drawn[: drawn.index("template")]


def _count_mentions(claims: str) -> int:
    """Return how many mentions of objects the image with more of them has."""
    sides = Counter[int]()
    for claim in CLAIMS.validate_json(claims):
        if claim.kind in MENTIONING:
            sides[claim.side] += 1
    return max(sides.values(), default=0)
