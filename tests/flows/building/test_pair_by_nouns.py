"""A build that pairs by nouns through mining, from files in Localized Narratives' layout."""

from tests.fixtures.builds import build_through_mining, ok_rows
from tests.fixtures.layouts import cut, narrative, put, put_lines
from tests.fixtures.tagger import REAL

DOG = "In this image there is a dog on a chair."
TEXTS = {
    1: [DOG, "I can see a dog and a table in the background."],
    2: ["There are two dogs, a table and some chairs and a cup."],
    3: ["In this picture a man stands near a tree on the grass."],
    4: ["In this image we can see people and a tree on grass under the sky, a man in a shirt."],
    5: ["In the background of this image there is a ball."],
    6: ["It is dark."],
}


def write_source(folder):
    for number in TEXTS:
        put(folder, f"images/{number}.jpg", cut(number, kind="JPEG"))
    lines = [
        narrative("flickr30k", str(number), who, text)
        for number, texts in TEXTS.items()
        for who, text in enumerate(texts)
    ]
    put_lines(folder, "flickr30k_train_localized_narratives.jsonl", *lines)
    return f"localized-narratives:{folder}"


def shared_nouns(out):
    """Return the shared nouns of each pair, by the numbers of its images."""
    numbers = {cut(number, kind="JPEG"): number for number in TEXTS}
    names = {row["key"]: numbers[row["image"]] for row in ok_rows(out, "images")}
    rows = ok_rows(out, "pairs")
    assert {row["origin"] for row in rows} == {"noun-overlap"}
    keys = [sorted((names[row["first"]], names[row["second"]])) for row in rows]
    return {tuple(key): row["shared_nouns"] for key, row in zip(keys, rows, strict=True)}


def test_captions_become_pairs_once(tmp_path):
    source, out = write_source(tmp_path / "in"), tmp_path / "out"
    words = ("pairing=nouns", f"nouns.model={REAL}")
    counts = build_through_mining(out, source, *words)
    working = [name for name, count in counts.items() if name != "shards" and count["in"]]
    assert working == ["images", "nouns", "noun_pairs", "pairs"]
    assert (counts["images"]["ok"], counts["nouns"]["ok"]) == (6, 5)
    assert counts["nouns"]["reasons"] == {"no nouns in captions": 1}
    by_nouns = counts["noun_pairs"]
    assert (by_nouns["in"], by_nouns["ok"], by_nouns["rows"]) == (5, 2, 2)
    reasons = {"duplicate of another row": 2, "too few nouns (noun_pairs.levels=2)": 1}
    assert by_nouns["reasons"] == reasons
    assert [counts["pairs"][name] for name in ("in", "ok", "rows", "reasons")] == [2, 2, 2, {}]
    expected = {(1, 2): ["chair", "dog", "table"], (3, 4): ["grass", "man", "tree"]}
    assert shared_nouns(out) == expected
    parts = sorted((out / "tables").rglob("part-*"))
    assert build_through_mining(out, source, *words) == {**counts, "shards": 0}
    assert sorted((out / "tables").rglob("part-*")) == parts
