"""Search the cards of a dataset: words, filters, an order, and a page of hits.

Every value is bound, none is SQL. Pages start at a key, not at an offset (keyset pagination), so
paging stays right while decisions change the hits.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
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


def _empty_to_none(value: Any) -> Any:
    return None if value == "" else value


Number = Annotated[
    Annotated[float, Field(ge=-10, le=10)] | None,
    BeforeValidator(_empty_to_none),
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

    def query_string(self, **changes: Any) -> str:
        """Return the query string with changes, without default values."""
        return urlencode(self.model_copy(update=changes).model_dump(exclude_defaults=True))


class Search(PageQuery):
    """Query string of a page of cards."""

    # words, or "words in quotes"; all must be in some text of the card
    q: Annotated[str, Field(max_length=500)] = ""
    split: Name = ""
    licence: Name = ""  # licence of one of its images; "none": not stated
    source: Name = ""
    # origin of the pair, or maker of the rejected text or image; "none": no preference
    kind: Name = ""
    reason: Name = ""
    about: Key = ""  # key of a card, or of an image on it
    decision: Literal["", "undecided", "decided", "accept", "reject", "edit"] = ""
    # whether to show a sample of all candidates of mining, to judge them, instead of the cards
    judge: bool = False
    # whether to show only those of the sample that the annotator has not judged
    unjudged: bool = False
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


class Hit(NamedTuple):
    """Card with the value that it is sorted by."""

    key: str
    subject: str
    value: float


class Hits(NamedTuple):
    """Page of hits."""

    keys: list[str]
    subjects: list[str]  # subjects of the cards: a pair's own key, a preference's image
    first: int  # numbers of the first and the last card among all hits, from 1
    last: int
    total: int


Condition = tuple[str, list[Any]]
"""SQL condition with its bound values."""


@dataclass
class CardSearch:
    """Search in an open file of cards; not thread-safe."""

    database: duckdb.DuckDBPyConnection
    _words: Sequence[str] = ()
    """Words of the last search, with its cards in the table ``found`` for further pages."""

    def set_decisions(self, decisions: Decisions, annotator: str = "") -> None:
        """Store the current decisions, and the annotator's judgements."""
        verdicts = {key: decision.verdict for key, decision in decisions.by_key.items()}
        self._set_verdicts("decided", verdicts)
        self._set_verdicts("judged", decisions.judged)
        self._set_verdicts("own", decisions.by_annotator.get(annotator, {}))

    def _set_verdicts(self, table: str, verdicts: Mapping[str, str]) -> None:
        self.database.execute(
            f"CREATE OR REPLACE TEMP TABLE {table} (key VARCHAR, verdict VARCHAR)"
        )
        self.database.execute(
            f"INSERT INTO {table} SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[])",
            [list(verdicts.keys()), list(verdicts.values())],
        )

    def facets(self) -> dict[str, list[tuple[str, int]]]:
        """Return the values of each filter with the number of their cards, most frequent first."""
        lists = {
            "licence": "list_distinct(licences)",
            "source": "list_distinct(sources)",
            "kind": "list_distinct(kinds)",
            "split": "[split]",
            "reason": "CASE WHEN NOT whole THEN [reason] END",
        }
        query = """SELECT value, count(*)
            FROM (SELECT unnest({}) AS value FROM cards WHERE NOT candidate)
            WHERE value != '' GROUP BY ALL ORDER BY 2 DESC, 1 LIMIT 100"""
        facets: dict[str, list[tuple[str, int]]] = {}
        for name, values in lists.items():
            facets[name] = self.database.execute(query.format(values)).fetchall()
        return facets

    def unpaired(self, keys: Sequence[str]) -> dict[str, PairRow]:
        """Return the candidates among some cards as the pairs that they could be."""
        if not keys:
            return {}
        query = """SELECT key, first, second, embedders, similarities FROM candidates
            WHERE key IN (SELECT unnest(?))"""
        pairs: dict[str, PairRow] = {}
        rows = self.database.execute(query, [list(keys)]).fetchall()
        for key, first, second, embedders, similarities in rows:
            pairs[key] = PairRow(
                key=key,
                source_key=key,
                subject=key,
                first=first,
                second=second,
                origin="candidate",
                anchor="",
                cluster=-1,
                embedders=tuple(embedders),
                similarities=tuple(similarities),
            )
        return pairs

    def count_cards(self) -> int:
        """Return the number of cards."""
        return self._fetch_row("SELECT count(*) FROM cards WHERE NOT candidate")[0]

    def sort(self, decisions: Sequence[Decision]) -> Sorted:
        """Return the decisions, sorted by whether their card exists."""
        query = """SELECT list(decided) FILTER (whole),
                list(key) FILTER (second IS NOT NULL AND NOT candidate),
                list(key) FILTER (second IS NOT NULL)
            FROM cards WHERE list_contains(?, decided) OR list_contains(?, key)"""
        keys = [decision.key for decision in decisions]
        lists = self._fetch_row(query, [keys, keys])
        preferences, pairs, judgeable = (set[str](listed or ()) for listed in lists)
        verdicts = [decision for decision in decisions if decision.verdict not in JUDGEMENTS]
        result = sort_by_keys(verdicts, preferences, pairs)
        for decision in decisions:
            if decision.verdict not in JUDGEMENTS:
                continue
            if decision.key in judgeable:
                result.known.append(decision)
            else:
                result.unknown.append(decision)
        return result

    def filled_columns(self) -> dict[str, bool]:
        """Return for each column that may be empty whether any card has a value in it."""
        query = "SELECT count(similarity), count(score), count(gap) FROM cards"
        similarity, score, gap = self._fetch_row(query)
        return {"similarity": similarity > 0, "score": score > 0, "gap": gap > 0}

    def search(self, search: Search) -> Hits:
        """Return a page of the hits."""
        value = _sort_value(search.order)
        condition, values = self._conditions(search)
        self.database.execute(
            f"""CREATE OR REPLACE TEMP TABLE hits
            AS SELECT c.key, c.subject, ({value})::DOUBLE AS value
            FROM cards c
                LEFT JOIN decided d ON d.key = c.decided LEFT JOIN decided e ON e.key = c.key,
                LATERAL (SELECT coalesce(d.verdict, e.verdict) AS verdict) v
            WHERE {condition}""",
            values,
        )
        query = f"SELECT ({value})::DOUBLE, key FROM cards WHERE key = ?"
        start = self.database.execute(query, [search.after or search.before]).fetchone()
        hits = self._page(start, search.size, back=not search.after)
        if start and not search.after and len(hits) < search.size:
            hits = self._page(None, search.size)  # no full page before: show the first one
        first = (hits[0].value, hits[0].key) if hits else (0.0, "")
        query = "SELECT count(*) FILTER ((value, key) < (?, ?)), count(*) FROM hits"
        before, total = self._fetch_row(query, first)
        return Hits(
            keys=[hit.key for hit in hits],
            subjects=[hit.subject for hit in hits],
            first=before + 1,
            last=before + len(hits),
            total=total,
        )

    def _page(
        self,
        start: tuple[Any, ...] | None,
        size: int,
        *,
        back: bool = False,
    ) -> list[Hit]:
        """Return the hits after, or before, a value and key; without these, the first ones."""
        backwards = start is not None and back
        direction = "DESC" if backwards else "ASC"
        sign = "<" if backwards else ">"
        condition = f"WHERE (value, key) {sign} (?, ?)" if start else ""
        query = f"""SELECT * FROM hits {condition}
            ORDER BY value {direction}, key {direction} LIMIT {size:d}"""
        rows = self.database.execute(query, start or ()).fetchall()
        hits = [Hit(*row) for row in rows]
        return hits[::-1] if backwards else hits

    def _conditions(self, search: Search) -> Condition:
        """Return the conditions of a search as one, and fill the table ``found``."""
        conditions = [*_choice_conditions(search), *_bound_conditions(search)]
        if search.words:
            self._find_words(search.words)
            conditions.append(("c.number IN (SELECT number FROM found)", []))
        values: list[Any] = []
        for _, condition_values in conditions:
            values += condition_values
        return " AND ".join(f"({condition})" for condition, _ in conditions), values

    def _find_words(self, words: Sequence[str]) -> None:
        if words == self._words:
            return
        contains = f"contains({{}}, {PLAIN.format('?')})"
        images = f"(SELECT number FROM images WHERE {contains.format('words')})"
        condition = f"({contains.format('t.words')} OR c.first IN {images} OR c.second IN {images})"
        values: list[str] = []
        for word in words:
            values += [word] * 3
        self.database.execute(
            f"""CREATE OR REPLACE TEMP TABLE found AS
            SELECT c.number FROM cards c JOIN texts t USING (number)
            WHERE {" AND ".join([condition] * len(words))}""",
            values,
        )
        self._words = words

    def _fetch_row(self, query: str, values: Sequence[Any] = ()) -> tuple[Any, ...]:
        row = self.database.execute(query, list(values)).fetchone()
        assert row is not None
        return row


def _sort_value(order: Order) -> str:
    """Return the expression that hits are sorted by."""
    column = order.removeprefix("-")
    if column == "key":
        return "0.0"
    sign = "-" if order.startswith("-") else ""
    return f"coalesce({sign}{column}, {LAST})"


def _choice_conditions(search: Search) -> Iterator[Condition]:
    """Yield the conditions of the chosen filters."""
    yield "c.sampled" if search.judge else "NOT c.candidate", []
    if search.about:
        image = "(SELECT number FROM images WHERE key = ?)"
        condition = f"c.key = ? OR c.first IN {image} OR c.second IN {image}"
        yield condition, [search.about] * 3
    if search.judge and search.unjudged:
        yield "c.key NOT IN (SELECT key FROM own)", []
    if search.split:
        yield "c.split = ?", [search.split]
    if search.licence:
        yield "list_contains(c.licences, ?)", [_none_to_empty(search.licence)]
    if search.source:
        yield "list_contains(c.sources, ?)", [_none_to_empty(search.source)]
    if search.kind:
        yield _kind_condition(search.kind)
    if search.reason:
        yield "NOT c.whole AND c.reason = ?", [search.reason]
    if search.decision:
        yield _decision_condition(search.decision)


def _none_to_empty(name: str) -> str:
    return "" if name == NONE else name


def _kind_condition(kind: str) -> Condition:
    if kind == NONE:
        return "NOT c.whole", []
    return "list_contains(c.kinds, ?)", [kind]


def _decision_condition(decision: str) -> Condition:
    if decision == "undecided":
        return "v.verdict IS NULL", []
    if decision == "decided":
        return "v.verdict IS NOT NULL", []
    return "v.verdict = ?", [decision]


def _bound_conditions(search: Search) -> Iterator[Condition]:
    """Yield the conditions of the numbers' bounds."""
    bounds = (
        ("c.similarity >= ?", search.least),
        ("c.similarity <= ?", search.most),
        ("c.score >= ?", search.score_least),
        ("c.score <= ?", search.score_most),
        ("c.low >= ?", search.low_least),
        ("c.low < ?", search.low_most),
        ("c.high >= ?", search.high_least),
        ("c.high < ?", search.high_most),
    )
    for condition, bound in bounds:
        if bound is not None:
            yield condition, [bound]
