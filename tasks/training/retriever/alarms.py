"""Watch what the retriever proposes, and report when it goes wrong, in words for a page and numbers for a plot (ours).

* Collapse: the entropy of q, as a share of that of equal chances, stays below a bound: every pair gets the one text.
* Generic negatives: one text is a large part of all proposals, as "more people in parking lot" would be (paper 000,
  Fig. 5c).
* True negatives: where the truth is known, the share of proposals that are accidentally true of their pair. The policy
  gives them what they deserve, a high probability, and the retriever is rewarded for it.

Looks at the last ``WINDOW`` proposals. Reads and writes nothing.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from pairwright.tasks.training.retriever.material import TRUE, UNKNOWN, KnownTruth
from pairwright.tasks.training.retriever.pool import NONE
from pairwright.tasks.training.retriever.retriever import Proposal

WINDOW = 2048
"""Negatives that are looked back on."""
LEAST = 128
"""Negatives, and ``FEWEST`` batches, before anything is said."""
FEWEST = 20
MOST_COMMON = 0.2
"""A text that makes so much of the proposals is generic, unless the pool is so small that a fair share is near it."""
FAIR = 5
"""How many times its fair share a text must have."""
MOST_TRUE = 0.1
"""Share of known negatives that may be true."""
TOP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonText:
    """Text that is proposed often."""

    text: str
    count: int
    pairs: int
    """For how many different rows."""


@dataclass(kw_only=True)
class Watch:
    """Watch on every proposal that is learnt from."""

    texts: tuple[str, ...]
    """The pool's."""
    min_entropy: float
    truth: KnownTruth | None = None
    """``None``: nothing is known."""
    _seen: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Text, row, and whether it is true."""
    _shares: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def see(self, proposal: Proposal) -> dict[str, float]:
        """Take in a batch's negatives; return the metrics of the window."""
        verdicts = self.truth.of(proposal.places, proposal.ids) if self.truth else None
        for row, place in enumerate(proposal.places.tolist()):
            for column, number in enumerate(proposal.ids[row].tolist()):
                if number != NONE:
                    self._seen.append((number, place, int(verdicts[row, column]) if verdicts is not None else UNKNOWN))
        if (proposal.ids != NONE).any():
            self._shares.append(proposal.metrics["retriever/entropy share"])
        return self.metrics()

    def metrics(self) -> dict[str, float]:
        """Return ``retriever/most common share`` and, where anything is known, ``retriever/true share``."""
        found: dict[str, float] = {}
        if self._seen:
            found["retriever/most common share"] = self.common()[0].count / len(self._seen)
        known = [verdict for _, _, verdict in self._seen if verdict != UNKNOWN]
        if known:
            found["retriever/true share"] = sum(verdict == TRUE for verdict in known) / len(known)
        return found

    def common(self) -> list[CommonText]:
        """Return the texts that are proposed most, most frequent first."""
        counts = Counter(number for number, _, _ in self._seen)
        pairs = Counter(number for number, _ in {(number, place) for number, place, _ in self._seen})
        top = sorted(counts, key=lambda number: (-counts[number], number))[:TOP]
        return [CommonText(text=self.texts[n], count=counts[n], pairs=pairs[n]) for n in top]

    def alarms(self) -> dict[str, str]:
        """Return what is wrong now: names of alarms, with what to do; nothing while little was seen."""
        if len(self._seen) < LEAST or len(self._shares) < FEWEST:
            return {}
        found: dict[str, str] = {}
        latest, first = list(self._shares)[-FEWEST:], self.common()[0]
        if max(latest) < min(self.min_entropy, 1):
            found["collapse"] = (
                f"the retriever's choice has {sum(latest) / len(latest):.1%} of the entropy of a uniform one, in each "
                f"of the last {FEWEST} batches less than adpo.min_entropy ({self.min_entropy:.0%}): every pair gets "
                "nearly always the same text. Raise adpo.temperature, or lower adpo.retriever_learning_rate"
            )
        share = first.count / len(self._seen)
        if share > max(MOST_COMMON, FAIR / max(len(self.texts), 1)) and first.pairs > 1:
            found["generic negatives"] = (
                f"one text is {share:.0%} of the last {len(self._seen)} negatives, for {first.pairs} different pairs: "
                f"it may be true of many, or say nothing: {first.text[:200]!r}"
            )
        true = self.metrics().get("retriever/true share", 0.0)
        if true > MOST_TRUE:
            found["true negatives"] = (
                f"{true:.0%} of the negatives that can be checked are true of their pair: the policy is taught that "
                "true texts are wrong. Raise adpo.temperature, or take fewer adpo.candidates"
            )
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return what was seen."""
        return {"seen": [list(one) for one in self._seen], "shares": list(self._shares)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what another one saw."""
        self._seen = deque(((a, b, c) for a, b, c in state["seen"]), maxlen=WINDOW)
        self._shares = deque(state["shares"], maxlen=WINDOW)
