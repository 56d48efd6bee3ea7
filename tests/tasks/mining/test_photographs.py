"""Mining ordinary photographs with the weightless descriptors, against known groups of
near-duplicates."""

import numpy as np
import pytest

from pairwright.schemas.config import EmbeddingConfig, MiningConfig, Profile, SearchConfig
from pairwright.schemas.rows import ImageRow, PairRow
from pairwright.tasks.mining.embed_images import embed_images
from pairwright.tasks.mining.pair_neighbours import pair_neighbours
from pairwright.tasks.mining.search_neighbours import search_neighbours
from pairwright.tasks.sources.folder import list_items, read_items
from pairwright.tasks.store.vectors import Vectors
from tests.fixtures.photographs import write_photographs


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Return image rows and the group of each image's key."""
    root = tmp_path_factory.mktemp("photographs")
    groups = write_photographs(root, variants=3)
    config = Profile(source=f"folder:{root}").sources
    rows = list(read_items(list(list_items(config)), config))
    assert len(rows) == len(groups)
    assert all(isinstance(row, ImageRow) for row in rows)
    return rows, {row.key: groups[row.name] for row in rows}


def spaces(rows):
    made = sorted(embed_images(rows, EmbeddingConfig()), key=lambda row: row.subject)
    return {
        name: Vectors(
            np.array([row.subject.encode() for row in made if row.embedder == name]),
            np.array([row.vector for row in made if row.embedder == name], dtype=np.float16),
            np.array([row.norm for row in made if row.embedder == name], dtype=np.float32),
        )
        for name in EmbeddingConfig().embedders
    }


def test_pairs_show_the_same_scene(photographs):
    rows, truth = photographs
    vectors = spaces(rows)
    config = MiningConfig(min_best_similarity=0.65, min_similarity=0.65, max_similarity=0.9999)
    found = list(search_neighbours(rows, SearchConfig(), vectors=vectors))
    pairs = {
        (row.first, row.second)
        for row in pair_neighbours(found, config, vectors=vectors)
        if isinstance(row, PairRow)
    }
    right = [pair for pair in pairs if truth[pair[0]] == truth[pair[1]]]
    groups = len(set(truth.values()))
    assert len(right) / len(pairs) > 0.95
    # Three photographs of a scene are three pairs.
    assert len(right) / (3 * groups) > 0.5
    assert len({truth[first] for first, _ in right}) / groups > 0.75
