"""The index against its own definition by brute force, extended against made anew, and its recall."""

import json

import numpy as np
import pytest

from pairwright.tasks.models import search_lists, search_scan
from pairwright.tasks.models.search import top_k
from pairwright.tasks.models.search_lists import (
    cells_of,
    find_lists,
    find_recall,
    measure_recall,
    nearest_centres,
    probes_of,
)
from pairwright.tasks.models.search_lists import search_lists as search

PROBES = 5


def unit(values):
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float16)


@pytest.fixture(scope="module")
def images():
    """900 vectors in groups, exact duplicates among them, and their keys, which are in no order of groups."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, 32))
    made = unit(centres[rng.integers(0, 60, 900)] + 0.4 * rng.normal(size=(900, 32)))
    made[rng.integers(0, 900, 40)] = made[500]
    keys = np.array(sorted(rng.bytes(16).hex().encode() for _ in range(900)), dtype="S32")
    return keys, made


def brute(matrix, rows, cells, probes, k):
    """Say what the index promises, in float64: ties go to the lower row."""
    wide = matrix.astype(np.float64)
    towards = wide @ wide[:cells].T
    home = np.argmax(towards, axis=1)  # the first of equals
    near = []
    for row in rows:
        probed = np.argsort(-towards[row], kind="stable")[:probes]
        others = [other for other in np.flatnonzero(np.isin(home, probed)) if other != row]
        near.append(sorted(others, key=lambda other: (-float(wide[row] @ wide[other]), other))[:k])
    return near


def made(images, folder, memo=None):
    keys, matrix = images
    return find_lists(matrix, keys, folder=folder / "index", memo=memo)


def listed(near):
    return [row[row >= 0].tolist() for row in near]


@pytest.mark.parametrize("k", [1, 20, 400])
@pytest.mark.parametrize("kernel", [search_scan.BfloatKernel(), search_scan.FloatKernel()], ids=["bfloat", "float"])
def test_the_answer_is_what_is_promised(images, tmp_path, monkeypatch, k, kernel):
    pytest.importorskip("torch")
    monkeypatch.setattr(search_lists, "list_kernel", lambda: kernel)
    lists = made(images, tmp_path)
    assert (lists.cells, sorted(lists.order.tolist())) == (128, list(range(900)))
    rows = np.arange(0, 900, 7)
    near, products = search(images[1], rows, lists=lists, k=k, probes=PROBES)
    assert listed(near) == brute(images[1], rows, 128, PROBES, k)
    wide = images[1].astype(np.float64)
    for row, found, values in zip(rows, near, products, strict=True):
        exact = wide[found[found >= 0]] @ wide[row]
        assert values[: len(exact)].tolist() == exact.astype(np.float32).tolist()
        assert (values[len(exact) :] == -np.inf).all()


def test_the_answer_does_not_depend_on_what_is_asked_together(images, tmp_path, monkeypatch):
    lists, rows = made(images, tmp_path), np.arange(900)
    whole = search(images[1], rows, lists=lists, k=20, probes=PROBES)
    monkeypatch.setattr(search_lists, "MOST_QUERIES", 100)
    parts = [search(images[1], some, lists=lists, k=20, probes=PROBES) for some in np.array_split(rows, 7)]
    for column in (0, 1):
        assert np.concatenate([part[column] for part in parts]).tobytes() == whole[column].tobytes()


def test_all_cells_probed_is_the_exact_search(images, tmp_path):
    rows = np.arange(0, 900, 11)
    near, products = search(images[1], rows, lists=made(images, tmp_path), k=30, probes=128)
    expected = top_k(images[1], rows, k=30)
    assert near.tolist() == expected[0].tolist()
    assert products.tolist() == expected[1].tolist()


@pytest.mark.parametrize("before", [(0, 500), (0, 890), (40, 900), (300, 600)])
def test_an_index_extended_is_the_index_made_anew(images, tmp_path, monkeypatch, before):
    """From the images of some keys to all of them: images came, cells became more, centres changed."""
    keys, matrix = images
    chosen = np.sort(np.random.default_rng(2).permutation(900)[slice(*before)])
    find_lists(matrix[chosen], keys[chosen], folder=tmp_path / "first", memo=tmp_path / "memo.npz")
    compared = count_comparisons(monkeypatch)
    extended = made(images, tmp_path / "extended", memo=tmp_path / "memo.npz")
    cost = sum(compared)
    compared.clear()
    anew = made(images, tmp_path / "anew")
    assert cost < sum(compared)
    for name in ("order", "ends", "codes"):
        assert getattr(extended, name).tobytes() == getattr(anew, name).tobytes()


def test_an_index_from_which_images_went_is_the_index_made_anew(images, tmp_path):
    keys, matrix = images
    made(images, tmp_path, memo=tmp_path / "memo.npz")
    kept = np.sort(np.random.default_rng(3).permutation(900)[:700])
    less = find_lists(matrix[kept], keys[kept], folder=tmp_path / "less", memo=tmp_path / "memo.npz")
    anew = find_lists(matrix[kept], keys[kept], folder=tmp_path / "anew", memo=None)
    assert less.order.tobytes() == anew.order.tobytes()
    assert less.ends.tobytes() == anew.ends.tobytes()


def count_comparisons(monkeypatch):
    """Note how many products each comparison with centres takes."""
    compared = []

    def counted(matrix, rows, **options):
        compared.append(len(rows) * len(options["among"]))
        return top_k(matrix, rows, **options)

    monkeypatch.setattr(search_lists, "top_k", counted)
    return compared


def test_few_new_images_cost_little(images, tmp_path, monkeypatch):
    keys, matrix = images
    find_lists(matrix[:-9], keys[:-9], folder=tmp_path / "first", memo=tmp_path / "memo.npz")
    compared = count_comparisons(monkeypatch)
    made(images, tmp_path, memo=tmp_path / "memo.npz")
    # The nine have the highest keys: no centre changed, and only they are compared (and centres that nobody has).
    assert sum(compared) < 0.1 * 900 * 128


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 no archive", None])
def test_a_damaged_memo_is_no_memo(images, tmp_path, damage):
    memo = tmp_path / "memo.npz"
    made(images, tmp_path / "first", memo=memo)
    memo.write_bytes(memo.read_bytes()[:-200] if damage is None else damage)
    again = made(images, tmp_path / "again", memo=memo)
    assert again.order.tobytes() == made(images, tmp_path / "first").order.tobytes()


def test_the_nearest_centre_of_equals_is_the_lowest():
    matrix = unit(np.array([[1, 0], [0, 1], [1, 0], [1, 1], [0, 1]], dtype=float))
    assert nearest_centres(matrix, cells=3).tolist() == [0, 1, 0, 0, 1]
    # Known is row 2 from an index in which row 0 was no centre; a known centre that is none any more is left out.
    assert nearest_centres(matrix, cells=3, known=np.array([-1, 1, 2, 1, 4])).tolist() == [0, 1, 0, 0, 1]


def test_recall_counts_what_the_cells_hide(images, tmp_path):
    matrix = images[1]
    lists = made(images, tmp_path)
    rows = np.arange(900 - search_lists.SAMPLE, 900)
    near, products = top_k(matrix, rows, k=20)
    found = brute(matrix, rows, 128, 2, 20)
    wanted = [one[scores >= 0.8].tolist() for one, scores in zip(near, products, strict=True)]
    hits = sum(len(set(some) & set(one)) for some, one in zip(wanted, found, strict=True))
    assert measure_recall(matrix, lists, k=20, probes=2, band=0.8) == (hits, sum(map(len, wanted)))
    assert hits < sum(map(len, wanted))
    assert measure_recall(matrix, lists, k=20, probes=128, band=0.8) == (sum(map(len, wanted)),) * 2
    first = find_recall(tmp_path / "index", matrix, lists, k=20, probes=2, band=0.8)
    again = find_recall(tmp_path / "index", matrix, lists, k=20, probes=2, band=0.8)
    assert (first[2], again[2], first[:2]) == (True, False, again[:2])
    (file,) = (tmp_path / "index").glob("recall*")
    assert json.loads(file.read_text()) == [hits, first[1]]


@pytest.mark.parametrize(
    ("count", "cells", "probes"), [(3, 3, 3), (100, 32, 16), (250_000, 2048, 128), (1_000_000, 4096, 256)]
)
def test_the_rule_for_cells_and_probes(count, cells, probes):
    assert (cells_of(count), probes_of(cells_of(count), 0)) == (cells, probes)
    assert probes_of(cells, 7) == min(7, cells)
