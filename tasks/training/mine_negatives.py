"""Write an ADPO retriever's hardest negatives into a table of preferences.

Reads ``PreferenceRow``, vectors of images and texts, and claims and scene graphs where present; writes
``PreferenceRow``. The rejected text becomes the one of highest q over the whole pool that is not known to be true; the
former one becomes the first of the further negatives. The trained policy is not asked.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.claims import CLAIMS, may_hold
from pairwright.schemas.errors import ModelError
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import (
    DifferenceRow,
    Dropped,
    EmbeddingRow,
    ImageRow,
    Negative,
    PairRow,
    PreferenceRow,
    Row,
    make_key,
)
from pairwright.schemas.training import MinedConfig
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.store.vectors import Vectors
from pairwright.tasks.training.retriever import material
from pairwright.tasks.training.retriever.pool import Places, Pool, make_pool

if TYPE_CHECKING:
    from torch import Tensor

    from pairwright.tasks.training.retriever.retriever import Encoder

MAKER = "mined"
NOTHING = "no text to mine"
MOST_SCORES = 8_000_000  # scores in memory at once
COLUMNS = ("key", "subject", "chosen", "description", "claims", "split", "image_keys")
OPTIONAL = ("differences", "pairs", "images")  # tables with the truth about pairs
CLAIM_COLUMNS = ("subject", "text", "claims", "no_change")


def mine_negatives(
    rows: Sequence[PreferenceRow],
    config: MinedConfig,
    *,
    everything: pa.Table,
    embeddings: Mapping[str, Vectors],
    text_vectors: Mapping[str, Vectors],
    differences: pa.Table | None = None,
    pairs: Mapping[str, PairRow] | None = None,
    images: Mapping[str, ImageRow] | None = None,
) -> Iterator[PreferenceRow | Dropped]:
    """Yield each row with its mined negative, or the reason why there is none.

    Args:
        rows: the preferences, with images.
        config: names the retriever.
        everything: ``COLUMNS`` columns of all preferences.
        embeddings: vectors of the images.
        text_vectors: vectors of the chosen texts.
        differences: ``CLAIM_COLUMNS`` columns of all descriptions; ``None``: claims are unknown.
        pairs: the rows' pairs.
        images: their images, with scene graphs where present.
    """
    preferences = everything.select(list(COLUMNS)).to_pylist()
    known = KnownClaims.read(differences, preferences)
    held = material.find_held_out(preferences, train=config.pool)
    entries = [
        material.make_entry(
            row,
            in_pool=row["split"] == config.pool and plain_text(row["chosen"]) not in held,
            no_change=known.no_change.get((row["subject"], row["description"] or row["chosen"])),
        )
        for row in preferences
    ]
    place_of = {entry.key: place for place, entry in enumerate(entries)}
    pool = make_pool(entries)
    encoder, texts = _open_encoder(
        config, pool, material.map_features(entries, pool, images=embeddings, texts=text_vectors)
    )
    step = max(1, MOST_SCORES // max(len(pool.texts), 1))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        places = np.array([place_of[row.key] for row in some], dtype=np.int64)
        hardest = _rank(encoder.pairs(places), texts, pool, places, most=config.candidates)
        for row, found in zip(some, hardest, strict=True):
            yield _mined(row, found, known=known, graphs=_graphs(row, pairs or {}, images or {}), config=config)


@dataclass(frozen=True)
class KnownClaims:
    """Claims of descriptions."""

    no_change: Mapping[tuple[str, str], bool]  # by pair and description
    claims: Mapping[str, str]  # JSON of claims by plain text

    @staticmethod
    def read(table: pa.Table | None, preferences: Sequence[Mapping[str, Any]]) -> "KnownClaims":
        """Read the claims of differences, and of preferences with another kind of text."""
        rows = sorted(table.select(list(CLAIM_COLUMNS)).to_pylist(), key=str) if table is not None else []
        texts = [(row["text"], row["claims"]) for row in rows]
        claims = material.know_claims([*texts, *((row["chosen"], row["claims"]) for row in preferences)])
        return KnownClaims({(row["subject"], row["text"]): bool(row["no_change"]) for row in rows}, claims)

    def is_true(self, text: str, graphs: Any) -> bool | None:
        """Return whether a text is true of two scene graphs; ``None``: unknown."""
        claims = self.claims.get(plain_text(text))
        return may_hold(CLAIMS.validate_json(claims), graphs) if claims and graphs else None


class Hard(NamedTuple):
    """Hard negative; ``q``: its probability among ``among`` candidate texts."""

    text: str
    q: float
    among: int


def _open_encoder(config: MinedConfig, pool: Pool, features: material.Features) -> tuple["Encoder", "Tensor"]:
    """Load the retriever's network; return it with the pool's text vectors, scaled by the sharpness of q."""
    import torch

    from pairwright.tasks.training.retriever.adversary import hash_file, load_network
    from pairwright.tasks.training.retriever.encoders import Heads, HeadsEncoder

    path = Path(config.retriever).expanduser()
    if hash_file(path) != config.sha256:
        raise ModelError(f"mined.retriever: {path}: has changed since the build began (other SHA-256)")
    weights, about = load_network(path)
    if about.get("vectors") != features.made_by:
        raise ModelError(
            f"mined.retriever: {path}: trained on vectors of {about.get('vectors')}, not of {features.made_by} as in "
            "the dataset"
        )
    try:
        network = Heads(*features.sizes, weights["text.bias"].shape[0], seed=0)
        network.load_state_dict(weights)
        sharpness = float(about["scale"]) / float(about["tau"])
    except (RuntimeError, LookupError, ValueError, ZeroDivisionError) as error:
        raise ModelError(f"mined.retriever: {path}: its weights do not fit its network: {error}") from error
    encoder = HeadsEncoder(network.requires_grad_(requires_grad=False), features, choose_device())
    texts = encoder.texts(np.arange(len(pool.texts))) * sharpness
    if not torch.isfinite(texts).all():
        raise ModelError(f"mined.retriever: {path}: gives infinite or NaN vectors")
    return encoder, texts


def _rank(rows: "Tensor", texts: "Tensor", pool: Pool, places: Places, *, most: int) -> Iterator[list[Hard]]:
    """Yield for each row its hardest texts, hardest first; ties in the order of the pool."""
    import torch

    barred = pool.excluded(places, pool.everything(places))
    logits = (rows @ texts.T).masked_fill(torch.from_numpy(barred).to(rows.device), -torch.inf)
    chances = logits.cpu().double().softmax(1).numpy()
    for row, left in zip(chances, (~barred).sum(1).tolist(), strict=True):
        order = np.argsort(-row, kind="stable")[: min(most, left)].tolist() if left else []
        yield [Hard(pool.texts[number], float(row[number]), left) for number in order]


def _graphs(row: PreferenceRow, pairs: Mapping[str, PairRow], images: Mapping[str, ImageRow]) -> Any:
    pair = pairs.get(row.subject)
    shown = [images[key].graph for key in (pair.first, pair.second) if key in images] if pair else []
    return tuple(shown) if len(shown) == 2 and all(shown) else None


def _mined(
    row: PreferenceRow, found: list[Hard], *, known: KnownClaims, graphs: Any, config: MinedConfig
) -> PreferenceRow | Dropped:
    likely = [hard for hard in found if hard.q >= config.min_q]
    for skipped, hard in enumerate(likely):
        if true := known.is_true(hard.text, graphs):
            continue
        passed = f", {skipped} true ones passed over" if skipped else ""
        unsure = ", unchecked" if true is None else ""
        note = f"q {hard.q:.3g} of {hard.among} texts, rank {skipped + 1}{passed}{unsure}"
        # The former rejected text comes next, of unknown likeness (0).
        before = Negative(text=row.rejected, maker=row.rejected_maker, note=row.rejected_note, score=0.0)
        others = [one for one in (before, *row.negatives) if one.text]
        return replace(
            row,
            key=make_key(MAKER, row.key, hard.text),
            source_key=row.key,
            rejected=hard.text,
            rejected_maker=MAKER,
            rejected_note=note,
            rejected_claims=known.claims.get(plain_text(hard.text), "[]"),
            negatives=tuple(one for one in others if plain_text(one.text) != plain_text(hard.text)),
        )
    detail = f"all of {len(likely)} hard texts are true" if likely else "the pool has none for it"
    return Dropped(source_key=row.key, reason=NOTHING, detail=detail)


def pin_retriever(config: MinedConfig) -> MinedConfig:
    """Return the configuration with the file's hash."""
    from pairwright.tasks.training.retriever.adversary import hash_file, read_about

    path = Path(config.retriever).expanduser()
    if (encoder := read_about(path).get("encoder")) != "heads":
        raise ModelError(
            f"mined.retriever: {config.retriever}: unsupported encoder {encoder}. Train with adpo.encoder=heads"
        )
    found = hash_file(path)
    if config.sha256 and config.sha256 != found:
        raise ModelError(f"mined.retriever: {config.retriever}: its SHA-256 is {found}, not {config.sha256}")
    return config.model_copy(update={"sha256": found})


def stage_among(tables: Collection[str]) -> Stage:
    """Return the stage for a dataset with only these tables; missing ones leave truth unknown."""
    without = {use.table for use in STAGE.uses if use.table in OPTIONAL} - set(tables)
    if "pairs" in without:
        without.add("images")
    return replace(STAGE, uses=tuple(use for use in STAGE.uses if use.table not in without))


def _all_but(row: type[Row], columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in schema_of(row).names if name not in columns)


STAGE = Stage(
    name=MAKER,
    version=3,
    group="training",
    reads={"preferences": PreferenceRow},
    writes=PreferenceRow,
    function=mine_negatives,
    config=MAKER,
    pin=pin_retriever,
    whole=True,
    rows_per_shard=500,
    uses=(
        Uses(
            table="preferences",
            row=PreferenceRow,
            kind="table",
            without=_all_but(PreferenceRow, COLUMNS),
            name="everything",
        ),
        Uses(table="embeddings", row=EmbeddingRow, kind="vectors"),
        Uses(table="text_vectors", row=EmbeddingRow, kind="vectors"),
        Uses(table="differences", row=DifferenceRow, kind="table", without=_all_but(DifferenceRow, CLAIM_COLUMNS)),
        Uses(table="pairs", row=PairRow),
        Uses(table="images", row=ImageRow, on="images", of="pairs", without=("image", "captions")),
    ),
)
