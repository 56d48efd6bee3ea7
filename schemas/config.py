"""What a profile may say: one frozen model per section, one sentence per field, limits in the types.

Every stage's function receives its own section, never the whole profile. A field that cannot change a stage's rows (how
many workers, how large a shard) is in ``RunConfig``, which no fingerprint includes.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, WithJsonSchema, model_validator

from pairwright.schemas.bounds import BudgetConfig, GatesConfig, HealthConfig
from pairwright.schemas.encoders import ClipConfig, Dinov2Config
from pairwright.schemas.plugins import check_name, read_settings, require_plugins
from pairwright.schemas.removing import (
    Batch,
    DetectionConfig,
    ElementsConfig,
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
    UNSET,
    Count,
    Filled,
    FilledSeed,
    Names,
    Positive,
    Section,
    Seed,
    Share,
    compose,
    filled_by_hand,
    read_filled,
    with_field,
)
from pairwright.schemas.writing import (
    CaptionsConfig,
    ChatConfig,
    ComparisonsConfig,
    ControlsConfig,
    CounterfactualsConfig,
    DifferencesConfig,
    GroundingConfig,
    JudgingConfig,
    ModelName,
    QuestionsConfig,
    SampledTextsConfig,
    ServedSection,
    StatementsConfig,
    ValidatedSection,
)

STANDARD_MODELS = ("chat", "language", "judge")
"""The names of served models that sections ask by default."""
EMBEDDERS = ("colour-layout", "gradients", "clip", "dinov2")
EmbedderName = Annotated[
    str,
    AfterValidator(lambda name: check_name("embedders", name, EMBEDDERS)),
    WithJsonSchema({"enum": [*EMBEDDERS, "a plugin's"]}),
]


class ImagesConfig(Section):
    """Say which images are accepted."""

    max_pixels: Positive = 40_000_000
    """Images of more pixels are dropped before they are decoded."""
    max_bytes: Positive = 200_000_000
    """Files of more bytes are dropped before they are read."""
    min_side: Positive = 16
    """Images with a side below this many pixels are dropped."""
    licence: str = ""
    """Licence written beside every image of this source."""


class ReadingConfig(Section):
    """Say how sources of other layouts are read."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"images"})

    splits: Names = ()
    """Splits that are read, by the source's own names ("train"); empty: all."""
    image_column: str = ""
    """Column of a table that holds the images; empty: found by its type."""
    caption_column: str = ""
    """Column of a table, or field of a manifest, that holds captions; empty: found by its name."""
    images: str = ""
    """Folder of the images that a manifest names; empty: the manifest's own."""


class ScenesConfig(Section):
    """Say what is rendered."""

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
    """Light paths per pixel, before the denoiser: more gives truer shadows and is slower."""
    no_change_share: Share = 0.15
    """Share of photographs that differ from their base by viewpoint or light only."""


class RobustnessConfig(Section):
    """Corruption of the images and texts of a source, to measure what that costs (paper 001, A.3)."""

    corruption: Literal["none", "gaussian-noise", "fog"] = "none"
    """Corruption of each image, as in ImageNet-C."""
    severity: Annotated[int, Field(ge=1, le=5)] = 5
    """Severity of the corruption; the paper: 5."""
    word_share: Share = 0.0
    """Share of the words that are replaced in each text that the source brings; the paper: 0.2, 0.4, 0.6 and 0.8."""

    @property
    def is_off(self) -> bool:
        """Say whether images and texts stay as they are."""
        return self.corruption == "none" and not self.word_share


class SourceConfig(Section):
    """Input of the sources stage; made of other sections.

    Where the source is does not identify rows: a moved folder holds the same images. The items' own keys say what is
    rendered. Where images and texts are not made worse, it is as if there were no robustness.
    """

    uncounted: ClassVar[frozenset[str]] = frozenset({"path", "scenes"})
    kind: Annotated[str, Filled("source_kind")]
    path: Annotated[str, Filled("source_path")]
    images: Annotated[ImagesConfig, Filled("images")]
    reading: Annotated[ReadingConfig, Filled("reading")]
    scenes: Annotated[ScenesConfig, Filled("scenes")]
    robustness: Annotated[RobustnessConfig, Field(exclude_if=lambda value: value.is_off), Filled("robustness")] = (
        RobustnessConfig()
    )


class EmbeddingConfig(ModelSection):
    """Say which vectors are made of each image."""

    uncounted: ClassVar[frozenset[str]] = ModelSection.uncounted | {"clip", "dinov2"}
    embedders: Annotated[tuple[EmbedderName, ...], Field(min_length=1, max_length=4)] = ("colour-layout", "gradients")
    """Which embedders, in the order that mining weighs them."""
    clip: ClipConfig = ClipConfig()
    dinov2: Dinov2Config = Dinov2Config()
    batch_size: Batch = 0
    """Images that an encoder takes at once; 0: as many as fit, which may change the last digits of its vectors."""


class ExcludeConfig(Section):
    """Say which images are kept out because they are nearly those of a given set (ours)."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"sources", "files"})
    sources: Names = ()
    """Sources of the images to keep out, the test images of a benchmark above all; embedded like the images."""
    max_hash_distance: Annotated[int, Field(ge=0, le=31)] = 4
    """Maximum bits, of 64, in which the perceptual hash of an image that is kept out differs from an excluded one's."""
    min_similarity: Share = 0.96
    """Images that are at least this similar to an excluded one, by every embedder, are kept out, too."""
    files: Annotated[tuple[str, ...], UNSET, Filled("")] = ()
    marks: Annotated[tuple[str, ...], UNSET, Filled("")] = ()


class SearchConfig(Section):
    """Say how neighbours are searched."""

    k: Annotated[int, Field(ge=1, le=1024)] = 64
    """Neighbours kept per image and embedder, the image itself not counted."""
    max_exact_images: Count = 200_000
    """Number of images up to which every pair is compared; above, an index of cells is searched."""
    probes: Annotated[int, Field(ge=0, le=65536)] = 0
    """Cells of the index that are searched per image; 0: one of 16, and at least 16."""
    min_similarity: Share = 0.78
    """Similarity above which recall is measured and cut-off lists are reported; at most ``mining.min_similarity``."""


class MiningConfig(Section):
    """Say which neighbours become pairs (paper 001, Appendix D.1; defaults are the paper's)."""

    min_best_similarity: Share = 0.80
    """tau_max: a set whose highest similarity is below this is dropped, per embedder."""
    check_worst: Literal["none", "before", "after"] = "none"
    """Whether the paper's second set test runs, on the raw top-k (before) or the kept candidates (after)."""
    min_worst_similarity: Share = 0.78
    """tau_min: with ``check_worst``, a set whose lowest similarity is below this is dropped."""
    min_similarity: Share = 0.78
    """Neighbours less similar than this are left out, per embedder."""
    max_similarity: Share = 0.95
    """Neighbours more similar than this are left out, per embedder."""
    min_hash_distance: Annotated[int, Field(ge=0, le=32)] = 0
    """Candidates whose hash differs from the anchor's in fewer of 64 bits are left out first (ours); 0: none."""
    max_ratio: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Maximum distance (1 - similarity) of a candidate, as a share of that of the anchor's nearest strangers (ours,
    after Lowe's ratio test), which adapts as a collection grows; 1: any."""
    group: Annotated[int, UNSET, Filled("scenes.photographs")] = 0
    """With `max_ratio`: images that show one thing. An image has one partner fewer; neighbours behind are strangers."""
    clusters: Annotated[int, Field(ge=1, le=16)] = 3
    """K: how many clusters an image's candidates are split into."""
    max_per_cluster: Annotated[int, Field(ge=1, le=64)] = 1
    """Pairs taken from each cluster, most similar first; the paper's 1 gives K pairs per image at the most."""
    max_pairs_per_image: Count = 0
    """Maximum pairs that one image is in, the most similar pairs first (ours); 0: no limit."""
    gamma: Annotated[float, Field(gt=0)] = 0.1
    """Width of the RBF affinity exp(-gamma d^2)."""
    weights: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (0.4, 0.6)
    """Weight of each embedder in the concatenated feature."""
    normalised: bool = True
    """Whether unit vectors are clustered, or raw ones (the stored norm multiplied back)."""
    seed: FilledSeed = 0
    uncounted: ClassVar[frozenset[str]] = frozenset({"max_pairs_per_image"})


class UnitingConfig(Section):
    """Settings of the union of all pairs; made from a profile, never written in one."""

    max_pairs_per_image: Count
    """Pairs that one image may be in; 0: any number."""
    excludes: bool
    """Whether images are kept out."""


class NounsConfig(Section):
    """Say how the nouns of captions are found."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"model", "revision"})
    model: Annotated[str, Field(min_length=1)] = "en_core_web_sm"
    """An installed spaCy pipeline, or the folder of one."""
    revision: str = ""
    """The pipeline's version, or the hash of its folder's files; empty: what is on this machine."""
    proper_nouns: bool = True
    """Whether names count as nouns."""


FILLERS = (
    *("image", "picture", "photo", "photograph", "pic", "view", "background", "foreground"),
    *("front", "back", "side", "left", "right", "top", "bottom", "middle", "center", "centre", "corner"),
    *("thing", "something", "anything", "one", "lot", "kind", "type", "part"),
)
"""What people say when they talk about an image, and not what it shows (ours)."""


class NounPairsConfig(Section):
    """Say which images pair by the nouns that their captions share (after paper 003, section 3.1)."""

    stop_words: tuple[str, ...] = FILLERS
    """Nouns that do not count."""
    levels: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=16)] = (2, 4, 6, 8)
    """Levels of similarity: the fewest shared nouns of each, rising (ours; the paper's benchmark has 8 or more)."""
    pairs_per_level: Annotated[int, Field(ge=1, le=64)] = 1
    """Pairs drawn for each image from each level."""
    max_candidates: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    """Maximum images compared with each image, those that share its rarest nouns first."""
    seed: FilledSeed = 0

    @model_validator(mode="after")
    def _levels_rise(self) -> "NounPairsConfig":
        if sorted(set(self.levels)) != list(self.levels):
            raise ValueError(f"levels {list(self.levels)} must rise")
        return self


class RegionsConfig(Section):
    """Say whether what a description names must lie where two images that can be aligned differ (ours)."""

    enabled: bool = False
    """Whether images are aligned, and descriptions checked by the places in which they differ; needs `detection` and
    `nouns`."""
    min_area: Share = 0.0005
    """Changed places of a smaller share of what both images show are left out."""
    large_area: Share = 0.01
    """A changed place from this share on lowers the score of a description that names nothing there."""
    min_overlap: Annotated[Share, Field(gt=0)] = 0.5
    """A thing lies in a changed place where their boxes share at least this much of the smaller one."""
    detection: Annotated[DetectionConfig | None, UNSET, Filled("detection", when="enabled")] = None
    nouns: Annotated[NounsConfig | None, UNSET, Filled("nouns", when="enabled")] = None


class RejectedTextsConfig(Section):
    """Say how rejected texts are made."""

    seed: FilledSeed = 0
    max_candidates: Annotated[int, Field(ge=1, le=1000)] = 50
    """Maximum descriptions that are tried, the most similar first, before retrieval gives up."""
    max_searched: Positive = 100_000
    """Maximum descriptions that are searched; of more, a random sample."""


class PreferencesConfig(Section):
    """Say how preferences are put together."""

    rejected: Literal["drawn", "hardest", "own"] = "drawn"
    """Whose text is the rejected one: drawn by the pair's key, the closest to the chosen one, or of those that a model
    wrote itself (sampled, refuted) the closest, where there is one (others: negatives)."""
    seed: FilledSeed = 0
    split: Literal["published", "drawn"] = "published"
    """Whether pairs keep the splits that their source names, where it names two at least; others are drawn."""
    validation_share: Share = 0.1
    """Share of the components (connected pairs) that go to the validation split."""
    test_share: Share = 0.1
    """Share of the components that go to the test split."""

    @model_validator(mode="after")
    def _train_is_left(self) -> "PreferencesConfig":
        if self.validation_share + self.test_share >= 1:
            raise ValueError(f"validation {self.validation_share} + test {self.test_share} leave nothing to train on")
        return self


class RunConfig(Section):
    """Say how the work is cut and spread; none of it changes a row."""

    runner: Literal["processes", "dask"] = "processes"
    """Where shards run: in worker processes of this machine, or in the workers of a Dask cluster."""
    address: str = ""
    """The cluster's Dask scheduler ("tcp://host:8786"); empty: one is started on this machine for the build."""
    memory_gb_of: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict[str, float])
    """Gigabytes (10^9 bytes) that a shard of a named stage takes, for clusters that give out memory."""
    workers: Count = 0
    """Worker processes; 0: one per core, or all that the cluster has."""
    rows_per_shard: Positive = 200
    """Input rows of a shard, but of stages with a size of their own: reading the source (images, given_*; by its kind),
    admitted (3000), neighbours (2000), similar_pairs (1000), nouns (2000), noun_pairs (50000), pairs (20000), retrieved
    (5000), sampled (100), mentions (2000), fitted (400), splits (100000) and preferences (25)."""
    rows_per_shard_of: dict[str, Positive] = Field(default_factory=dict[str, int])
    """Input rows of a shard of named stages, before all other sizes ("images: 6")."""
    budget: BudgetConfig = BudgetConfig()


class Profile(Section):
    """Build profile: every setting that a build accepts."""

    name: str = "scenes"
    """What the profile is called."""
    about: str = ""
    """What the profile is for, in one sentence."""
    source: str = "scenes:"
    """Where the images come from when the command line names no source (``kind:path``)."""
    seed: Seed = 0
    """Seed of everything that is drawn: scenes, clusters, the wording of prompts, samples, splits."""
    pairing: Literal["similarity", "nouns"] = "similarity"
    """Whether images pair by their similarity, or by the nouns that the captions brought by their source share."""
    images: ImagesConfig = ImagesConfig()
    reading: ReadingConfig = ReadingConfig()
    scenes: ScenesConfig = ScenesConfig()
    robustness: RobustnessConfig = RobustnessConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    exclude: ExcludeConfig = ExcludeConfig()
    search: SearchConfig = SearchConfig()
    mining: MiningConfig = MiningConfig()
    nouns: NounsConfig = NounsConfig()
    noun_pairs: NounPairsConfig = NounPairsConfig()
    models: dict[ModelName, ChatConfig] = Field(default_factory=dict[str, ChatConfig])
    """Served models: `chat` sees images; `language` and `judge` default to it; others as sections name them."""
    captions: CaptionsConfig = CaptionsConfig()
    differences: DifferencesConfig = DifferencesConfig()
    controls: ControlsConfig = ControlsConfig()
    grounding: GroundingConfig = GroundingConfig()
    regions: RegionsConfig = RegionsConfig()
    judging: JudgingConfig = JudgingConfig()
    comparisons: ComparisonsConfig = ComparisonsConfig()
    questions: QuestionsConfig = QuestionsConfig()
    rejected_texts: RejectedTextsConfig = RejectedTextsConfig()
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
    preferences: PreferencesConfig = PreferencesConfig()
    gates: GatesConfig = GatesConfig()
    health: HealthConfig = HealthConfig()
    run: RunConfig = RunConfig()
    stages: Annotated[dict[str, SerializeAsAny[Section]], BeforeValidator(read_settings)] = Field(
        default_factory=dict[str, Section]
    )
    """Stages of plugins that run, by name, each with its settings."""

    @property
    def source_kind(self) -> str:
        """Return which reader reads the source."""
        return self.source.partition(":")[0]

    @property
    def source_path(self) -> str:
        """Return where the source is."""
        return self.source.partition(":")[2]

    @property
    def sources(self) -> SourceConfig:
        """Return what the sources stage reads."""
        return compose(SourceConfig, self)

    @property
    def uniting(self) -> UnitingConfig:
        """Return how pairs are united."""
        return UnitingConfig(max_pairs_per_image=self.mining.max_pairs_per_image, excludes=bool(self.exclude.sources))

    @property
    def targets(self) -> TargetsConfig:
        """What chooses the elements that texts about rendered scenes need removed."""
        return compose(TargetsConfig, self)

    @property
    def fitted(self) -> FittedConfig:
        """Return what embeds the images without an element: the model that embeds the images."""
        return compose(FittedConfig, self)

    def section(self, name: str) -> Section:
        """Return a section as its stage gets it: with the profile's values in its ``Filled`` fields."""
        return read_filled(self.settled, name)

    @property
    def settled(self) -> "Profile":
        """Return the profile with what a build found in the place of what is not set."""
        return self

    def model_named(self, name: str) -> str:
        """Return which of ``models`` a name stands for; empty: the one that describes differences."""
        name = name or self.differences.model
        return name if name in self.models else "chat"

    @property
    def served(self) -> dict[str, ChatConfig]:
        """Return the served model that each name stands for."""
        names = ("", *STANDARD_MODELS, *self.models)
        return {name: self.models.get(self.model_named(name), ChatConfig()) for name in names}

    @property
    def named(self) -> Iterator[str]:
        """Yield what may be of a plugin: "sources.folder", "stages.brightness"."""
        for source in (self.source, *self.exclude.sources):
            yield f"sources.{source.partition(':')[0]}"
        yield from (f"embedders.{name}" for name in self.embedding.embedders if name not in EMBEDDERS)
        for _, section in self:
            if isinstance(section, ValidatedSection):
                yield from (f"validators.{name}" for name in section.validators)
        yield from (f"stages.{name}" for name in self.stages)

    @model_validator(mode="before")
    @classmethod
    def _nothing_filled_is_given(cls, values: object) -> object:
        for name, marker in filled_by_hand(cls, values):
            raise ValueError(f"{name} is no setting: it is filled in from {marker.origin}")
        return values

    @model_validator(mode="after")
    def _models_are_described_and_named(self) -> "Profile":
        sections = {**dict(self), **{f"stages.{name}": own for name, own in self.stages.items()}}
        asked = {own.asks: name for name, own in sections.items() if isinstance(own, ServedSection)}
        known = {*STANDARD_MODELS, *self.models}
        if strange := next((name for name in asked if name and name not in known), None):
            raise ValueError(
                f"{asked[strange]}.model {strange!r}: no such model; describe it as models.{strange}, or choose from "
                f"{', '.join(sorted(known))}"
            )
        if unused := next((name for name in self.models if name not in {*STANDARD_MODELS, *asked}), None):
            raise ValueError(
                f"models.{unused}: no section's `model` names it; sections ask {', '.join(STANDARD_MODELS)} by default"
            )
        return self

    @model_validator(mode="after")
    def _embedders_fit(self) -> "Profile":
        embedders = self.embedding.embedders
        by_clip = {"grounding.enabled": self.grounding.enabled, "rejections.enabled": self.rejections.by_clip}
        for name in (name for name, needed in by_clip.items() if needed and "clip" not in embedders):
            raise ValueError(
                f"{name} compares texts with the images' CLIP vectors: embedding.embedders has no clip, only "
                f"{', '.join(embedders)}. Put clip among them (with a weight of its own in mining.weights), or set "
                f"{name} to false"
            )
        if len(self.mining.weights) != len(embedders):
            raise ValueError(f"mining.weights has {len(self.mining.weights)} numbers for {len(embedders)} embedders")
        return self


Found = dict[str, str | tuple[str, ...]]
"""What a build found out, by the dotted name of the field that it stands for: ``embedding.clip.revision``."""


class ResolvedProfile(Profile):
    """Profile with what a build found out before it began: the settings themselves stay as they were given."""

    found: Found = Field(default_factory=dict[str, str | tuple[str, ...]])
    """Revisions of models, hashes of files, names of served models, and where excluded images are."""

    @property
    def settled(self) -> Profile:
        """Return the profile with what was found in the place of what is not set."""
        own = {name: value for name, value in self if name != "found"}
        settled = Profile.model_construct(**own)
        for name, value in self.found.items():
            settled = with_field(settled, name.split("."), value)
        return settled


def resolve(profile: Profile, found: Mapping[str, Any]) -> ResolvedProfile:
    """Return a profile with more that was found."""
    known: Found = profile.found if isinstance(profile, ResolvedProfile) else {}
    own = {name: value for name, value in profile if name != "found"}
    return ResolvedProfile.model_construct(**own, found={**known, **found})


class BuildRecord(Section):
    """Build record: all that ``resume`` and ``status`` have to know."""

    plugins: Annotated[dict[str, str], AfterValidator(require_plugins)] = Field(default_factory=dict[str, str])
    """Where what it uses of plugins comes from, by group and name; first, since the profile is read with them."""
    items: tuple[str, ...]
    """The parts that list the source, in its order."""
    profile: ResolvedProfile
    """Everything that the build was told, and what it found out."""
    limit: Positive | None
    """First N images of the source; none: all."""
    until: str
    """The last stage; empty: all."""
