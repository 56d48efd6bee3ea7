"""Rows are frozen, and keys hash everything without two lists of parts colliding."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.rows import make_key

PARTS = st.lists(
    st.one_of(
        st.text(max_size=6), st.binary(max_size=6), st.integers(), st.floats(allow_nan=False)
    ),
    max_size=4,
)


def test_a_key_is_32_hexadecimal_digits_derived_by_hand() -> None:
    digest = hashlib.blake2b(
        b"str:2:\xc3\xa4" + b"bytes:1:x" + b"int:2:12" + b"float:3:0.5", digest_size=16
    )
    assert make_key("ä", b"x", 12, 0.5) == digest.hexdigest()
    assert len(make_key()) == 32


@given(first=PARTS, second=PARTS)
def test_other_parts_give_another_key(first: list, second: list) -> None:
    same = [(type(part), repr(part)) for part in first] == [
        (type(part), repr(part)) for part in second
    ]
    assert (make_key(*first) == make_key(*second)) == same
