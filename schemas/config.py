"""The profile: one frozen model per section, one sentence per field, limits in the types.

Every stage's function receives its own section, never the whole profile. A field that cannot change
a stage's rows (how many workers, how large a shard) is in ``RunConfig``, which no fingerprint
includes.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializeAsAny,
    model_validator,
)

from pairwright.schemas.bounds import BudgetConfig, GatesConfig, HealthConfig
from pairwright.schemas.encoder_config import ClipConfig, Dinov2Config, EncoderConfig
from pairwright.schemas.filters import FiltersConfig
from pairwright.schemas.model_names import MODEL_PLACES, EmbedderName, FinderName
from pairwright.schemas.plugins import Group, read_settings, require_plugins
from pairwright.schemas.removing import (
    Batch,
    DetectionConfig,
    ElementsConfig,
    ExpectedImagesConfig,
    FittedConfig,
    InspectionConfig,
    ModelSection,
    RejectionsConfig,
    RemovalsConfig,
    SegmentationConfig,
    TaggingConfig,
    TargetsConfig,
)
from pairwright.schemas.section import (
    FOUND,
    UNSET,
    Count,
    Filled,
    FilledSeed,
    Names,
    Positive,
    Section,
    Seed,
    Share,
    filled_by,
    filled_by_hand,
    with_field,
)
from pairwright.schemas.writing import (
    CaptionsConfig,
    ChatConfig,
    ComparisonsConfig,
    ConfirmingConfig,
    ControlsConfig,
    CounterfactualsConfig,
    DifferencesConfig,
    GroundingConfig,
    HardnessConfig,
    JudgingConfig,
    ModelName,
    QuestionsConfig,
    SampledTextsConfig,
    ServedSection,
    StatementsConfig,
    ValidatedSection,
)

S = TypeVar("S", bound=Section)
STANDARD_MODELS = ("chat", "language", "judge")
"""The names of served models that sections ask by default."""
DESCRIPTORS = ("colour-layout", "gradients")
NEAR_COPIES = (
    "colour-layout and gradients find near-copies of a photograph{}, not similar scenes or things: "
    "CLIP and DINOv2 find these, as with --profile laptop"
)
"""Limit of the descriptors without weights on photographs."""
Range = tuple[float, float]
Band = Annotated[int, Field(ge=1, le=10_000)]


class ImagesConfig(Section):
    """Images that are accepted, and how 8 bits are made of deeper ones."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"measured"})

    max_pixels: Positive = 40_000_000
    """Images of more pixels are dropped before they are decoded."""
    max_bytes: Positive = 200_000_000
    """Files of more bytes are dropped before they are read."""
    min_side: Positive = 16
    """Images with a side below this many pixels are dropped."""
    licence: str = ""
    """Licence recorded for every image of this source."""
    range: Annotated[
        Literal["file", "percentiles"] | Range, Field(exclude_if=lambda value: value == "file")
    ] = "file"
    """Values of images of more than 8 bits that become black and white: `file` (as their files
    state it, else robust percentiles of the source), `percentiles`, or two numbers: `[0, 4095]`."""
    bands: Annotated[tuple[Band, ...], UNSET] = ()
    """Bands of a TIFF of many bands that are shown, one (grey) or three (red, green, blue); 1 is
    the first: `[3, 2, 1]`."""
    measured: Annotated[tuple[str, ...], UNSET, FOUND] = ()
    """Range of each type of number in the source, measured by the first build that reads such
    images: "uint16 0 4095"."""

    @model_validator(mode="after")
    def _bands_and_range_fit(self) -> Self:
        if len(self.bands) not in (0, 1, 3):
            raise ValueError(f"bands has {len(self.bands)} numbers: name one or three bands")
        if not isinstance(self.range, str) and not self.range[0] < self.range[1]:
            raise ValueError(f"range {list(self.range)} is empty: the first must be the lower one")
        return self


OFF_IN_OTHER_LANGUAGES = {
    "captions": (
        "checks that need English words are off (declined, another language), and what reads "
        "captions as English does not work: nouns (nouns.model), shared words of captions, "
        "summaries and descriptions that are written from them"
    ),
    "questions": (
        "checks that need English words are off (declined, another language, not a question, leans "
        "on another round, speaks of captions, which image it is about)"
    ),
}
"""Checks that are off by the section whose texts are in another language."""


class ReadingConfig(Section):
    """Options for reading sources."""

    uncounted: ClassVar[frozenset[str]] = frozenset(
        {"images", "frames_per_second", "folders", "golden"}
    )

    splits: Names = ()
    """Splits that are read, by the source's own names ("train"); empty: all."""
    image_column: str = ""
    """Column of a table that holds the images; empty: found by its type."""
    caption_column: str = ""
    """Column of a table, or field of a manifest, that holds captions; empty: found by its name."""
    images: str = ""
    """Folder of the images that a manifest names; empty: the manifest's own."""
    folders: Annotated[Names, UNSET] = ()
    """Names of the two folders of a source of pairs, in their order; empty: found by usual
    names."""
    golden: Annotated[str, UNSET] = ""
    """Image that each image of the source `golden` is paired with."""
    frames_per_second: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Frames read per second of a video; part of each item's key."""


class ScenesConfig(Section):
    """Rendered scenes."""

    seed: FilledSeed = 0
    worlds: Positive = 40
    """Number of worlds (each is a place with objects)."""
    photographs: Annotated[int, Field(ge=2, le=8)] = 3
    """Photographs of each world, the base included."""
    width: Annotated[int, Field(ge=64, le=2048)] = 480
    """Width of a photograph in pixels."""
    height: Annotated[int, Field(ge=64, le=2048)] = 360
    """Height of a photograph in pixels."""
    samples_per_pixel: Annotated[int, Field(ge=1, le=4096)] = 2
    """Light paths per pixel, before denoising: more are slower and give truer shadows."""
    no_change_share: Share = 0.15
    """Share of photographs that differ from their base by viewpoint or light only."""


class PlantedConfig(Section):
    """Rendered things planted into photographs."""

    seed: FilledSeed = 0
    count: Count = 0
    """Number of photographs of the source that get things, drawn by their keys; 0: all."""
    photographs: Annotated[int, Field(ge=2, le=4)] = 2
    """Photographs made of each one of the source; the first drawn is paired with each other."""
    max_side: Annotated[int, Field(ge=256, le=4096)] = 1024
    """Longer side, in pixels, that larger photographs are scaled down to."""
    samples_per_pixel: Annotated[int, Field(ge=1, le=4096)] = 8
    """Light paths per pixel of a thing, before denoising."""
    no_change_share: Share = 0.15
    """Share of pairs that differ by light, focus or framing only."""
    cutouts: str = ""
    """File of annotations in COCO's layout, beside its photographs: half of the things are cut out
    of these by their masks, and texts name them by their category. "": all things are rendered."""


class TilesConfig(Section):
    """Tiles that pairs of large images are cut into, the same windows of both."""

    size: Count = 0
    """Width and height of a tile in pixels; smaller images are one tile. 0: pairs are not cut."""
    overlap: Count = 0
    """Pixels that a tile shares with the next one."""

    @model_validator(mode="after")
    def _tiles_advance(self) -> Self:
        if self.size and self.overlap >= self.size:
            raise ValueError(f"overlap {self.overlap} must be below size {self.size}")
        if self.overlap and not self.size:
            raise ValueError("overlap needs a size of the tiles")
        return self


class RobustnessConfig(Section):
    """Corruption of a source's images and texts, to measure robustness (paper 001, A.3)."""

    corruption: Literal["none", "gaussian-noise", "fog"] = "none"
    """Corruption of each image, as in ImageNet-C."""
    severity: Annotated[int, Field(ge=1, le=5)] = 5
    """Severity of the corruption; the paper: 5."""
    word_share: Share = 0.0
    """Share of the words replaced in each text of the source; the paper: 0.2, 0.4, 0.6 and 0.8."""

    @property
    def is_off(self) -> bool:
        """Return whether images and texts stay as they are."""
        return self.corruption == "none" and not self.word_share


class SourceRule(Section):
    """Rule of one kind of source, in a dataset of several sources."""

    weight: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of its items that are read, drawn by their keys; 1: all."""
    split: Literal["", "published", "drawn", "train", "validation", "test"] = ""
    """Split of its pairs: that of the source, one that is drawn, or one for all; empty: as
    `preferences.split` says."""


class SourceConfig(Section):
    """Input of the sources stage; made of other sections.

    The location of the source does not identify rows: a moved folder holds the same images. The
    items' keys identify what is rendered. Without corruption, `robustness` counts as absent.
    """

    uncounted: ClassVar[frozenset[str]] = frozenset(
        {"path", "further", "scenes", "planted", "weights"}
    )
    kind: Annotated[str, Filled("source_kind")]
    path: Annotated[str, Filled("source_path")]
    further: Annotated[Names, Filled("sources")] = ()
    weights: Annotated[dict[str, float], UNSET, Filled("per_source")] = Field(
        default_factory=dict[str, float]
    )
    images: Annotated[ImagesConfig, Filled("images")]
    reading: Annotated[ReadingConfig, Filled("reading")]
    scenes: Annotated[ScenesConfig, Filled("scenes")]
    planted: Annotated[PlantedConfig, Filled("planted")]
    robustness: Annotated[
        RobustnessConfig, Field(exclude_if=lambda value: value.is_off), Filled("robustness")
    ] = RobustnessConfig()
    align: Annotated[bool, UNSET, Filled("mining.align")] = False
    tiles: Annotated[
        TilesConfig, Field(exclude_if=lambda value: not value.size), Filled("tiles")
    ] = TilesConfig()

    @property
    def cuts_pairs(self) -> bool:
        """Return whether pairs are aligned or cut into tiles."""
        return self.align or bool(self.tiles.size)


class EmbeddingConfig(ModelSection):
    """Vectors that are made of each image."""

    uncounted: ClassVar[frozenset[str]] = ModelSection.uncounted | {"clip", "dinov2", "encoder"}
    embedders: Annotated[tuple[EmbedderName, ...], Field(min_length=1, max_length=4)] = (
        "colour-layout",
        "gradients",
    )
    """Which embedders, in the order that mining weighs them."""
    clip: ClipConfig = ClipConfig()
    dinov2: Dinov2Config = Dinov2Config()
    encoder: EncoderConfig = EncoderConfig()
    batch_size: Batch = 0
    """Images per batch of an encoder; 0: as many as fit, which may change the last digits of its
    vectors."""


class ExcludeConfig(Section):
    """Exclusion of images that are nearly the same as those of a given set (ours)."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"sources", "files"})
    sources: Names = ()
    """Sources of the images to exclude, such as a benchmark's test images; embedded like the
    dataset's own."""
    max_hash_distance: Annotated[int, Field(ge=0, le=31)] = 4
    """Images are excluded up to this distance (bits of 64) of perceptual hashes."""
    min_similarity: Share = 0.96
    """Images are excluded from this similarity on, if every embedder finds it."""
    filters: Annotated[
        FiltersConfig, Field(exclude_if=lambda value: not value.is_on), Filled("filters")
    ] = FiltersConfig()
    files: Annotated[tuple[str, ...], UNSET, FOUND] = ()
    marks: Annotated[tuple[str, ...], UNSET, FOUND] = ()


class SearchConfig(Section):
    """Search of nearest neighbours."""

    k: Annotated[int, Field(ge=1, le=1024)] = 64
    """Neighbours kept per image and embedder, the image itself not counted."""
    min_copy_similarity: Share = 0.99
    """Images of one perceptual hash that are at least this similar in every space are copies: only
    the one of the lowest key is searched and found. Where `mining.max_similarity` is above it, so
    that such images may pair, only images with equal vectors are."""
    max_exact_images: Count = 200_000
    """Number of images up to which every pair is compared; above, an index of cells is searched."""
    probes: Annotated[int, Field(ge=0, le=65536)] = 0
    """Cells of the index that are searched per image; 0: one of 16, and at least 16."""
    min_similarity: Share = 0.78
    """Similarity above which recall is measured and cut-off lists are reported; at most
    ``mining.min_similarity``."""


class MiningConfig(Section):
    """Selection of pairs among neighbours (paper 001, Appendix D.1; defaults are the paper's)."""

    min_best_similarity: Share = 0.80
    """tau_max: a set whose highest similarity is below this is dropped, per embedder."""
    check_worst: Literal["none", "before", "after"] = "none"
    """Whether the paper's second set test runs, on the raw top-k (before) or the kept candidates
    (after)."""
    min_worst_similarity: Share = 0.78
    """tau_min: with ``check_worst``, a set whose lowest similarity is below this is dropped."""
    min_similarity: Share = 0.78
    """Neighbours less similar than this are left out, per embedder."""
    max_similarity: Share = 0.95
    """Neighbours more similar than this are left out, per embedder."""
    quantile: Annotated[float, UNSET, Field(ge=0, lt=1)] = 0.0
    """The three bounds by the album itself (ours): the lowest similarity of a pair is this quantile
    of the similarities of random pairs of its images, per embedder; the other two keep the paper's
    proportions. 0: the bounds as they are set."""
    min_hash_distance: Annotated[int, Field(ge=0, le=32)] = 0
    """Candidates whose hash differs from the anchor's in fewer of 64 bits are left out first
    (ours); 0: none."""
    max_ratio: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Maximum distance (1 - similarity) of a candidate, as a share of that of the anchor's nearest
    strangers (ours, after Lowe's ratio test), which adapts as a collection grows; 1: any."""
    group: Annotated[int, UNSET, Filled("scenes.photographs")] = 0
    """With `max_ratio`: number of images that show the same thing; neighbours beyond it are
    strangers."""
    clusters: Annotated[int, Field(ge=1, le=16)] = 3
    """K: number of clusters that an image's candidates are split into."""
    max_per_cluster: Annotated[int, Field(ge=1, le=64)] = 1
    """Pairs taken from each cluster, most similar first; the paper's 1 gives at most K pairs per
    image."""
    max_pairs_per_image: Count = 0
    """Maximum pairs of one image, the most similar first (ours); 0: no limit."""
    max_pairs_per_group: Count = 0
    """Maximum pairs of one group, the most similar first (ours): the source's group (a video), else
    the image's folder. 0: no limit."""
    gamma: Annotated[float, Field(gt=0)] = 0.1
    """Width of the RBF affinity exp(-gamma d^2)."""
    weights: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (0.4, 0.6)
    """Weight of each embedder in the concatenated feature."""
    normalised: bool = True
    """Whether unit vectors are clustered, or raw ones (the stored norm multiplied back)."""
    seed: FilledSeed = 0
    align: bool = False
    """Whether the second image of a pair is warped onto the first, and both are cropped to what
    they share (ours), where keypoints fit one homography, or phases one shift."""
    uncounted: ClassVar[frozenset[str]] = frozenset(
        {"max_pairs_per_image", "max_pairs_per_group", "align"}
    )


class KeypointsConfig(Section):
    """Keypoints found in each image."""

    max_count: Annotated[int, Field(ge=50, le=10_000)] = 500
    """Maximum keypoints of an image, the strongest first; each takes 136 bytes."""
    max_side: Annotated[int, Field(ge=64, le=4096)] = 640
    """Longer side, in pixels, that larger images are scaled down to."""


class MatchingConfig(Section):
    """Pairs of photographs with matching keypoints (ours): other views of the same objects."""

    enabled: bool = False
    """Whether each image's first neighbours are matched by keypoints, too; never of rendered
    scenes."""
    min_matches: Annotated[int, Field(ge=8)] = 15
    """Minimum keypoints that match and agree with one fundamental matrix."""
    max_pairs: Annotated[int, Field(ge=1, le=32)] = 3
    """Maximum pairs of each anchor, the most matches first."""
    keypoints: KeypointsConfig = KeypointsConfig()
    max_similarity: Annotated[Share, UNSET, Filled("mining.max_similarity")] = 0.0


class UnitingConfig(Section):
    """Settings of the union of all pairs; made from a profile, never written in one."""

    max_pairs_per_image: Count
    """Maximum pairs of one image; 0: no limit."""
    max_pairs_per_group: Annotated[Count, UNSET] = 0
    """Maximum pairs of one group; 0: no limit."""
    excludes: bool
    """Whether images are excluded."""

    @property
    def is_capped(self) -> bool:
        """Return whether a pair depends on all others."""
        return bool(self.max_pairs_per_image or self.max_pairs_per_group)


class AlignmentConfig(Section):
    """Settings of the alignment of mined pairs; made from a profile, never written in one."""

    align: bool
    """Whether the second image is warped onto the first."""
    tiles: TilesConfig

    @property
    def enabled(self) -> bool:
        """Return whether pairs are aligned or cut into tiles."""
        return self.align or bool(self.tiles.size)


class NounsConfig(Section):
    """Nouns of captions."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"finder", "model", "revision"})
    finder: FinderName = "spacy"
    """A spaCy pipeline, or a plugin's finder of nouns."""
    model: Annotated[str, Field(min_length=1)] = "en_core_web_sm"
    """An installed spaCy pipeline, or the folder of one."""
    revision: str = ""
    """The pipeline's version, or the hash of its folder's files; empty: what is on this machine."""
    proper_nouns: bool = True
    """Whether names count as nouns."""


FILLERS = (
    *("image", "picture", "photo", "photograph", "pic", "view", "background", "foreground"),
    *(
        "front",
        "back",
        "side",
        "left",
        "right",
        "top",
        "bottom",
        "middle",
        "center",
        "centre",
        "corner",
    ),
    *("thing", "something", "anything", "one", "lot", "kind", "type", "part"),
)
"""Nouns that refer to an image, not to what it shows (ours)."""


class NounPairsConfig(Section):
    """Pairs of images whose captions share nouns (after paper 003, section 3.1)."""

    stop_words: tuple[str, ...] = FILLERS
    """Nouns that do not count."""
    levels: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=16)] = (2, 4, 6, 8)
    """Minimum shared nouns of each level of similarity, rising (ours; the paper's benchmark has 8
    or more)."""
    pairs_per_level: Annotated[int, Field(ge=1, le=64)] = 1
    """Pairs drawn for each image from each level."""
    max_candidates: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    """Maximum images compared with each image, starting with those that share its rarest nouns."""
    seed: FilledSeed = 0

    @model_validator(mode="after")
    def _levels_rise(self) -> "NounPairsConfig":
        if sorted(set(self.levels)) != list(self.levels):
            raise ValueError(f"levels {list(self.levels)} must rise")
        return self


class RegionsConfig(Section):
    """Regions (ours): what a description names must lie where the two images differ."""

    enabled: bool = False
    """Whether images are aligned, and descriptions checked by what changed between them; needs
    `detection` and `nouns`."""
    min_area: Share = 0.0005
    """Minimum size of a changed place, as a share of what both images show."""
    max_unchanged_area: Share = 0.004
    """Maximum size of a changed place where a description says that nothing changed."""
    min_changed: Annotated[Share, Field(gt=0)] = 0.1
    """Minimum share of a named thing's box that changed."""
    detection: Annotated[DetectionConfig | None, UNSET, Filled("detection")] = None
    nouns: Annotated[NounsConfig | None, UNSET, Filled("nouns")] = None
    included: Annotated[tuple[str, ...], UNSET, Filled("tagging.included")] = ()
    word_list: Annotated[str, UNSET, Filled("tagging.no_things")] = ""

    @property
    def models(self) -> tuple[DetectionConfig, NounsConfig]:
        """Return the settings of the detector and of the pipeline, which a build has filled in."""
        if self.detection is None or self.nouns is None:
            raise ValueError("no detector and no nouns were filled into RegionsConfig")
        return self.detection, self.nouns


class RejectedTextsConfig(Section):
    """Rejected texts by retrieval."""

    seed: FilledSeed = 0
    max_candidates: Annotated[int, Field(ge=1, le=1000)] = 50
    """Maximum descriptions tried, the most similar first, before retrieval gives up."""
    max_searched: Positive = 100_000
    """Maximum descriptions searched; of more, a random sample is."""


RejectedBy = Literal[
    "drawn",
    "hardest",
    "own",
    "retrieved",
    "swapped",
    "edited",
    "random",
    "sampled",
    "blind",
    "counterfactual",
]
"""Choice of the rejected text: a rule, or the maker whose texts come first."""


class RandomTextsConfig(Section):
    """Random rejected texts: descriptions of other pairs, drawn (the arm "DPO" of paper 000)."""

    seed: FilledSeed = 0
    enabled: bool = False
    """Whether descriptions of other pairs are drawn at random as rejected texts."""
    max_candidates: Annotated[int, Field(ge=1, le=1000)] = 50
    """Maximum descriptions tried before drawing gives up."""
    max_searched: Positive = 100_000
    """Maximum descriptions that are drawn from; of more, a random sample is."""


class PreferencesConfig(Section):
    """Composition of preferences."""

    rejected: RejectedBy = "drawn"
    """Which text is rejected: one drawn by the pair's key, the closest to the chosen text, one that
    a model wrote itself (`own`: sampled, blind), or that of a maker, where there is one. The others
    are negatives."""
    seed: FilledSeed = 0
    split: Literal["published", "drawn"] = "published"
    """Whether pairs keep the splits of their source, if it has at least two; others are drawn."""
    split_of: Annotated[dict[str, str], UNSET, Filled("per_source")] = Field(
        default_factory=dict[str, str]
    )
    validation_share: Share = 0.1
    """Share of the components (connected pairs) that go to the validation split."""
    test_share: Share = 0.1
    """Share of the components that go to the test split."""

    @model_validator(mode="after")
    def _train_is_left(self) -> "PreferencesConfig":
        if self.validation_share + self.test_share >= 1:
            total = f"validation_share {self.validation_share} + test_share {self.test_share}"
            raise ValueError(f"{total} must be below 1, so that pairs are left to train on")
        return self


class RunConfig(Section):
    """How a build is cut into shards and spread over workers; none of it changes a row."""

    runner: Literal["processes", "dask"] = "processes"
    """Where shards run: in worker processes of this machine, or in the workers of a Dask
    cluster."""
    address: str = ""
    """The cluster's Dask scheduler ("tcp://host:8786"); empty: one is started on this machine for
    the build."""
    workers: Count = 0
    """Worker processes; 0: one per core, or all that the cluster has."""
    rows_per_shard: Positive = 200
    """Input rows of a shard, except for stages with a size of their own: images and given_* (by the
    source's kind), admitted (3000), neighbours (2000), similar_pairs (1000), matched_pairs (100),
    nouns (2000), noun_pairs (50000), alignments (100), aligned_images (100), pairs (20000),
    retrieved and random (5000), sampled, blind and hardness (100), mentions (2000), fitted (400),
    expected (8), splits (100000) and preferences (25)."""
    rows_per_shard_of: dict[str, Positive] = Field(default_factory=dict[str, int])
    """Input rows of a shard by stage ("images: 6"); overrides all other sizes."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of 127.0.0.1 where Prometheus reads each stage's rows, failures, tokens and seconds
    during a build; needs the extra `metrics`. 0: none."""
    budget: BudgetConfig = BudgetConfig()


class Profile(Section):
    """Build profile: every setting that a build accepts."""

    name: str = "scenes"
    """Name of the profile."""
    about: str = ""
    """Purpose of the profile, in one sentence."""
    source: str = "scenes:"
    """Source when the command line names none (``kind:path``)."""
    sources: Names = ()
    """Further sources of the same dataset (``kind:path``), read after ``source``."""
    per_source: dict[str, SourceRule] = Field(default_factory=dict[str, SourceRule])
    """Weights and splits of sources, by their kinds: `{spot-the-diff: {weight: 0.5, split:
    test}}`."""
    seed: Seed = 0
    """Seed of everything that is drawn: scenes, clusters, the wording of prompts, samples,
    splits."""
    pairing: Literal["similarity", "nouns"] = "similarity"
    """Whether images pair by similarity, or by nouns that their captions share."""
    images: ImagesConfig = ImagesConfig()
    reading: ReadingConfig = ReadingConfig()
    scenes: ScenesConfig = ScenesConfig()
    planted: PlantedConfig = PlantedConfig()
    tiles: TilesConfig = TilesConfig()
    robustness: RobustnessConfig = RobustnessConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    exclude: ExcludeConfig = ExcludeConfig()
    filters: FiltersConfig = FiltersConfig()
    search: SearchConfig = SearchConfig()
    mining: MiningConfig = MiningConfig()
    matching: MatchingConfig = MatchingConfig()
    nouns: NounsConfig = NounsConfig()
    noun_pairs: NounPairsConfig = NounPairsConfig()
    prompts: str = ""
    """Folder of prompts that replace ours (`describe_image.j2`), read once per build; `pairwright
    prompts` lists them. "": ours."""
    prompt_texts: Annotated[dict[str, str], UNSET, FOUND] = Field(default_factory=dict[str, str])
    models: dict[ModelName, ChatConfig] = Field(default_factory=dict[str, ChatConfig])
    """Served models: `chat` sees images; `language` and `judge` default to it; others by the names
    in sections."""
    captions: CaptionsConfig = CaptionsConfig()
    differences: DifferencesConfig = DifferencesConfig()
    controls: ControlsConfig = ControlsConfig()
    grounding: GroundingConfig = GroundingConfig()
    regions: RegionsConfig = RegionsConfig()
    confirming: ConfirmingConfig = ConfirmingConfig()
    judging: JudgingConfig = JudgingConfig()
    comparisons: ComparisonsConfig = ComparisonsConfig()
    questions: QuestionsConfig = QuestionsConfig()
    rejected_texts: RejectedTextsConfig = RejectedTextsConfig()
    random_texts: RandomTextsConfig = RandomTextsConfig()
    sampled_texts: SampledTextsConfig = SampledTextsConfig()
    counterfactuals: CounterfactualsConfig = CounterfactualsConfig()
    statements: StatementsConfig = StatementsConfig()
    tagging: TaggingConfig = TaggingConfig()
    detection: DetectionConfig = DetectionConfig()
    segmentation: SegmentationConfig = SegmentationConfig()
    elements: ElementsConfig = ElementsConfig()
    removals: RemovalsConfig = RemovalsConfig()
    inspection: InspectionConfig = InspectionConfig()
    rejections: RejectionsConfig = RejectionsConfig()
    expected_images: ExpectedImagesConfig = ExpectedImagesConfig()
    preferences: PreferencesConfig = PreferencesConfig()
    hardness: HardnessConfig = HardnessConfig()
    gates: GatesConfig = GatesConfig()
    health: HealthConfig = HealthConfig()
    run: RunConfig = RunConfig()
    stages: Annotated[dict[str, SerializeAsAny[Section]], BeforeValidator(read_settings)] = Field(
        default_factory=dict[str, Section]
    )
    """Plugin stages to run, by name, each with its settings."""

    @property
    def source_kind(self) -> str:
        """Return the kind of the source."""
        return self.source.partition(":")[0]

    @property
    def all_sources(self) -> tuple[str, ...]:
        """Return the source and the further ones."""
        return (self.source, *self.sources)

    @property
    def source_path(self) -> str:
        """Return the path of the source."""
        return self.source.partition(":")[2]

    @property
    def source_config(self) -> SourceConfig:
        """Return the settings of the sources stage."""
        return SourceConfig(
            kind=self.source_kind,
            path=self.source_path,
            further=self.sources,
            weights={kind: rule.weight for kind, rule in self.per_source.items()},
            images=self.images,
            reading=self.reading,
            scenes=self.complete(self.scenes),
            planted=self.complete(self.planted),
            robustness=self.robustness,
            align=self.mining.align,
            tiles=self.tiles,
        )

    @property
    def splitting(self) -> PreferencesConfig:
        """Return the settings for splitting pairs."""
        rules = {kind: rule.split for kind, rule in self.per_source.items() if rule.split}
        return self.complete(self.preferences).fill(split_of=rules)

    @property
    def shown_ranges(self) -> str:
        """Return how images of more than 8 bits are shown, in words; empty: none was found."""
        images = self.resolved.images if isinstance(self, ResolvedProfile) else self.images
        bands = ", ".join(map(str, images.bands))
        if isinstance(images.range, str):
            ranges = "; ".join(images.measured)
        else:
            ranges = f"{images.range[0]:g} to {images.range[1]:g} (images.range)"
        return f"{ranges}; bands {bands}" if bands else ranges

    @property
    def caveat(self) -> str:
        """Return a known limit of its embedders on its source; empty: none is known."""
        if self.source_kind == "scenes" or not {*self.embedding.embedders} <= {*DESCRIPTORS}:
            return ""
        return NEAR_COPIES.format(
            ", matching keypoints other views of the same objects" if self.matching.enabled else ""
        )

    @property
    def searching(self) -> SearchConfig:
        """Return the settings of the search: images that may pair are no copies."""
        if self.mining.max_similarity <= self.search.min_copy_similarity:
            return self.search
        return self.search.model_copy(update={"min_copy_similarity": 1.0})

    @property
    def language_caveat(self) -> str:
        """Return which checks are off for texts in another language; empty: none is."""
        limits: list[str] = []
        for name, section in (("captions", self.captions), ("questions", self.questions)):
            if section.is_served and section.language:
                limits.append(f"{name}.language={section.language}: {OFF_IN_OTHER_LANGUAGES[name]}")
        return ". ".join(limits)

    @property
    def uniting(self) -> UnitingConfig:
        """Return the settings of the union of pairs."""
        return UnitingConfig(
            max_pairs_per_image=self.mining.max_pairs_per_image,
            max_pairs_per_group=self.mining.max_pairs_per_group,
            excludes=bool(self.exclude.sources) or self.filters.is_on,
        )

    @property
    def aligning(self) -> AlignmentConfig:
        """Return the settings of the alignment of mined pairs."""
        return AlignmentConfig(align=self.mining.align, tiles=self.tiles)

    @property
    def targets(self) -> TargetsConfig:
        """Return the settings for choosing the elements to remove from rendered scenes."""
        return TargetsConfig(enabled=self.rejections.by_graphs, elements=self.elements)

    @property
    def fitted(self) -> FittedConfig:
        """Return the settings for embedding images without an element: the images' own embedder."""
        return FittedConfig(
            enabled=self.rejections.by_vectors,
            embedder=self.rejections.embedder,
            clip=self.embedding.clip,
            batch_size=self.embedding.batch_size,
        )

    def complete(self, section: S) -> S:
        """Return a section with the seed, and the served model that it asks, filled in."""
        seed = type(section).model_fields.get("seed")
        if seed and filled_by(seed):
            section = section.fill(seed=self.seed)
        if isinstance(section, ServedSection) and section.may_ask:
            section = section.fill(chat=self.chat_models[section.asks])
        return section

    @property
    def resolved(self) -> "Profile":
        """Return the profile with unset fields filled by what a build found."""
        return self

    def model_named(self, name: str) -> str:
        """Return the key in ``models`` that a name resolves to; by default differences' writer."""
        name = name or self.differences.model
        return name if name in self.models else "chat"

    @property
    def chat_models(self) -> dict[str, ChatConfig]:
        """Return the served model that each name stands for."""
        names = ("", *STANDARD_MODELS, *self.models)
        return {name: self.models.get(self.model_named(name), ChatConfig()) for name in names}

    @property
    def model_names(self) -> dict[Group, tuple[str, ...]]:
        """Return the names of the models in each place of the line."""
        return {
            "embedders": self.embedding.embedders,
            "taggers": self.tagging.taggers,
            "detectors": (self.detection.detector,),
            "segmenters": (self.segmentation.segmenter,),
            "removers": (self.removals.inpainter,),
            "scorers": (self.rejections.scorer, self.grounding.scorer),
            "nouns": (self.nouns.finder,),
        }

    @property
    def named(self) -> Iterator[str]:
        """Yield names that a plugin may define: "sources.folder", "stages.brightness"."""
        for source in (self.source, *self.exclude.sources):
            yield f"sources.{source.partition(':')[0]}"
        for group, names in self.model_names.items():
            ours = MODEL_PLACES[group].names
            yield from (f"{group}.{name}" for name in names if name not in ours)
        for _, section in self:
            if isinstance(section, ValidatedSection):
                yield from (f"validators.{name}" for name in section.validators)
        yield from (f"stages.{name}" for name in self.stages)

    @model_validator(mode="before")
    @classmethod
    def _nothing_filled_is_given(cls, values: object) -> object:
        for name, marker in filled_by_hand(cls, values):
            raise ValueError(f"{name} cannot be set: it is filled in from {marker.origin}")
        return values

    @model_validator(mode="after")
    def _models_are_described_and_named(self) -> "Profile":
        sections = {**dict(self), **{f"stages.{name}": own for name, own in self.stages.items()}}
        asked = {own.asks: name for name, own in sections.items() if isinstance(own, ServedSection)}
        known = {*STANDARD_MODELS, *self.models}
        if strange := next((name for name in asked if name and name not in known), None):
            hint = f"describe it as models.{strange}, or choose from {', '.join(sorted(known))}"
            raise ValueError(f"{asked[strange]}.model {strange!r}: no such model; {hint}")
        if unused := next(
            (name for name in self.models if name not in {*STANDARD_MODELS, *asked}), None
        ):
            usual = ", ".join(STANDARD_MODELS)
            raise ValueError(
                f"models.{unused}: no section's `model` names it; sections ask {usual} by default"
            )
        return self

    @model_validator(mode="after")
    def _embedders_fit(self) -> "Profile":
        embedders = self.embedding.embedders
        scorers = {
            "grounding.enabled": self.grounding.scorer if self.grounding.enabled else "",
            "rejections.enabled": self.rejections.scorer if self.rejections.by_vectors else "",
        }
        names = ", ".join(embedders)
        for name, scorer in scorers.items():
            if not scorer or scorer in embedders:
                continue
            vectors = "CLIP vectors" if scorer == "clip" else f"vectors of {scorer}"
            hint = (
                f"put {scorer} among them (with a weight of its own in mining.weights), "
                f"or set {name} to false"
            )
            raise ValueError(
                f"{name} needs {vectors}, embedding.embedders has no {scorer}, only {names}: {hint}"
            )
        if "clip" not in embedders and (self.filters.heads.aesthetic or self.filters.heads.unsafe):
            raise ValueError(
                f"filters.heads scores CLIP vectors: put clip into embedding.embedders, now {names}"
            )
        if len(self.mining.weights) != len(embedders):
            raise ValueError(
                f"mining.weights has {len(self.mining.weights)} numbers "
                f"for {len(embedders)} embedders"
            )
        return self


Found = dict[str, str | tuple[str, ...] | float | dict[str, str] | None]
"""Values that a build found, by the dotted name of the field: ``embedding.clip.revision``; none: a
parameter of requests that is left out."""


class ResolvedProfile(Profile):
    """Profile with what a build found before it began; the settings stay as given."""

    found: Found = Field(default_factory=lambda: Found())
    """Revisions of models, hashes of files, names of served models, location of excluded images,
    texts of replaced prompts."""

    @property
    def resolved(self) -> Profile:
        """Return the profile with unset fields filled by what was found."""
        resolved = Profile.model_construct(
            **{name: value for name, value in self if name != "found"}
        )
        for name, value in self.found.items():
            resolved = with_field(resolved, name.split("."), value)
        return resolved


def add_findings(profile: Profile, found: Mapping[str, Any]) -> ResolvedProfile:
    """Return a profile with further findings."""
    known: Found = profile.found if isinstance(profile, ResolvedProfile) else {}
    own = {name: value for name, value in profile if name != "found"}
    return ResolvedProfile.model_construct(**own, found={**known, **found})


def section_name(kind: type[Section]) -> str:
    """Return the dotted name of the profile's section of a type; empty: it is made of others."""
    return _section_names(Profile).get(kind, "")


@cache
def _section_names(kind: type[Section], prefix: str = "") -> dict[type[Section], str]:
    names: dict[type[Section], str] = {}
    for field_name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section) and not filled_by(field):
            name = f"{prefix}{field_name}"
            names = {inner: name} | _section_names(inner, f"{name}.") | names
    return names


class BuildRecord(Section):
    """Build record: everything that ``resume`` and ``status`` need."""

    plugins: Annotated[dict[str, str], AfterValidator(require_plugins)] = Field(
        default_factory=dict[str, str]
    )
    """Origin of each plugin used, by group and name; first, since reading the profile needs the
    plugins."""
    items: tuple[str, ...]
    """The parts that list the source, in its order."""
    profile: ResolvedProfile
    """All settings of the build, and what it found."""
    limit: Positive | None
    """Number of images read from the source; none: all."""
    rescans: int = 0
    """How often all bytes of the source were read again (`--rescan`)."""
    until: str
    """The last stage; empty: all."""
