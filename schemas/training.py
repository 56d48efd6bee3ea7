"""The settings of a training run, and of the tables that it makes of a dataset's rows.

A run: what is trained, on which objective, against which reference, how fast. Tables: vectors of texts and mined
negatives, by ADPO's retriever; the reference's scores, of which all settings decide the numbers.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from pairwright.schemas.encoders import ClipConfig
from pairwright.schemas.namc import NamcConfig
from pairwright.schemas.section import UNSET, Count, Positive, Section, Seed, Share

NAME = "differential"
SIZES, WEIGHTS = f"{NAME}.json", f"{NAME}.safetensors"
"""Beside a model's weights: the module's settings, and its weights."""
MOST_DEPTH = 8


class DifferentialConfig(Section):
    """Module that perceives what differs between two images."""

    enabled: bool = False
    """Whether the model gets the module; the same as ``--differential``."""
    depth: Annotated[int, Field(ge=1, le=MOST_DEPTH)] = 2
    """Number of layers of self- and cross-attention; the paper's 2."""
    shared_weights: bool = True
    """Whether all compared layers of the vision tower go through the same weights; not published."""
    weight_per: Literal["channel", "layer"] = "channel"
    """Whether each channel of a layer of the vision tower has a weight of its own, or the layer has one."""
    softmax: bool = False
    """Whether the weights sum to 1 over the layers (softmax), or each is between 0 and 1 (sigmoid, as printed)."""


Objective = Literal["sft", "dpo", "mdpo", "adavip", "adpo", "namc"]
NAMC = "namc"
"""The objective that trains a model of its own: no vision-language model, and no reference."""
Beta = Annotated[float, Field(gt=0, le=100)]
Rate = Annotated[float, Field(gt=0, le=1)]
TINY, SMALL = "tiny", "small"
"""Stand for models with random weights, written beside the dataset: to try the line, and to learn from scratch."""
STAND_INS = (TINY, SMALL)


class SftConfig(Section):
    """Supervised fine-tuning on the chosen texts."""

    average_over: Literal["tokens", "examples"] = "tokens"
    """Whether the loss is averaged over all answer tokens of a batch, or over the means of its examples."""


class DpoConfig(Section):
    """Direct preference optimisation (Rafailov et al. 2023)."""

    beta: Beta = 0.1
    """Strength of the pull towards the reference model."""
    loss_type: Literal["sigmoid", "ipo"] = "sigmoid"
    """Loss of a margin: sigmoid (Bradley-Terry), or the square of IPO (Azar et al. 2023)."""
    length_normalised: bool = False
    """Whether log-probabilities are averaged over tokens instead of summed, as IPO's paper does."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Share of preferences assumed to be the wrong way round (conservative DPO), with one rejected text per row."""
    max_negatives: Annotated[int, Field(ge=1, le=32)] = 1
    """Maximum rejected texts used of each row: the rejected one, then its ranked negatives, hardest first."""
    ranking: Literal["first", "full"] = "first"
    """With several rejected texts: rank the chosen text above all others (softmax), or rank all (Plackett-Luce)."""

    @model_validator(mode="after")
    def _fits(self) -> "DpoConfig":
        if self.max_negatives > 1 and (self.loss_type != "sigmoid" or self.label_smoothing):
            raise ValueError("max_negatives above 1 needs loss_type sigmoid and no label_smoothing")
        return self


class MdpoConfig(Section):
    """mDPO (Wang et al. 2024), the baseline: the sum of a text, an image and an anchor term."""

    beta: Beta = 0.1
    """Strength of the pull towards the reference model."""
    anchor_enabled: bool = True
    """Whether the chosen text's own reward is held above ``delta``; if not, the loss is two DPO losses added."""
    delta: float = 0.0
    """Reward that the anchor holds the chosen text above."""


class AdavipConfig(Section):
    """Adaptive preference loss of AdaViP (paper 004, Eq. 11)."""

    beta: Beta = 0.1
    """Strength of the pull towards the reference model; the paper's 0.1."""


class AdpoConfig(Section):
    """Adversarial retriever of ADPO (paper 000, section 4; what it leaves open is ours)."""

    beta: Beta = 0.1
    """Strength of the pull towards the reference model; not published, 0.1 is common."""
    candidates: Annotated[int, Field(ge=2, le=65_536)] = 128
    """Texts drawn from the training split per pair for the retriever to choose from; the paper's |N| = 128."""
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """Temperature of the retriever's softmax; the paper's tau = 2."""
    logit_scale: Annotated[float, Field(gt=0)] = 100.0
    """Factor of the cosines before they are divided by ``temperature``, as in CLIP; not published."""
    samples: Annotated[int, Field(ge=1, le=32)] = 1
    """Negatives sampled per pair (the paper's m = 1); from 2 on, each one's baseline is the mean of the others."""
    baseline: Literal["none", "running"] = "running"
    """With one sample: no baseline (the paper's algorithm), or the running mean of the rewards."""
    retriever_learning_rate: Rate = 1e-4
    """Learning rate of the retriever; the paper's 1e-4."""
    encoder: Literal["heads", "clip4idc"] = "heads"
    """Trainable heads on vectors that are computed once, or a CLIP of its own that sees both images."""
    projection_dim: Annotated[int, Field(ge=8, le=4096)] = 256
    """Dimension of the space in which the heads compare pairs and texts."""
    warmup_steps: Count = 100
    """Steps that train the retriever to match texts with pairs before ADPO starts, as for CLIP4IDC (ours); 0: none."""
    min_entropy: Share = 0.1
    """Entropy below which a collapse of the retriever is reported, as a share of that of a uniform choice."""


class LoraConfig(Section):
    """Adapters of LoRA (Hu et al. 2021)."""

    rank: Annotated[int, Field(ge=1, le=1024)] = 64
    """Rank of the adapters."""
    alpha: Positive = 128
    """Scale of the adapters, times ``rank``: they are multiplied by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout inside the adapters; above 0, the policy does not start with the reference's log-probabilities."""
    target_modules: tuple[str, ...] = ()
    """Name endings of the layers that get an adapter; empty: all linear layers of the language model."""


class ModelConfig(Section):
    """Model that is trained, and how images come to it."""

    name: Annotated[str, Field(min_length=1)] = TINY
    """A folder, a name on the Hub (in the local cache), "tiny" or "small"; default with ``start``: that run's model."""
    revision: str = ""
    """Commit of the Hub, or hash of a folder's files, that the model must have; empty: whichever is there."""
    tuning: Literal["lora", "full"] = "lora"
    """Whether LoRA adapters are trained, or all weights."""
    lora: LoraConfig = LoraConfig()
    train_vision: bool = False
    """Whether the vision tower and the projector behind it are trained, too."""
    vision_tuning: Literal["same", "full"] = "same"
    """Whether the vision tower is tuned as ``tuning`` says, or in full; full beside LoRA: SFT only (paper 002)."""
    differential: DifferentialConfig = DifferentialConfig()
    max_pixels: Annotated[int, Field(ge=784, le=16_777_216)] = 448 * 448
    """Larger images are scaled down to this many pixels before the model's own processor sees them."""
    max_length: Annotated[int, Field(ge=16, le=1_048_576)] = 8192
    """Maximum tokens of a prompt and its longest answer; longer rows are refused, never cut."""
    attn_implementation: Literal["auto", "flash_attention_3", "flash_attention_2", "sdpa", "eager"] = "auto"
    """How attention is computed; auto: FlashAttention 3 or 2 where it is installed and there is a GPU, else sdpa."""
    load_in_4bit: bool = False
    """Whether the frozen linear layers of the language model are kept in 4 bits (QLoRA's NF4; extra "qlora")."""
    shared_prompt: Literal["auto", "always", "never"] = "auto"
    """Whether a prompt is encoded once for all its answers; auto: where a trial on the first batch gives the same."""


class ReferenceConfig(Section):
    """Reference model, with which the policy is compared."""

    method: Literal["auto", "adapters", "table", "copy"] = "auto"
    """Model at the start with adapters off, a table of its log-probabilities made before training, or a second copy;
    auto: adapters with LoRA, else the table (for ADPO the copy)."""


class OptimiserConfig(Section):
    """Optimiser, and how long it runs."""

    optim: str = "adamw_torch_fused"
    """Optimiser by its name in transformers: adamw_torch_fused, adamw_8bit, paged_adamw_8bit (extra "qlora"), ..."""
    learning_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Peak learning rate; 0: 1e-4 with LoRA, in full 5e-7 (SFT, DPO, mDPO, AdaViP) or 3e-6 (ADPO), as in the papers."""
    vision_learning_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Peak learning rate of the vision tower without its projector; 0: ``learning_rate``."""
    per_device_train_batch_size: Positive = 4
    """Rows per device and forward pass."""
    gradient_accumulation_steps: Positive = 1
    """Batches whose gradients are added up before each optimiser step."""
    num_train_epochs: Annotated[float, Field(gt=0, le=10_000)] = 1.0
    """Passes over the training split."""
    max_steps: Count = 0
    """Optimiser steps, whatever ``num_train_epochs`` says; 0: as many as the epochs have."""
    warmup_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the steps over which the learning rate rises from 0."""
    lr_scheduler_type: Literal["cosine", "linear", "constant"] = "cosine"
    """How the learning rate falls after the warm-up."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Weight decay."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Norm to which gradients are clipped."""
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    """Precision of the computation; auto: bf16 on a GPU, fp32 on a CPU."""
    gradient_checkpointing: bool = False
    """Whether activations are computed again in the backward pass instead of being kept in memory."""


CONVERSATIONS = "conversations"


def _shared(value: str) -> str:
    if re.fullmatch(r".+:0?\.(?!0+$)\d+", value):
        return value
    raise ValueError("must be FILE_OR_DATASET:SHARE, with a share between 0 and 1, as in coco.json:0.4")


class DataConfig(Section):
    """Rows that are read, and how."""

    table: Literal["preferences", "differences", "comparisons", "questions", "captions"] = "preferences"
    """Table whose rows are trained on; all but preferences by SFT, as conversations each of whose answers is learnt."""
    mix: tuple[Annotated[str, AfterValidator(_shared)], ...] = ()
    """SFT: what else is trained on, and its share of the rows: "FILE:SHARE" of LLaVA's JSON, "DATASET:SHARE" of the
    same table of another dataset."""
    split: str = "train"
    """Split that is trained on."""
    only_accepted: bool = False
    """Whether only rows that people accepted are trained on (`pairwright view`, `decide`); held-out rows stay."""
    eval_split: str = "validation"
    """Held-out split that is evaluated on; empty: none."""
    max_eval_rows: Count = 256
    """Maximum rows of the held-out split; 0: all."""
    max_train_rows: Count = 0
    """Maximum rows of the shuffled training split; 0: all."""
    group_by_length: bool = False
    """Whether a batch has rows whose texts are about equally long, so that little is padded."""
    dataloader_num_workers: Literal["auto"] | Count = "auto"
    """Processes per device that read and tokenise ahead; 0: none; auto: up to four for a GPU, none for a CPU."""

    @property
    def mixed(self) -> list[tuple[str, float]]:
        """Return what is mixed in, each with its share."""
        return [(source, float(share)) for source, _, share in (one.rpartition(":") for one in self.mix)]

    @model_validator(mode="after")
    def _leaves_room(self) -> "DataConfig":
        if sum(share for _, share in self.mixed) >= 1:
            raise ValueError(f"mix: {', '.join(self.mix)}: the shares leave no room for the dataset's own rows")
        return self


class OutputConfig(Section):
    """Checkpoints, metrics and answers that are written."""

    save_steps: Positive = 500
    """Steps between checkpoints; there is one at the end in any case."""
    save_total_limit: Positive = 2
    """Latest checkpoints that are kept while a run is not finished."""
    keep_checkpoints: bool = False
    """Whether the checkpoints stay when the run is finished; if not, its model alone does."""
    merge_adapters: bool = True
    """Whether the finished checkpoint has the adapters merged into its weights; if not, only Pairwright loads it."""
    logging_steps: Positive = 10
    """Steps between rows of the metrics."""
    eval_steps: Count = 200
    """Steps between evaluations on the held-out split; 0: only at the end."""
    alarms: Literal["stop", "log"] = "stop"
    """Whether a run stops when an evaluation finds that the chosen texts are unlearnt or answers cannot be read."""
    write_answers: bool = False
    """Whether the finished model answers all held-out rows, for ``pairwright evaluate captions``."""
    report_to: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Trackers that get the metrics, too."""


class TrainConfig(Section):
    """Training settings: every setting that a training run accepts."""

    objective: Objective
    """Loss that is optimised."""
    start: str = ""
    """Run to start from, whose model is also the reference: a name in the same dataset, or a folder."""
    negatives_from: str = ""
    """ADPO run of the same dataset whose retriever gives each row its rejected text; empty: the rows' own."""
    sft_weight: Annotated[float, Field(ge=0, le=100)] = 1.0
    """Weight of the chosen text's negative log-likelihood per token beside a preference loss; the papers': 0."""
    seed: Seed = 0
    """Seed of everything that is drawn: the order of rows, dropout, new adapters, the retriever's draws."""
    model: ModelConfig = ModelConfig()
    reference: ReferenceConfig = ReferenceConfig()
    sft: SftConfig = SftConfig()
    dpo: DpoConfig = DpoConfig()
    mdpo: MdpoConfig = MdpoConfig()
    adavip: AdavipConfig = AdavipConfig()
    adpo: AdpoConfig = AdpoConfig()
    namc: NamcConfig = NamcConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    data: DataConfig = DataConfig()
    output: OutputConfig = OutputConfig()

    @model_validator(mode="after")
    def _fits(self) -> "TrainConfig":
        model = self.model
        if model.differential.enabled and self.objective != "sft":
            raise ValueError("model.differential: differential perception is trained with objective sft only")
        if model.vision_tuning == "full" and model.tuning == "lora" and self.objective != "sft":
            raise ValueError("model.vision_tuning: full goes beside LoRA with objective sft only")
        if model.load_in_4bit and model.tuning != "lora":
            raise ValueError("model.load_in_4bit: what is kept in 4 bits is not trained: set model.tuning to lora")
        if model.attn_implementation.startswith("flash") and self.optimiser.precision == "fp32":
            raise ValueError("model.attn_implementation: FlashAttention computes in 16 bits, and precision is fp32")
        if self.data.table != "preferences" and (self.objective != "sft" or self.negatives_from):
            raise ValueError(f"data.table: {self.data.table} reject nothing: objective sft alone trains on them")
        if self.data.mix and self.objective != "sft":
            raise ValueError("data.mix: other rows are mixed in with objective sft only")
        if self.optimiser.vision_learning_rate and not model.train_vision:
            raise ValueError("optimiser.vision_learning_rate: the vision tower is not trained: set model.train_vision")
        return self

    @property
    def table(self) -> Literal["preferences", "mined", "conversations"]:
        """Return the table that is trained on: preferences, those with mined negatives, or conversations."""
        if self.data.table != "preferences":
            return CONVERSATIONS
        return "mined" if self.negatives_from else "preferences"


class RecipeConfig(Section):
    """What a recipe says of itself, beside the training settings that it sets."""

    about: str = ""
    """One sentence."""
    gpus: Positive = 1
    """GPUs that it is for; several share the weights (FSDP)."""
    memory_gb: Positive = 80
    """Memory of each."""
    sizes: Mapping[str, Any] = Field(default_factory=dict[str, Any])
    """Published numbers of the model, by which memory is counted."""


WORDS = "words"


class TextVectorsConfig(Section):
    """Say what makes vectors of the chosen texts."""

    encoder: Literal["words", "clip"] = WORDS
    """The words and word pairs of a text, hashed; or CLIP's text tower, where the images have CLIP's vectors."""
    dimension: Annotated[int, Field(ge=64, le=65_536)] = 512
    """Length of the vectors of hashed words."""
    clip: ClipConfig = ClipConfig()


class MinedConfig(Section):
    """Say whose negatives are written into a table of preferences."""

    retriever: Annotated[str, Field(min_length=1)]
    """The file that an ADPO run wrote: its ``retriever.safetensors``."""
    sha256: str = ""
    """Its hash; empty: that of the file there. The table's fingerprint holds the hash, not the place."""
    pool: str = "train"
    """The split whose chosen texts are negatives of other pairs."""
    candidates: Annotated[int, Field(ge=1, le=1024)] = 32
    """How many of a pair's hardest texts are looked at until one is found that is not known to be true of it."""
    min_q: Share = 0.0
    """Texts that the retriever gives less than this are no negatives, and the row is dropped where none is left."""
    uncounted: ClassVar[frozenset[str]] = frozenset({"retriever"})


Number = Literal["bf16", "fp16", "fp32"]


class ScoringConfig(Section):
    """Say which model scores which answers, and how; a run fills it in, and its hash is part of the table's name."""

    folder: str
    """Where the model is."""
    model: str
    """The hash of its files, or the Hub's commit."""
    weights: Number
    """What the weights are kept in,"""
    compute: Number
    """and what is computed in."""
    attn_implementation: str
    load_in_4bit: Annotated[bool, UNSET] = False
    shared_prompt: str
    max_pixels: Positive
    max_length: Positive
    texts: Count
    """Rejected texts scored of each row, at the most."""
    images: bool
    """Whether the chosen text is scored given the rejected images, too,"""
    beside: bool
    """also where there is a rejected text."""
    batch: Positive = 4
    """Rows at a time."""
    uncounted: ClassVar[frozenset[str]] = frozenset({"folder", "batch"})
