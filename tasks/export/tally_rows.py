"""Selection of the preferences to export, and counts of the rows that are read and written."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pairwright.schemas.config import Profile
from pairwright.schemas.decisions import ACCEPTED, Decision
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.images.plain import PLAIN_MARK, PlainImages
from pairwright.tasks.store.ledger import Counts

UNSTATED = "unstated"  # licence of images without a stated one

NONE_REJECTED = (
    "--format hf holds rows without one. More pairs give more texts to retrieve, "
    "and a served model makes others: "
    "--set counterfactuals.enabled=true, --set sampled_texts.enabled=true"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Conditions that all apply to the exported preferences; an empty one allows anything.

    Names ignore case.
    """

    licences: tuple[str, ...] = ()
    """Licences that all images must have; ``UNSTATED`` for none."""
    sources: tuple[str, ...] = ()
    """Sources of all images."""
    splits: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Kinds of the row, as named by ``kinds_of``."""
    score: float | None = None
    """Minimum score of the removal in the rejected images; rows without one are left out."""
    accepted: bool = False
    """Whether a person must have accepted or edited the row."""

    def keeps(self, row: PreferenceRow, decision: Decision | None = None) -> bool:
        """Return whether a row, with the decision about it, is exported."""
        is_accepted = decision is not None and decision.verdict in ACCEPTED
        return (
            (is_accepted or not self.accepted)
            and _allows(self.licences, row.licences)
            and _allows(self.sources, row.sources)
            and _allows(self.splits, [row.split])
            and self._has_kind(row)
            and self._has_score(row)
        )

    def _has_kind(self, row: PreferenceRow) -> bool:
        if not self.kinds:
            return True
        return any(_allows(self.kinds, [kind]) for kind in kinds_of(row))

    def _has_score(self, row: PreferenceRow) -> bool:
        if self.score is None:
            return True
        scores = [removal.score for removal in row.removal_scores if removal.chosen]
        return any(score >= self.score for score in scores)


EVERYTHING = Selection()


def kinds_of(row: PreferenceRow) -> set[str]:
    """Return a row's kinds: "pair" or "image", the kind of its texts, how its sides were made."""
    subject = "pair" if len(row.images) > 1 else "image"
    return {subject, row.kind, row.rejected_maker, row.rejected_image_maker} - {""}


def _allows(selected: Collection[str], names: Iterable[str]) -> bool:
    """Return whether all names are selected; without a selection, any are."""
    if not selected:
        return True
    allowed = {name.lower() for name in selected}
    return all((name or UNSTATED).lower() in allowed for name in names)


@dataclass(frozen=True, kw_only=True)
class ExportedDataset:
    """Exported dataset."""

    name: str
    version: str  # "version 3", or the state of the tables
    counts: Sequence[Counts]
    profile: Profile
    numbers: Sequence[str] = ()  # measures of the whole dataset's texts, a sentence each
    health: Sequence[tuple[str, str, str, bool]] = ()
    """Measures of its preferences: name, value, meaning, and whether it is within its bound."""
    prompts: Sequence[str] = ()  # files of ``prompts/`` that its stages use
    notes: Sequence[str] = ()  # what its users must know, such as texts of several models


@dataclass
class Tally:
    """Counts of the rows that are read and written."""

    sizes: dict[str, tuple[int, int]] = field(
        default_factory=dict[str, tuple[int, int]]
    )  # rows and bytes by split
    images: set[bytes] = field(
        default_factory=set[bytes]
    )  # keys of the counted images: about 100 bytes per image
    plain: PlainImages = field(default_factory=PlainImages)
    licences: Counter[str] = field(
        default_factory=Counter[str]
    )  # images by licence, each once; likewise by source
    sources: Counter[str] = field(default_factory=Counter[str])
    writers: Counter[str] = field(default_factory=Counter[str])
    makers: Counter[str] = field(default_factory=Counter[str])
    rejected_texts: int = 0
    rejected_images: int = 0
    crops: int = 0  # rows whose rejected image is a random crop
    rows: int = 0
    pairs: int = 0  # rows about two images; others are about one
    unheld: Counter[str] = field(
        default_factory=Counter[str]
    )  # rows that the form cannot hold, by reason
    example: PreferenceRow | None = None  # the first row, as an example
    notes: Sequence[str] = ()  # remarks on the exported dataset
    left_out: int = 0  # rows that were not selected
    left_out_of: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Properties of these rows: "licences", "sources", "splits", ..., each with the existing
    names."""
    decided: Counter[str] = field(default_factory=Counter[str])
    """Selected rows by decision: "accept", "edit", "reject", or empty: none. Rejected rows are not
    written."""

    @property
    def seen(self) -> int:
        """Return the number of rows read."""
        return self.rows + self.left_out + self.unheld.total() + self.decided["reject"]

    def say_decided(self) -> str:
        """Return the decisions about the selected rows in words; empty: there is none."""
        texts = {
            "accept": "accepted as they are",
            "edit": "edited",
            "reject": "rejected and left out",
        }
        counts: list[str] = []
        for verdict, text in texts.items():
            if self.decided[verdict]:
                counts.append(f"{self.decided[verdict]:,} {text}")
        if not counts:
            return ""
        rest = f"; {self.decided['']:,} not decided" if self.decided[""] else ""
        return f"{', '.join(counts)}{rest}"

    def say_rewritten(self) -> str:
        """Return how many images were written anew, and their size; empty: none was."""
        count = len(self.plain.sizes)
        if not count:
            return ""
        size = self.plain.total_bytes / 1e6
        which = "image was" if count == 1 else "images were"
        return f"{count:,} {which} written anew as PNG without loss ({size:,.1f} MB)"

    def count_left_out(self, row: PreferenceRow, verdict: str = "") -> None:
        """Count a row that is not selected, with the decision about it."""
        self.left_out += 1
        properties = {
            "licences": {name or UNSTATED for name in row.licences},
            "sources": set(row.sources),
            "splits": {row.split},
            "kinds": kinds_of(row),
            "people's verdicts": {verdict or "none"},
        }
        for name, values in properties.items():
            self.left_out_of.setdefault(name, set()).update(values)

    def count_row(self, row: PreferenceRow) -> None:
        """Count a row that is written."""
        self.rows += 1
        self.example = self.example or row
        self.pairs += len(row.images) > 1
        for key, licence, source in zip(row.image_keys, row.licences, row.sources, strict=True):
            name = bytes.fromhex(key.removesuffix(PLAIN_MARK))
            if name not in self.images:
                self.images.add(name)
                self.licences[licence] += 1
                self.sources[source] += 1
        self.writers[row.chosen_model] += 1
        self.rejected_texts += bool(row.rejected)
        self.rejected_images += bool(row.rejected_images)
        self.crops += row.rejected_image_maker == "crop"
        if row.rejected:
            self.makers[row.rejected_maker] += 1

    def explain_empty(self, form: str) -> str:
        """Return why no row was written."""
        if not self.seen:
            return "the dataset has no rows to export"
        if self.unheld:
            counts = [f"{reason} ({count:,})" for reason, count in self.unheld.most_common()]
            hint = f". {NONE_REJECTED}" if "no rejected text" in self.unheld else ""
            return (
                f"none of the {self.unheld.total():,} selected rows can be held by "
                f"--format {form}: {', '.join(counts)}{hint}"
            )
        rejected = self.decided["reject"]
        if rejected:
            return f"people rejected all of the {rejected:,} selected rows (`pairwright decide`)"
        choices: list[str] = []
        for name, values in self.left_out_of.items():
            choices.append(f"{name}: {', '.join(sorted(values))}")
        return (
            f"none of the {self.left_out:,} rows of the dataset is selected; "
            f"choose from {'; '.join(choices)}"
        )
