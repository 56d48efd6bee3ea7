"""Mining ordinary photographs by weightless descriptors, against known near-duplicates."""

import numpy as np

from pairwright.schemas.config import EmbeddingConfig, MiningConfig, Profile, SearchConfig
from pairwright.schemas.rows import ImageRow, PairRow
from pairwright.tasks.mining.embed_images import embed_images
from pairwright.tasks.mining.pair_neighbours import pair_neighbours
from pairwright.tasks.mining.search_neighbours import search_neighbours
from pairwright.tasks.sources.folder import list_items, read_items
from tests.fixtures.photographs import write_photographs
from tests.fixtures.spaces import space_of


def test_pairs_show_the_same_scene(tmp_path):
    """Three photographs of a scene are three pairs."""
    groups = write_photographs(tmp_path, variants=3)
    config = Profile(source=f"folder:{tmp_path}").source_config
    images = list(read_items(list(list_items(config)), config))
    assert [type(row) for row in images] == [ImageRow] * len(groups)
    scene_of = {row.key: groups[row.name] for row in images}
    vectors, keys = {}, sorted(scene_of)
    embeddings = {
        (row.embedder, row.subject): row for row in embed_images(images, EmbeddingConfig())
    }
    for name in EmbeddingConfig().embedders:
        rows = [embeddings[name, key] for key in keys]
        vectors[name] = space_of([np.array(row.vector) * row.norm for row in rows], keys)
    config = MiningConfig(min_best_similarity=0.65, min_similarity=0.65, max_similarity=0.9999)
    anchors = list(search_neighbours(images, SearchConfig(), vectors=vectors))
    mined = pair_neighbours(anchors, config, vectors=vectors)
    pairs = {(row.first, row.second) for row in mined if isinstance(row, PairRow)}
    right = [pair for pair in pairs if scene_of[pair[0]] == scene_of[pair[1]]]
    scenes = len(set(scene_of.values()))
    assert len(right) / len(pairs) > 0.95
    assert len(right) / (3 * scenes) > 0.5
    assert len({scene_of[first] for first, _ in right}) / scenes > 0.75
