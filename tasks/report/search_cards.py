"""Search the cards of a dataset: words, filters, an order, and a page of hits. Every value is bound, none is SQL.

Pages start at a key, not at an offset (keyset pagination), so paging stays right while decisions
change the hits.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import urlencode

import duckdb
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pairwright.schemas.decisions import JUDGEMENTS, Decision, Decisions, say_errors
from pairwright.schemas.rows import PairRow
from pairwright.tasks.report.card_table import PLAIN
from pairwright.tasks.store.decision_table import Sorted, sort_by_keys

MOST_WORDS = 20
TERM = re.compile(r'"([^"]+)"|(\S+)')
NONE = "none"  # filter value for missing ones: no preference, no licence

Number = Annotated[
    Annotated[float, Field(ge=-10, le=10)] | None,
    BeforeValidator(lambda value: None if value == "" else value),
]
Name = Annotated[str, Field(max_length=200)]
Key = Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")]
Order = Literal["key", "similarity", "-similarity", "score", "-score", "gap", "-gap"]
ORDERS: Mapping[str, str] = {
    "key": "mixed",
    "-similarity": "most similar first",
    "similarity": "least similar first",
    "-score": "best removal first",
    "score": "worst removal first",
    "-gap": "chosen longer first",
    "gap": "rejected longer first",
}
LAST = 1e9  # sort value of cards without a value, which come last in both directions


class PageQuery(BaseModel):
    """Query string of a page."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> tuple[Self, str]:
        """Return the parsed query and, if it is invalid, the default one with the error."""
        try:
            return cls.model_validate({**query}), ""
        except ValidationError as error:
            return cls(), say_errors(error)

    def query(self, **changes: Any) -> str:
        """Return the query string with changes, without default values."""
        return urlencode(self.model_copy(update=changes).model_dump(exclude_defaults=True))


class Search(PageQuery):
    """Query string of a page of cards."""

    q: Annotated[str, Field(max_length=500)] = (
        ""  # words, or "words in quotes"; all must be in some text of the card
    )
    split: Name = ""
    licence: Name = ""  # licence of one of its images; "none": not stated
    source: Name = ""
    kind: Name = (
        ""  # origin of the pair, or maker of the rejected text or image; "none": no preference
    )
    reason: Name = ""
    about: Key = ""  # key of a card, or of an image on it
    decision: Literal["", "undecided", "decided", "accept", "reject", "edit"] = ""
    # whether to show a sample of all candidates of mining, to judge them, instead of the cards
    judge: bool = False
    unjudged: bool = (
        False  # whether to show only those of the sample that the annotator has not judged
    )
    least: Number = None  # least similarity
    most: Number = None
    low_least: Number = None  # bound of the lowest similarity of any embedder
    low_most: Number = None
    high_least: Number = None
    high_most: Number = None
    score_least: Number = None
    score_most: Number = None
    order: Order = "key"
    size: Annotated[int, Field(ge=1, le=50)] = 10
    after: Key = ""
    before: Key = ""

    @property
    def words(self) -> list[str]:
        """Return the required words."""
        return [quoted or word for quoted, word in TERM.findall(self.q)][:MOST_WORDS]


class Hits(NamedTuple):
    """Page of hits."""

    keys: list[str]
    subjects: list[str]  # subjects of the cards: a pair's own key, a preference's image
    first: int  # numbers of the first and the last card among all hits, from 1
    last: int
    total: int


@dataclass
class CardSearch:
    """Search in an open file of cards; not thread-safe."""

    database: duckdb.DuckDBPyConnection
    _words: Sequence[
        str
    ] = ()  # words of the last search, with its cards in the table ``found`` for further pages

    def set_decisions(self, decisions: Decisions, annotator: str = "") -> None:
        """Store the current decisions, and the annotator's judgements."""
        given = {
            "decided": {key: one.verdict for key, one in decisions.by_key.items()},
            "judged": decisions.judged,
        }
        given["own"] = decisions.by_annotator.get(annotator, {})
        for table, verdicts in given.items():
            self.database.execute(
                f"CREATE OR REPLACE TEMP TABLE {table} (key VARCHAR, verdict VARCHAR)"
            )
            columns = [list(verdicts.keys()), list(verdicts.values())]
            self.database.execute(
                f"INSERT INTO {table} SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[])", columns
            )

    def facets(self) -> dict[str, list[tuple[str, int]]]:
        """Return the values of each filter with the number of their cards, most frequent first."""
        lists = {
            **{name: f"list_distinct({name}s)" for name in ("licence", "source", "kind")},
            "split": "[split]",
            "reason": "CASE WHEN NOT whole THEN [reason] END",
        }
        query = """SELECT value, count(*) FROM (SELECT unnest({}) AS value FROM cards WHERE NOT candidate)
            WHERE value != '' GROUP BY ALL ORDER BY 2 DESC, 1 LIMIT 100"""
        return {
            name: self.database.execute(query.format(listed)).fetchall()
            for name, listed in lists.items()
        }

    def unpaired(self, keys: Sequence[str]) -> dict[str, PairRow]:
        """Return the candidates among some cards as the pairs that they could be."""
        query = "SELECT key, first, second, embedders, similarities FROM candidates WHERE key IN (SELECT unnest(?))"
        found = self.database.execute(query, [list(keys)]).fetchall() if keys else []
        return {
            key: PairRow(
                key=key, source_key=key, subject=key, first=first, second=second, origin="candidate", anchor="",
                cluster=-1, embedders=tuple(embedders), similarities=tuple(similarities),
            )
            for key, first, second, embedders, similarities in found
        }  # fmt: skip

    def count(self) -> int:
        """Return the number of cards."""
        return self._one("SELECT count(*) FROM cards WHERE NOT candidate")[0]

    def sort(self, decisions: Sequence[Decision]) -> Sorted:
        """Return the decisions, sorted by whether their card exists."""
        query = """SELECT list(decided) FILTER (whole), list(key) FILTER (second IS NOT NULL AND NOT candidate),
            list(key) FILTER (second IS NOT NULL) FROM cards WHERE list_contains(?, decided) OR list_contains(?, key)"""
        asked = [one.key for one in decisions]
        known, both, shown = (set[str](keys or ()) for keys in self._one(query, [asked, asked]))
        apart = sort_by_keys(
            [one for one in decisions if one.verdict not in JUDGEMENTS], known, both
        )
        judgements = [one for one in decisions if one.verdict in JUDGEMENTS]
        apart.known.extend(one for one in judgements if one.key in shown)
        apart.unknown.extend(one for one in judgements if one.key not in shown)
        return apart

    def has(self) -> dict[str, bool]:
        """Return for each column that may be empty whether any card has a value in it."""
        counts = self._one("SELECT count(similarity), count(score), count(gap) FROM cards")
        return {
            name: count > 0
            for name, count in zip(("similarity", "score", "gap"), counts, strict=True)
        }

    def find(self, search: Search) -> Hits:
        """Return a page of the hits."""
        column = search.order.removeprefix("-")
        value = (
            "0.0"
            if column == "key"
            else f"coalesce({'-' if search.order.startswith('-') else ''}{column}, {LAST})"
        )
        which, values = self._conditions(search)
        self.database.execute(
            f"""CREATE OR REPLACE TEMP TABLE hits AS SELECT c.key, c.subject, ({value})::DOUBLE AS value
            FROM cards c LEFT JOIN decided d ON d.key = c.decided LEFT JOIN decided e ON e.key = c.key,
            LATERAL (SELECT coalesce(d.verdict, e.verdict) AS verdict) v WHERE {which}""",
            values,
        )
        query = f"SELECT ({value})::DOUBLE, key FROM cards WHERE key = ?"
        place = self.database.execute(query, [search.after or search.before]).fetchone()
        found = self._page(place, search.size, back=not search.after)
        if (
            place and not search.after and len(found) < search.size
        ):  # no full page before: show the first one
            found = self._page(None, search.size)
        first = (found[0][2], found[0][0]) if found else (0.0, "")
        before, total = self._one(
            "SELECT count(*) FILTER ((value, key) < (?, ?)), count(*) FROM hits", first
        )
        keys, subjects = [key for key, _, _ in found], [subject for _, subject, _ in found]
        return Hits(keys, subjects, before + 1, before + len(keys), total)

    def _page(
        self, place: tuple[Any, ...] | None, size: int, *, back: bool = False
    ) -> list[tuple[str, str, float]]:
        """Return the hits after, or before, a place (value and key); without a place, the first ones."""
        sign, direction = ("<", "DESC") if place and back else (">", "ASC")
        which = f"WHERE (value, key) {sign} (?, ?)" if place else ""
        query = (
            f"SELECT * FROM hits {which} ORDER BY value {direction}, key {direction} LIMIT {size:d}"
        )
        found = self.database.execute(query, place or ()).fetchall()
        return found[::-1] if direction == "DESC" else found

    def _conditions(self, search: Search) -> tuple[str, list[Any]]:
        licence, source = ("" if one == NONE else one for one in (search.licence, search.source))
        verdicts = {
            "undecided": ("v.verdict IS NULL", []),
            "decided": ("v.verdict IS NOT NULL", []),
        }
        shown = "(SELECT number FROM images WHERE key = ?)"
        kind = (
            ("NOT c.whole", [])
            if search.kind == NONE
            else ("list_contains(c.kinds, ?)", [search.kind])
        )
        terms: list[tuple[Any, tuple[str, list[Any]]]] = [
            (True, ("c.sampled" if search.judge else "NOT c.candidate", [])),
            (
                search.about,
                (f"c.key = ? OR c.first IN {shown} OR c.second IN {shown}", [search.about] * 3),
            ),
            (search.judge and search.unjudged, ("c.key NOT IN (SELECT key FROM own)", [])),
            (search.split, ("c.split = ?", [search.split])),
            (search.licence, ("list_contains(c.licences, ?)", [licence])),
            (search.source, ("list_contains(c.sources, ?)", [source])),
            (search.kind, kind),
            (search.reason, ("NOT c.whole AND c.reason = ?", [search.reason])),
            (search.decision, verdicts.get(search.decision, ("v.verdict = ?", [search.decision]))),
        ]
        asked = [term for is_asked, term in terms if is_asked]
        for column, sign, bound in (
            ("similarity", ">=", search.least),
            ("similarity", "<=", search.most),
            ("score", ">=", search.score_least),
            ("score", "<=", search.score_most),
            ("low", ">=", search.low_least),
            ("low", "<", search.low_most),
            ("high", ">=", search.high_least),
            ("high", "<", search.high_most),
        ):
            if bound is not None:
                asked.append((f"c.{column} {sign} ?", [bound]))
        if search.words:
            self._find_words(search.words)
            asked.append(("c.number IN (SELECT number FROM found)", []))
        return " AND ".join(f"({one})" for one, _ in asked), [
            value for _, some in asked for value in some
        ]

    def _find_words(self, words: Sequence[str]) -> None:
        if words == self._words:
            return
        has = f"contains({{}}, {PLAIN.format('?')})"
        shown = f"(SELECT number FROM images WHERE {has.format('words')})"
        each = f"({has.format('t.words')} OR c.first IN {shown} OR c.second IN {shown})"
        self.database.execute(
            "CREATE OR REPLACE TEMP TABLE found AS SELECT c.number FROM cards c JOIN texts t USING (number) "
            f"WHERE {' AND '.join([each] * len(words))}",
            [word for word in words for _ in range(3)],
        )
        self._words = words

    def _one(self, query: str, values: Sequence[Any] = ()) -> tuple[Any, ...]:
        found = self.database.execute(query, list(values)).fetchone()
        assert found is not None
        return found
