"""Make the table for searching, filtering and sorting the cards of a dataset.

There is one card per pair, or per preference about one image; the latter has the columns of pairs,
without a second image. Reads narrow columns and texts of all live rows; writes DuckDB tables, about
300 bytes and the compressed texts per card.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import duckdb
import pyarrow as pa

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.rows import (
    CaptionRow,
    DifferenceRow,
    ImageRow,
    PairRow,
    PreferenceRow,
    Row,
    SplitRow,
    make_key,
)
from pairwright.tasks.report.query_tables import WORDS, Tables

WIDTH = 0.02  # width of a bin of similarity
PER_BIN = 40  # candidates of a bin to judge
PLAIN = "lower(nfc_normalize({}))"  # normal form of stored and searched texts


class TableColumns(NamedTuple):
    """Columns to read of a table, and the SQL expressions to keep of them."""

    row_type: type[Row]
    columns: Sequence[str]
    expressions: str
    words: str  # expression of all words; NULL: none


READ: Mapping[str, TableColumns] = {
    "pairs": TableColumns(
        PairRow,
        ("key", "first", "second", "origin", "similarity", "human_differences", "instruction"),
        "key, first, second, origin, similarity::DOUBLE AS similarity",
        PLAIN.format(
            "concat_ws(chr(10), array_to_string(human_differences, chr(10)), instruction)"
        ),
    ),
    "images": TableColumns(
        ImageRow,
        ("key", "name", "captions", "source", "licence"),
        "key, source, licence, name",
        PLAIN.format("concat_ws(chr(10), name, array_to_string(captions, chr(10)))"),
    ),
    "captions": TableColumns(CaptionRow, ("subject", "text"), "subject", PLAIN.format("text")),
    "differences": TableColumns(
        DifferenceRow, ("subject", "text"), "subject", PLAIN.format("text")
    ),
    "splits": TableColumns(SplitRow, ("subject", "split"), "subject, split", "NULL"),
    "preferences": TableColumns(
        PreferenceRow,
        (
            "key",
            "subject",
            "chosen",
            "rejected",
            "rejected_maker",
            "rejected_image_maker",
            "negatives",
            "removal_scores",
            "split",
        ),
        f"""key, subject, split, rejected_maker AS maker, rejected_image_maker AS image_maker,
        CASE WHEN rejected != ''
            THEN {WORDS.format("chosen")} - {WORDS.format("rejected")} END AS gap,
        list_max(list_transform(
            list_filter(removal_scores, lambda score: score.chosen), lambda score: score.score
        ))::DOUBLE AS score""",
        PLAIN.format(
            "concat_ws(chr(10), chosen, rejected, "
            "array_to_string(list_transform(negatives, lambda negative: negative.text), chr(10)))"
        ),
    ),
}
"""Content of the cards, by table."""
NEIGHBOURS = ("subject", "embedders", "neighbours", "similarities")
TABLES = (*READ, "neighbours", "given_preferences")

IMAGES = """
CREATE TABLE images AS SELECT row_number() OVER () AS number, i.key, i.source, i.licence, i.name,
    concat_ws(chr(10), i.words, c.words) AS words
FROM s_images i
    LEFT JOIN (SELECT subject, string_agg(words, chr(10)) AS words FROM s_captions GROUP BY ALL) c
    ON c.subject = i.key"""
PAIRS = """
CREATE TEMP TABLE all_cards AS SELECT p.key, p.key AS subject, coalesce(q.key, p.key) AS decided,
    a.number AS first, b.number AS second, coalesce(q.split, s.split, '') AS split,
    [a.licence, b.licence] AS licences, [a.source, b.source] AS sources,
    [p.origin, q.maker, q.image_maker] AS kinds, q.key IS NOT NULL AS whole,
    coalesce(o.reason, '') AS reason, p.similarity, n.low, n.high,
    n.first IS NOT NULL AS sampled, false AS candidate, q.score, q.gap,
    concat_ws(chr(10), q.words, d.words, p.words) AS words
FROM s_pairs p
    LEFT JOIN s_preferences q ON q.subject = p.key
    LEFT JOIN s_splits s ON s.subject = p.key
    LEFT JOIN
        (SELECT subject, string_agg(words, chr(10)) AS words FROM s_differences GROUP BY ALL) d
        ON d.subject = p.key AND NOT contains(coalesce(q.words, ''), d.words)
    LEFT JOIN s_neighbours n
        ON n.first = least(p.first, p.second) AND n.second = greatest(p.first, p.second)
    LEFT JOIN reasons o ON o.key = p.key
    LEFT JOIN images a ON a.key = p.first
    LEFT JOIN images b ON b.key = p.second"""
SINGLES = """
CREATE TEMP TABLE all_cards AS SELECT q.key, q.subject, q.key AS decided, a.number AS first,
    NULL::BIGINT AS second, coalesce(q.split, '') AS split, [a.licence] AS licences,
    [a.source] AS sources, [q.maker, q.image_maker] AS kinds, true AS whole, '' AS reason,
    NULL::DOUBLE AS similarity, NULL::DOUBLE AS low, NULL::DOUBLE AS high,
    false AS sampled, false AS candidate, q.score, q.gap, q.words
FROM s_preferences q JOIN images a ON a.key = q.subject"""

JOINT = """
CREATE OR REPLACE TEMP TABLE joint AS SELECT subject, other, min(value)::DOUBLE AS low,
    max(value)::DOUBLE AS high, any_value(embedders) AS embedders,
    list(value::DOUBLE ORDER BY place) AS similarities
FROM (SELECT subject, embedders, place, unnest(others) AS other, unnest(listed) AS value FROM
    (SELECT subject, embedders, unnest(range(len(embedders))) AS place,
        unnest(neighbours) AS others, unnest(similarities) AS listed FROM chunk))
GROUP BY subject, other HAVING count(*) = max(len(embedders))"""
"""Candidates of every embedder, with their lowest and highest similarity, which mining bounds."""
CELLS = (
    f"floor(low / {WIDTH}) * {WIDTH} + {WIDTH / 2}, floor(high / {WIDTH}) * {WIDTH} + {WIDTH / 2}"
)
SAMPLED = f"""QUALIFY row_number() OVER (
    PARTITION BY floor(low / {WIDTH}) ORDER BY hash(first, second)) <= {PER_BIN}"""
STAGING = (
    "CREATE TEMP TABLE s_counts (low DOUBLE, high DOUBLE, n BIGINT)",
    "CREATE TEMP TABLE s_neighbours (first VARCHAR, second VARCHAR, low DOUBLE, high DOUBLE, "
    "embedders VARCHAR[], similarities DOUBLE[])",
)
SAMPLING = (
    JOINT,
    f"INSERT INTO s_counts SELECT {CELLS}, count(*) FROM joint GROUP BY ALL",
    f"""INSERT INTO s_neighbours
    SELECT least(subject, other) AS first, greatest(subject, other) AS second, low, high,
        embedders, similarities FROM joint {SAMPLED}""",
)
"""Count the candidates of some anchors, and keep a small sample."""
CANDIDATES = (
    f"""CREATE OR REPLACE TEMP TABLE s_neighbours AS SELECT * FROM (
    SELECT first, second, any_value(low) AS low, any_value(high) AS high,
        any_value(embedders) AS embedders, any_value(similarities) AS similarities
    FROM s_neighbours GROUP BY first, second) {SAMPLED}""",
    f"""CREATE TABLE counts AS SELECT floor(low / {WIDTH})::INT AS low,
        floor(high / {WIDTH})::INT AS high, sum(n)::BIGINT AS n FROM s_counts GROUP BY ALL""",
)
UNPAIRED = """
CREATE TABLE candidates AS SELECT make_pair(first, second) AS key, n.* FROM s_neighbours n
    ANTI JOIN s_pairs p
    ON n.first = least(p.first, p.second) AND n.second = greatest(p.first, p.second)"""
CANDIDATE_CARDS = """
INSERT INTO all_cards SELECT n.key, n.key, n.key, a.number, b.number, '', [a.licence, b.licence],
    [a.source, b.source], ['candidate'], false, '', NULL, n.low, n.high, true, true, NULL, NULL, ''
FROM candidates n JOIN images a ON a.key = n.first JOIN images b ON b.key = n.second"""

LAST = (
    "CREATE TABLE cards AS SELECT row_number() OVER (ORDER BY key) AS number, * EXCLUDE (words) "
    "FROM all_cards",
    "CREATE TABLE texts AS SELECT c.number, a.words FROM all_cards a JOIN cards c USING (key) "
    "ORDER BY c.number",
    "CHECKPOINT",
)
REASONS = """SELECT key, any_value(reason) AS reason FROM outcome_preferences
WHERE outcome IN ('dropped', 'failed') GROUP BY key"""

Chunks = Callable[[str, Sequence[str]], Iterable[pa.Table]]


def make_cards(
    tables: Tables,
    database: duckdb.DuckDBPyConnection,
    *,
    watch: Callable[[int], None],
) -> None:
    """Write the tables of a dataset's cards; ``watch`` is called with the number of rows read."""
    reasons = None
    if tables.has_table("preferences") and tables.has_table("pairs"):
        reasons = tables.build.ledger.fetch_table(REASONS)
    write_cards(
        tables.chunks,
        database,
        tables.preferences,
        about_pairs=tables.has_table("pairs"),
        reasons=reasons,
        watch=watch,
    )


class Staging:
    """Temporary tables that the cards are made from.

    ``chunks`` yields columns of a table in batches; ``watch`` is called with the number of rows
    read.
    """

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        chunks: Chunks,
        watch: Callable[[int], None],
    ) -> None:
        self._cursor = cursor
        self._chunks = chunks
        self._watch = watch
        self._rows = 0

    def execute(self, queries: Iterable[str]) -> None:
        """Execute queries in order."""
        for query in queries:
            self._cursor.execute(query)

    def run_queries(
        self,
        name: str,
        columns: Sequence[str],
        queries: Sequence[str],
    ) -> None:
        """Execute queries on each ``chunk`` of a table."""
        for table in self._chunks(name, columns):
            self._cursor.register("chunk", table)
            self.execute(queries)
            self._rows += len(table)
            self._watch(self._rows)

    def copy(self, name: str, source: str) -> None:
        """Copy the kept content of a table into ``s_`` and its name."""
        table = READ[name]
        schema = schema_of(table.row_type)
        fields = [schema.field(column) for column in table.columns]
        query = f"SELECT {table.expressions}, {table.words} AS words FROM chunk"
        self._cursor.register("chunk", pa.schema(fields).empty_table())
        self._cursor.execute(f"CREATE TEMP TABLE s_{name} AS {query}")
        self.run_queries(source, table.columns, [f"INSERT INTO s_{name} {query}"])


def write_cards(
    chunks: Chunks,
    database: duckdb.DuckDBPyConnection,
    preferences: str,
    *,
    about_pairs: bool,
    reasons: pa.Table | None,
    watch: Callable[[int], None],
) -> None:
    """Write the tables of the cards about pairs, or about preferences of one image.

    ``reasons`` (key, reason) say why pairs have no preference.
    """
    if reasons is None:
        empty = pa.array([], pa.string())
        reasons = pa.table({"key": empty, "reason": empty})
    with database.cursor() as cursor:  # its temporary tables are dropped with it
        cursor.create_function("make_pair", _make_pair_key, [str, str], str)
        staging = Staging(cursor, chunks, watch)
        staging.execute(STAGING)
        staging.run_queries("neighbours", NEIGHBOURS, SAMPLING)
        for name in READ:
            staging.copy(name, preferences if name == "preferences" else name)
        cursor.register("reasons", reasons)
        cards = (PAIRS, UNPAIRED, CANDIDATE_CARDS) if about_pairs else (SINGLES,)
        staging.execute((IMAGES, *CANDIDATES, *cards, *LAST))


def _make_pair_key(first: str, second: str) -> str:
    return make_key("pair", first, second)
