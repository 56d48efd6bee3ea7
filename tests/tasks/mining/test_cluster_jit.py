from pathlib import Path

import pytest

from pairwright.tasks.mining import cluster_jit


def entry(x: int) -> int:
    return x + 1


def test_the_name_in_the_cache_follows_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(cluster_jit, "__file__", str(tmp_path / "cluster_jit.py"))
    (tmp_path / "cluster_jit.py").write_text("a")
    names = []
    for text in ("b", "b", "c"):
        (tmp_path / "part.py").write_text(text)
        entry.__qualname__ = "entry"
        assert cluster_jit.compiled_entry("part.py")(entry)(1) == 2
        names.append(entry.__qualname__)
    assert names[0] == names[1] != names[2]


def test_without_a_folder_for_the_cache_it_compiles_in_memory(monkeypatch: pytest.MonkeyPatch):
    plain = cluster_jit.njit

    def refuse(**options: object) -> object:
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return plain(**options)

    monkeypatch.setattr(cluster_jit, "njit", refuse)
    assert cluster_jit.compiled_entry()(entry)(1) == 2
