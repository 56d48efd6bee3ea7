"""Random texts: every text of the split alike, checked like retrieved ones."""

from collections import Counter
from dataclasses import replace

import pyarrow as pa

from pairwright.schemas.arrow import to_table
from pairwright.schemas.claims import CLAIMS
from pairwright.schemas.config import RandomTextsConfig
from pairwright.schemas.rows import DifferenceRow
from pairwright.tasks.rejected.draw_texts import draw_texts
from pairwright.tasks.rejected.text_pool import DRAWN, NO_OTHER
from tests.fixtures.descriptions import described, person_said, truth


def draw(rows, everything=None, *, pairs=None, images=None, held_out=(), **config):
    everything = everything or rows
    splits = []
    for row in everything:
        split = "test" if row.subject in held_out else "train"
        splits.append(dict(zip(DRAWN, (row.subject, split, row.subject), strict=True)))
    return list(
        draw_texts(
            rows,
            RandomTextsConfig(**config),
            everything=to_table(everything, DifferenceRow),
            splits=pa.Table.from_pylist(splits),
            pairs=pairs or {},
            images=images or {},
        )
    )


def test_texts_of_other_pairs_that_are_false() -> None:
    rows, pairs, images = described(range(60))
    results = draw(rows, pairs=pairs, images=images)
    for row, result in zip(rows, results, strict=True):
        assert (result.maker, result.description) == ("random", row.key)
        claims = CLAIMS.validate_json(result.claims)
        assert not truth(row, claims, pairs, images)
        assert result.note != f"of pair {row.subject}"
    assert results == draw(rows, pairs=pairs, images=images)
    assert results != draw(rows, pairs=pairs, images=images, seed=1)


def test_every_text_is_as_likely_however_many_pairs_have_it() -> None:
    mine = [person_said("the cup is gone", subject=f"m{number}") for number in range(300)]
    mine = [replace(row, key=f"{number:032x}") for number, row in enumerate(mine)]
    others = [person_said("the dog is gone", subject=f"d{number}") for number in range(5)]
    others += [person_said(f"the {name} left", subject=name) for name in ("cat", "bus")]
    everything = [*mine, *others]
    texts = Counter(row.text for row in draw(mine, everything) if row.text != "the cup is gone")
    assert set(texts) == {"the dog is gone", "the cat left", "the bus left"}
    assert all(70 < count < 130 for count in texts.values())


def test_what_a_held_out_pair_has_is_not_drawn() -> None:
    mine = person_said("the cup is gone", subject="m")
    held = person_said("the dog is gone", subject="d")
    (dropped,) = draw([mine], [mine, held], held_out=["d"])
    assert (dropped.reason, dropped.detail) == (NO_OTHER, "0 tried")
    assert draw([mine], [mine, held])[0].text == held.text


def test_an_unchanged_pair_gets_a_change() -> None:
    same = person_said("nothing has changed", subject="p")
    others = [person_said(text, subject=text) for text in ("no change", "all is the same")]
    change = person_said("the red car has left the parking lot", subject="r")
    (row,) = draw([same], [same, *others, change])
    assert (row.text, row.note) == (change.text, "of pair r")
