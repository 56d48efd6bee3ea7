"""A build that pairs by nouns through mining, from files in Localized Narratives' layout (the
paper's source)."""

from pathlib import Path

from tests.fixtures.builds import build_through_mining, ok_rows
from tests.fixtures.layouts import cut, narrative, put, put_lines
from tests.fixtures.tagger import REAL

TEXTS = {
    1: [
        "In this image there is a dog on a chair.",
        "I can see a dog and a table in the background.",
    ],
    2: ["There are two dogs, a table and some chairs and a cup."],
    3: ["In this picture a man stands near a tree on the grass."],
    4: ["In this image we can see people and a tree on grass under the sky, a man in a shirt."],
    5: ["In the background of this image there is a ball."],
    6: ["It is dark."],
    7: ["A man with a cup."],
}
NAMES = {cut(number, kind="JPEG"): number for number in TEXTS}


def write_source(root: Path, numbers: list[int]) -> str:
    for number in numbers:
        if not (root / f"images/{number}.jpg").exists():  # a file written anew is another item
            put(root, f"images/{number}.jpg", cut(number, kind="JPEG"))
    lines = [
        narrative("flickr30k", str(n), who, text)
        for n in numbers
        for who, text in enumerate(TEXTS[n])
    ]
    put_lines(root, "flickr30k_train_localized_narratives.jsonl", *lines)
    return f"localized-narratives:{root}"


def pairs(out: Path) -> dict[tuple[int, ...], list[str]]:
    """Return the shared nouns of each pair, by the numbers of its images."""
    names = {row["key"]: NAMES[row["image"]] for row in ok_rows(out, "images")}
    rows = ok_rows(out, "pairs")
    assert {row["origin"] for row in rows} == {"noun-overlap"}
    return {
        tuple(sorted((names[row["first"]], names[row["second"]]))): row["shared_nouns"]
        for row in rows
    }


def test_captions_become_pairs(tmp_path: Path) -> None:
    source = write_source(tmp_path / "in", [1, 2, 3, 4, 5, 6])
    words = ("pairing=nouns", f"nouns.model={REAL}")
    found = build_through_mining(tmp_path / "out", source, *words)
    working = [name for name, count in found.items() if name != "shards" and count["in"]]
    assert working == ["images", "nouns", "noun_pairs", "pairs"]
    assert (found["images"]["ok"], found["nouns"]["ok"]) == (6, 5)
    assert found["nouns"]["reasons"] == {"no nouns in captions": 1}
    assert [found["noun_pairs"][name] for name in ("in", "ok", "rows")] == [5, 2, 2]
    assert found["noun_pairs"]["reasons"] == {
        "duplicate of another row": 2,
        "too few nouns (noun_pairs.levels=2)": 1,
    }
    assert [found["pairs"][name] for name in ("in", "ok", "rows", "reasons")] == [2, 2, 2, {}]
    assert pairs(tmp_path / "out") == {
        (1, 2): ["chair", "dog", "table"],
        (3, 4): ["grass", "man", "tree"],
    }

    parts = sorted((tmp_path / "out/tables").rglob("part-*"))
    again = build_through_mining(tmp_path / "out", source, *words)
    assert again == {**found, "shards": 0}
    assert sorted((tmp_path / "out/tables").rglob("part-*")) == parts
