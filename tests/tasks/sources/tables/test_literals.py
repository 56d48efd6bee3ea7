"""Python literals out of tables: what people's lists look like is read, everything else is refused, and quickly."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.tasks.sources.tables.literals import LONGEST, MOST_VALUES, parse_literal

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(values)
def test_what_repr_writes_is_read(value):
    deep = repr(value).count("[") + repr(value).count("{") > 8
    assert parse_literal(repr(value)) == value or deep


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('x')",
        "[x for x in 'a']",
        "f'{1}'",
        "b'bytes'",
        "1.5e300",
        "9" * 10_000,
        "[" * 100_000,
        "[" * 9 + "]" * 9,
        "-" * 100_000 + "1",
        "['a'",
        "'a",
        "'" + "\\'" * 200_000,
        "1 2",
        "{[]: 1}",
        "",
        "'a\nb'",
        "[" + "1," * MOST_VALUES + "1, 1]",
        "'" + "a" * LONGEST + "'",
        "'\\N{nothing}'",
        7,
        None,
    ],
)
def test_anything_else_is_refused_at_once(text):
    start = time.perf_counter()
    assert parse_literal(text) is None
    assert time.perf_counter() - start < 2
