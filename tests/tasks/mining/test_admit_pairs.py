"""Pairs of images that were kept out are dropped."""

from pairwright.schemas.config import ExcludeConfig
from pairwright.schemas.rows import Dropped, EmbeddingRow, PairRow
from pairwright.tasks.mining.admit_pairs import REASON, admit_pairs


def vector(image: str) -> tuple[EmbeddingRow, ...]:
    return (EmbeddingRow(key=f"v{image}", source_key=image, subject=image, embedder="x", vector=(), norm=0.0),)


def pair(first: str, second: str) -> PairRow:
    key = first + second
    return PairRow(
        key=key, source_key="item", subject=key, first=first, second=second, origin="given", anchor="", cluster=-1,
        human_differences=("the mug is gone",),
    )  # fmt: skip


def test_both_images_must_have_vectors() -> None:
    vectors = {"a": vector("a"), "b": vector("b"), "c": ()}
    good, *bad = admit_pairs(
        [pair("a", "b"), pair("a", "c"), pair("c", "b"), pair("c", "c")], ExcludeConfig(), vectors=vectors
    )
    assert isinstance(good, PairRow)
    assert (good.key, good.source_key, good.human_differences) == ("ab", "ab", ("the mug is gone",))
    assert bad == [
        Dropped(source_key="ac", reason=REASON, detail="second"),
        Dropped(source_key="cb", reason=REASON, detail="first"),
        Dropped(source_key="cc", reason=REASON, detail="first and second"),
    ]
