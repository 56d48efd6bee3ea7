"""Settings of written texts, their checks, and served models."""

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.model_names import ScorerName
from pairwright.schemas.plugins import check_plugin_name
from pairwright.schemas.section import (
    UNSET,
    Count,
    Filled,
    FilledSeed,
    Names,
    Positive,
    Seconds,
    Section,
    Share,
)

Structured = Literal["auto", "vllm", "json", "none"]


def _no_key_itself(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
        return value
    raise ValueError(
        "must be the name of an environment variable, in capitals; never the key itself"
    )


KeyName = Annotated[str, BeforeValidator(_no_key_itself)]


class LaunchConfig(Section):
    """vLLM as the build starts it, in an environment or container of its own."""

    enabled: bool = False
    """Whether the build starts vLLM on this machine when a stage needs it, and stops it
    afterwards."""
    command: Names = ("vllm",)
    """The vllm executable, or a container's command up to and including "vllm" that shares the
    machine's network and stops with it (`docker run --rm --init --network host ...`)."""
    max_model_len: Positive = 8192
    """Tokens of a prompt, its images and its answer together."""
    max_images: Annotated[int, Field(ge=0, le=16)] = 2
    """Maximum images of a prompt; 0 for models that see none."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of each GPU's memory that vLLM may take."""
    tensor_parallel: Positive = 1
    """GPUs that share the model."""
    data_parallel: Count = 0
    """Copies of the model, each on its own GPUs; 0: as many as there are GPUs for."""
    reasoning_parser: str = ""
    """vLLM's parser of the model's thoughts (`--reasoning-parser`: qwen3, deepseek_r1, glm45, ...),
    which returns them apart from the answer; empty: none."""
    flags: tuple[str, ...] = ()
    """Further command-line arguments ("--quantization", "awq")."""
    download: bool = False
    """Whether vLLM may fetch missing weights from the Hub."""
    start_timeout_seconds: Seconds = 1800.0
    """Maximum wait until it has loaded, and if allowed fetched, its weights."""


def _write_body(value: object) -> object:
    """Return a mapping of further fields as JSON text, which a frozen section can hold."""
    if not value:
        return ""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError("must be a mapping of fields, or its JSON") from None
    if not isinstance(value, dict):
        raise ValueError("must be a mapping of fields, or its JSON")
    taken = sorted({"model", "messages", "stream", "n"} & value.keys())
    if taken:
        raise ValueError(f"{taken[0]}: is set for each request; leave it out")
    return json.dumps(value, sort_keys=True)


ExtraBody = Annotated[str, BeforeValidator(_write_body)]
"""Fields of a request in JSON; a profile may give them as a mapping."""
Parameter = Annotated[str | float | None, Field(union_mode="left_to_right")]
"""Parameter of a request: the name under which our value is sent, a number that is sent in place of
it, or null: it is left out."""


class RequestConfig(Section):
    """Parameters of a request: each is sent under its name, renamed, fixed or left out."""

    temperature: Parameter = "temperature"
    """Sampling temperature: its name in the request, a number for all requests, or null to leave it
    out."""
    top_p: Parameter = "top_p"
    """Nucleus sampling: its name, a number, or null."""
    seed: Parameter = "seed"
    """Seed of the attempt: its name, a number, or null; without it, each run has other results."""
    max_tokens: Parameter = "max_tokens"
    """Maximum tokens of the answer: its name (`max_completion_tokens`), a number, or null."""
    extra_body: ExtraBody = ""
    """Further fields of each request, as a mapping: `{chat_template_kwargs: {enable_thinking:
    false}}`, `{reasoning_effort: low}`, `{mm_processor_kwargs: {max_pixels: 501760}}`."""

    @property
    def extra_fields(self) -> dict[str, Any]:
        """Return the further fields of a request."""
        return json.loads(self.extra_body) if self.extra_body else {}


class ChatConfig(Section):
    """Served model: its addresses, and how it is asked."""

    uncounted: ClassVar[frozenset[str]] = frozenset(
        {
            "endpoint",
            "key",
            "max_concurrency",
            "timeout_seconds",
            "max_attempts",
            "patience_seconds",
            "launch",
        }
    )
    endpoint: Names = ()
    """Addresses of OpenAI-compatible servers (`http://127.0.0.1:8000/v1`); several share the
    load."""
    model: str = ""
    """The model's name on the server; empty: the only one that it serves."""
    revision: str = ""
    """Commit of the model, for the record: servers do not report it."""
    key: KeyName = "PAIRWRIGHT_API_KEY"
    """Environment variable that holds the server's key; never the key itself."""
    max_pixels: Annotated[int, Field(ge=784)] = 1_003_520
    """Maximum pixels of an image; larger ones are scaled down (1,003,520 are 1,280 tokens of
    Qwen2-VL)."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    """Sampling temperature; at 0, asking again gives the same answer."""
    top_p: Annotated[Share, Field(gt=0)] = 0.9
    """Nucleus sampling: tokens are drawn from the most likely ones up to this total probability."""
    thinking_tokens: Count = 0
    """Tokens that the model may think before it answers, added to the maximum of each request."""
    request: RequestConfig = RequestConfig()
    structured_output: Structured = "auto"
    """How the server is made to follow a grammar: vLLM's `structured_outputs`, a JSON schema in
    `response_format`, or not at all; auto: the first that works when a build starts."""
    max_concurrency: Annotated[int, Field(ge=1, le=4096)] = 256
    """Maximum concurrent requests of one worker; fewer while a server is full or slow."""
    timeout_seconds: Seconds = 300.0
    """Maximum wait for one answer."""
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 6
    """Maximum attempts at a request before its row fails, for temporary faults (busy, time-out, cut
    off)."""
    patience_seconds: Seconds = 120.0
    """Maximum time without any answer before the shard fails; its rows stay unfinished."""
    launch: LaunchConfig = LaunchConfig()


ModelName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
"""A served model's name in ``models``."""


class ServedSection(Section):
    """Section of a stage that may ask a served model."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"model"})
    shown_images: ClassVar[int] = 2

    seed: FilledSeed = 0
    model: ModelName = "chat"
    """The model that is asked, by its name in `models`."""
    chat: Annotated[ChatConfig | None, UNSET, Filled("models.NAME")] = None

    @property
    def asks(self) -> str:
        """Return the name of the model that is asked; empty: the one that describes differences."""
        return self.model

    @property
    def images(self) -> int:
        """Return how many images the model is shown at once."""
        return self.shown_images

    @property
    def is_served(self) -> bool:
        """Return whether the stage asks a model at all: one writes, or its switch is on."""
        return bool(
            "served" in getattr(self, "writer", "served") and getattr(self, "enabled", True)
        )

    @property
    def may_ask(self) -> bool:
        """Return whether it gets the settings of the model that it asks."""
        return self.is_served

    @property
    def served(self) -> ChatConfig:
        """Return the settings of the served model, which a build has filled in."""
        if self.chat is None:
            raise ValueError(f"no served model was filled into {type(self).__name__}")
        return self.chat


def served_parts(section: Section) -> Iterator[ServedSection]:
    """Yield the parts of a section that ask a served model: itself, or sections inside of it."""
    if isinstance(section, ServedSection) and section.is_served:
        yield section
    for _, value in section:
        if isinstance(value, Section):
            yield from served_parts(value)


class ValidatedSection(ServedSection):
    """Section of texts that validators check."""

    validators: tuple[
        Annotated[str, AfterValidator(lambda name: check_plugin_name("validators", name))], ...
    ] = ()
    """Validators of plugins that each text must pass, beside our own."""


Language = Annotated[str, UNSET, Field(pattern=r"^[^\W\d_][^\n{}<>]{0,40}$|^$")]
"""Language in which a model is asked to write, in English words; empty: English."""


class WrittenSection(ValidatedSection):
    """Section of texts that are always written, from scene graphs or by a served model."""

    writer: Literal["scene-graph", "served"] = "scene-graph"
    """Writer: the images' own scene graphs, or a served model."""


class CaptionsConfig(WrittenSection):
    """Descriptions of images."""

    shown_images: ClassVar[int] = 1
    max_tokens: Positive = 512
    """Maximum tokens of a description."""
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """Maximum tries for a description, each with another seed."""
    split: Literal["rules", "served"] = "rules"
    """How a description is split into sentences: at full stops (rules), or by the model, with the
    rules as fallback."""
    language: Language = ""
    """Language that the served model writes ("German"): a line of the prompt asks for it, and
    checks that need English words are off; empty: English."""

    @model_validator(mode="after")
    def _who_splits_is_there(self) -> "CaptionsConfig":
        if self.split == "served" and not self.is_served:
            raise ValueError("split served needs writer served: the writing model splits")
        return self


DifferenceWriters = Annotated[
    tuple[Literal["scene-graph", "served", "given"], ...],
    BeforeValidator(lambda value: value.split(",") if isinstance(value, str) else value),
    Field(min_length=1),
]


class DifferencesConfig(ValidatedSection):
    """Descriptions of differences."""

    writer: DifferenceWriters = ("scene-graph",)
    """Writers: scene graphs, of images that have them; a served model, of all others; and people
    (`given`: the source's texts, each sentence a row)."""
    verbs: Literal["natural", "paper"] = "natural"
    """Verbs that a served model's template draws: those that a noun phrase can follow ("shows",
    "contains"), or all of paper 001's list ("advertises", "is", "sets")."""
    max_tokens: Positive = 160
    """Maximum tokens of a description; twice as many at further attempts."""
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """Maximum tries for a description, each with another seed."""
    max_words: Positive = 120
    """Maximum words of a description (ours); longer ones are rejected, as runaway output."""
    candidates: Annotated[int, Field(ge=1, le=16)] = 1
    """Descriptions requested per pair (ours); with checks, the best that passes them all is
    taken."""

    @property
    def is_composed(self) -> bool:
        """Return whether texts of images with scene graphs are composed."""
        return "scene-graph" in self.writer

    @property
    def is_written(self) -> bool:
        """Return whether texts are written beside the source's own."""
        return self.writer != ("given",)


class ControlsConfig(ServedSection):
    """Controls (ours): served descriptions are checked by further questions to the model."""

    enabled: bool = False
    """Whether descriptions from a served model are checked by asking the model again."""
    model: ModelName | Literal[""] = ""
    """The model that is asked, by its name in `models`; empty: the one that describes the
    differences."""
    kinds: Annotated[tuple[Literal["swapped", "same"], ...], Field(min_length=1)] = (
        "swapped",
        "same",
    )
    """Controls: swapped (the reversed pair must be described in reverse), same (one image twice: no
    difference)."""
    max_tokens: Positive = 160
    """Maximum tokens of an answer."""
    min_score: Annotated[float, Field(ge=-1, le=1)] = 0.15
    """Minimum score of the swapped pair: how much more alike the halves are crosswise than
    straight. It keeps 94 to 98 % of good texts and 13 % of random ones (measured on 53 pairs)."""


class GroundingConfig(Section):
    """Grounding (ours): each half of a description must fit its own image better."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"clip"})
    enabled: bool = False
    """Whether descriptions are checked by a model that embeds texts and images."""
    scorer: Annotated[ScorerName, Field(exclude_if=lambda value: value == "clip")] = "clip"
    """Embedder of texts and images: `clip`, or a plugin's."""
    min_margin: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """Minimum lead of a half's cosine with its own image over that with the other image."""
    clip: Annotated[ClipConfig | None, UNSET, Filled("embedding.clip")] = None


class ConfirmingConfig(ServedSection):
    """Claim by claim (ours): each statement of a description is asked about each image alone."""

    enabled: bool = False
    """Whether descriptions are checked statement by statement."""
    model: ModelName = "judge"
    """The model that is asked, by its name in `models`; another one than the writer knows better
    what the writer invents."""
    min_score: Share = 0.5
    """Minimum probability by which the least sure statement of a description holds."""
    max_statements: Annotated[int, Field(ge=1, le=32)] = 8
    """Maximum statements of each half that are asked about."""
    max_tokens: Positive = 512
    """Maximum tokens of a half that the model splits into statements."""


class JudgingConfig(ServedSection):
    """Judge: a model rates the descriptions from 0 (wrong) to 5 (right in every word) (ours)."""

    enabled: bool = False
    """Whether a served model rates the descriptions."""
    model: ModelName = "judge"
    """The model that is asked, by its name in `models`."""
    min_rating: Annotated[int, Field(ge=0, le=5)] = 3
    """Minimum rating of a description that passes."""
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """Maximum tries for a rating, each with another seed."""


class ComparisonsConfig(WrittenSection):
    """Comparisons: commonalities and differences (CaD; paper 003)."""

    model: ModelName | Literal[""] = ""
    """The model that is asked, by its name in `models`; empty: `language` for captions alone, else
    `chat`."""
    input: Literal["captions", "images", "images and captions", "images and differences"] = (
        "captions"
    )
    """Input of the model: the captions (the paper's phase 1, by the `language` model), or the
    images (phase 2, by the `chat` model) alone, with the captions, or with people's texts about the
    difference."""
    max_tokens: Positive = 750
    """Maximum tokens of a summary; the paper's number."""
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """Maximum tries for a comparison, each with another seed."""
    max_caption_overlap: Share = 0.9
    """Maximum share of words that two captions share; beyond it, the retrieval question is left
    out."""

    @property
    def asks(self) -> str:
        """Return the name of the model that is asked."""
        return self.model or ("language" if self.input == "captions" else "chat")

    @property
    def images(self) -> int:
        """Return how many images the model is shown at once."""
        return 0 if self.input == "captions" else 2


class QuestionsConfig(ServedSection):
    """Questions and answers about both images (CaD-QA; paper 003, section 4)."""

    shown_images: ClassVar[int] = 0
    enabled: bool = False
    """Whether questions and answers about pairs are written."""
    model: ModelName = "language"
    """The model that is asked, by its name in `models`."""
    rounds: Annotated[int, Field(ge=1, le=10)] = 4
    """Rounds of question and answer requested; one of them is drawn."""
    max_tokens: Positive = 750
    """Maximum tokens of a conversation."""
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """Maximum tries for a conversation, each with another seed."""
    language: Language = ""
    """Language that the model writes, as in `captions.language`; empty: English."""


BlindCondition = Literal["blank", "blurred", "exchanged"]
"""How a pair's images are hidden: grey, so blurred that no thing can be told, or in the other
order."""


class SampledTextsConfig(ServedSection):
    """Sampled rejected texts: further answers of the writing model, on-policy (ours)."""

    enabled: bool = False
    """Whether further answers of the writing model are sampled as rejected texts."""
    blind: tuple[BlindCondition, ...] = ()
    """Whether the model also answers blind, with the images `blank`, `blurred` or `exchanged`, one
    after the other: what it then says, and is not true, is what it expects (maker `blind`)."""
    model: ModelName | Literal[""] = ""
    """The model that is asked, by its name in `models`; empty: the one that describes the
    differences."""
    prompt: Literal["instruction", "preference"] = "instruction"
    """Whether the model gets the template, as the writing model does, or a preference's question,
    which a trained model knows."""
    samples: Annotated[int, Field(ge=1, le=16)] = 1
    """Descriptions sampled per pair beside the chosen one; blind, per condition."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 1.0
    """Sampling temperature."""
    max_tokens: Positive = 160
    """Maximum tokens of a sample."""

    @property
    def is_served(self) -> bool:
        """Return whether the model is asked, with the images or blind."""
        return self.enabled or self.is_blind

    @property
    def is_blind(self) -> bool:
        """Return whether the model answers blind."""
        return bool(self.blind)


class HardnessConfig(ServedSection):
    """Hardness of preferences: what a model expects that sees no image (ours)."""

    enabled: bool = False
    """Whether a served model is asked, with the images hidden, which text of each row is right."""
    model: ModelName | Literal[""] = ""
    """The model that is asked, by its name in `models`; empty: the one that describes the
    differences."""
    condition: BlindCondition = "blank"
    """How the images are hidden."""


class CounterfactualsConfig(ServedSection):
    """Counterfactual rejected texts (ours): a language model edits the chosen text."""

    shown_images: ClassVar[int] = 0
    enabled: bool = False
    """Whether a language model makes rejected texts by editing the chosen ones."""
    model: ModelName = "language"
    """The model that is asked, by its name in `models`."""
    max_tokens: Positive = 160
    """Maximum tokens of an edited text."""
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """Maximum tries for an edit that contradicts, each with another seed."""


class StatementsConfig(ServedSection):
    """Splitting of chosen texts into statements, for CLIP (paper 004, 3.2)."""

    shown_images: ClassVar[int] = 0
    split: Literal["served", "rules"] = "served"
    """Splitter: the served model if there is one (an endpoint, or one that the build starts), or
    rules, which are also the fallback."""
    max_tokens: Positive = 512
    """Maximum tokens of the statements."""
    enabled: Annotated[bool, UNSET, Filled("rejections.by_vectors")] = False
    chat: Annotated[ChatConfig | None, UNSET, Filled("models.NAME")] = None

    @property
    def may_ask(self) -> bool:
        """Return whether it asks a served model if one is available."""
        return self.split == "served"

    @property
    def is_served(self) -> bool:
        """Return whether the stage asks a model at all."""
        there = self.chat is not None and bool(self.chat.endpoint or self.chat.launch.enabled)
        return self.enabled and self.may_ask and there
