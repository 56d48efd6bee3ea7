"""Mined negatives from rows and vectors by hand: which text is taken, what is passed over, what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from pairwright.schemas.arrow import to_table
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import DifferenceRow, Dropped, Negative, PairRow, PreferenceRow, make_key
from pairwright.schemas.training import MinedConfig
from pairwright.tasks.store.vectors import Vectors
from pairwright.tasks.training.embed_chosen_texts import text_key
from pairwright.tasks.training.mine_negatives import (
    CLAIM_COLUMNS,
    COLUMNS,
    STAGE,
    mine_negatives,
    pin_retriever,
    stage_among,
)
from pairwright.tasks.training.retriever.adversary import hash_file, save_network
from pairwright.tasks.training.retriever.encoders import Heads
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import graph, image_row, thing
from tests.fixtures.preferences_to_train import preference

SIZE, WORDS = 4, 6
TEXTS = ("a red ball", "a blue ball", "A green ball.", "a grey cube", "there is no change")
ROWS = [replace(preference(number), chosen=text) for number, text in enumerate(TEXTS)]
ROWS[3] = replace(ROWS[3], split="test")
ABOUT = {
    "encoder": "heads", "image_size": str(SIZE), "text_size": str(WORDS), "width": "8", "scale": "100.0",
    "tau": "2.0", "vectors": f"shape | words {WORDS}",
}  # fmt: skip


def vectors(keys, size):
    names = np.array(sorted({key.encode() for key in keys}), dtype="S32")
    matrix = np.random.default_rng(size).normal(size=(len(names), size)).astype(np.float16)
    return Vectors(names, matrix, np.ones(len(names), dtype=np.float32))


def table_of(rows, kind, columns):
    return to_table(rows, kind).select(list(columns))


def write_retriever(folder, about=ABOUT, **changes):
    heads = Heads(SIZE, WORDS, 8, seed=5)
    with torch.no_grad():
        for weight in heads.parameters():
            weight.mul_(2)  # so that q is not flat
    path = folder / "retriever.safetensors"
    save_network(path, heads.state_dict(), {**about, **changes})
    return path


def mine(path, rows=ROWS, everything=ROWS, **values):
    config = {name: values.pop(name) for name in list(values) if name in MinedConfig.model_fields}
    given = {
        "everything": table_of(everything, PreferenceRow, COLUMNS),
        "embeddings": {"shape": vectors([key for row in ROWS for key in row.image_keys], SIZE)},
        "text_vectors": {"words": vectors([text_key(text) for text in TEXTS], WORDS)},
        **values,
    }
    settings = MinedConfig(**{"retriever": str(path), "sha256": hash_file(path), **config})
    return list(mine_negatives(rows, settings, **given))


def ranked(row):
    """Return the pool's texts by their chance for a row, and the chances, from the vectors themselves."""
    heads = Heads(SIZE, WORDS, 8, seed=5)
    with torch.no_grad():
        for weight in heads.parameters():
            weight.mul_(2)
    images, words = vectors([key for one in ROWS for key in one.image_keys], SIZE), vectors(map(text_key, TEXTS), WORDS)
    texts = [text for text, one in zip(TEXTS, ROWS, strict=True) if one.split == "train" and text != row.chosen]
    shown = torch.tensor(images.matrix[images.rows_of(row.image_keys)].astype(np.float32))[None]
    said = torch.tensor(words.matrix[words.rows_of(map(text_key, texts))].astype(np.float32))
    q = (heads.pairs(shown) @ heads.texts(said).T * 50).double().softmax(1)[0].tolist()
    return sorted(zip(texts, q, strict=True), key=lambda one: -one[1])


def test_the_hardest_text_of_the_training_split_is_taken(tmp_path):
    for row, mined in zip(ROWS, mine(write_retriever(tmp_path)), strict=True):
        (text, q), *_ = best = ranked(row)
        assert mined.rejected == text
        assert mined.rejected_note == f"q {q:.3g} of {len(best)} texts, rank 1, unchecked"
        assert mined.rejected_maker == "mined"
        assert mined.source_key == row.key
        assert mined.key == make_key("mined", row.key, text) != row.key
        before = Negative(text=row.rejected, maker="by hand", note="", score=0.0)
        unchanged = replace(row, key=mined.key, source_key=mined.source_key, negatives=(before,))
        assert replace(mined, rejected=row.rejected, rejected_maker="by hand", rejected_note="") == unchanged


def test_what_is_true_is_passed_over(tmp_path):
    """Of the best text it is known to be true, of the second to be wrong."""
    path, row = write_retriever(tmp_path), ROWS[0]
    (first, _), (second, q), *_ = ranked(row)
    claims = {first: "red", second: "blue"}
    said = [
        replace(
            description(f"has {text}", "has nothing"),
            text=text,
            claims=json.dumps([{"side": 0, "kind": "exists", "selector": {"colour": colour}}]),
        )
        for text, colour in claims.items()
    ]
    keys = row.image_keys
    known = {
        "differences": table_of(said, DifferenceRow, CLAIM_COLUMNS),
        "pairs": {row.subject: PairRow(
            key=row.subject, source_key="", subject=row.subject, first=keys[0], second=keys[1], origin="given",
            anchor="", cluster=-1,
        )},
        "images": {keys[0]: image_row(keys[0], graph(thing(colour="red"))), keys[1]: image_row(keys[1], graph())},
    }  # fmt: skip
    (mined,) = mine(path, [row], **known)
    assert (mined.rejected, mined.rejected_claims) == (second, said[1].claims)
    assert mined.rejected_note == f"q {q:.3g} of 3 texts, rank 2, 1 true ones passed over"
    (dropped,) = mine(path, [row], candidates=1, **known)
    assert dropped == Dropped(source_key=row.key, reason="no text to mine", detail="all of 1 hard texts are true")
    (unknown,) = mine(path, [row], **{**known, "images": {}})
    assert (unknown.rejected, "unchecked" in unknown.rejected_note) == (first, True)


def test_a_pair_without_a_change_gets_no_text_that_says_so(tmp_path):
    path = write_retriever(tmp_path)
    rows = [*ROWS, replace(preference(9), chosen="nothing has changed", image_keys=ROWS[0].image_keys)]
    everything = {"embeddings": {"shape": vectors([key for row in ROWS for key in row.image_keys], SIZE)}}
    texts = {"words": vectors([text_key(text) for text in (*TEXTS, "nothing has changed")], WORDS)}
    found = mine(path, rows, rows, text_vectors=texts, **everything)
    for row in (found[4], found[5]):
        assert "change" not in row.rejected
        assert " of 3 texts" in row.rejected_note
    flagged = [
        replace(description("has a", "has b"), subject=row.subject, text=row.chosen) for row in (rows[4], rows[5])
    ]
    said = table_of([replace(one, no_change=False) for one in flagged], DifferenceRow, CLAIM_COLUMNS)
    again = mine(path, rows, rows, text_vectors=texts, differences=said, **everything)
    assert " of 4 texts" in again[4].rejected_note


def test_a_row_for_which_there_is_nothing_is_dropped(tmp_path):
    path = write_retriever(tmp_path)
    assert mine(path, ROWS[:1], ROWS[:1]) == [
        Dropped(source_key=ROWS[0].key, reason="no text to mine", detail="the pool has none for it")
    ]
    assert [row.reason for row in mine(path, min_q=1.0)] == ["no text to mine"] * 5
    assert mine(path, []) == []


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"vectors": "clip | clip 6"}, r"mined\.retriever: .*clip"),
        ({"tau": "0.0.0"}, r"mined\.retriever"),
        ({"tau": "0"}, r"mined\.retriever"),
        ({"scale": "nan"}, "finite"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, changes, what):
    with pytest.raises(ModelError, match=what):
        mine(write_retriever(tmp_path, **changes))


def test_the_file_must_be_the_one_that_was_named(tmp_path):
    path = write_retriever(tmp_path)
    pinned = pin_retriever(MinedConfig(retriever=str(path)))
    assert pinned.sha256 == hash_file(path)
    assert pin_retriever(pinned) == pinned
    write_retriever(tmp_path, tau="3.0")
    with pytest.raises(ModelError, match="SHA-256"):
        pin_retriever(pinned)
    with pytest.raises(ModelError, match="SHA-256"):
        mine(path, sha256=pinned.sha256)
    write_retriever(tmp_path, encoder="clip4idc")
    with pytest.raises(ModelError, match="clip4idc"):
        pin_retriever(MinedConfig(retriever=str(path)))


@pytest.mark.parametrize(
    ("tables", "used"),
    [
        ({"differences", "pairs", "images"}, {"differences", "pairs", "images"}),
        ({"images", "differences"}, {"differences"}),
        ({"pairs", "images"}, {"pairs", "images"}),
        (set(), set()),
    ],
)
def test_tables_that_a_dataset_does_not_have_are_done_without(tables, used):
    always = {"preferences", "embeddings", "text_vectors"}
    assert {use.table for use in stage_among(tables).uses} == always | used
    assert {use.table for use in STAGE.uses} == always | {"differences", "pairs", "images"}


def test_texts_that_a_held_out_row_has_are_no_negatives(tmp_path):
    held = replace(ROWS[3], chosen=ROWS[2].chosen.upper())
    found = mine(write_retriever(tmp_path), everything=[*ROWS[:3], held, *ROWS[4:]])
    assert ROWS[2].chosen not in {one.rejected for one in found}
    assert "of 2 texts" in found[0].rejected_note, "of three others in the training split"
