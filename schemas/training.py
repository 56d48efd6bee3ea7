"""The settings of a training run: what is trained, on which objective, against which reference, how fast."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pairwright.schemas.differential import DifferentialConfig
from pairwright.schemas.namc import NamcConfig
from pairwright.schemas.section import OFF, Count, Positive, Section, Seed, Share

Objective = Literal["sft", "dpo", "mdpo", "adavip", "adpo", "namc"]
NAMC = "namc"
"""The objective that trains a model of its own: no vision-language model, and no reference."""
Beta = Annotated[float, Field(gt=0, le=100)]
Rate = Annotated[float, Field(gt=0, le=1)]
TINY, SMALL = "tiny", "small"
"""Stand for models with random weights, written beside the dataset: to try the line, and to learn from scratch."""
STAND_INS = (TINY, SMALL)


class SftConfig(Section):
    """Set supervised fine-tuning on the chosen texts."""

    per: Literal["token", "example"] = "token"
    """Whether the mean is over all answer tokens of a batch, or over the means of its examples."""


class DpoConfig(Section):
    """Set direct preference optimisation (Rafailov et al. 2023)."""

    beta: Beta = 0.1
    """Strength of the pull towards the reference."""
    form: Literal["sigmoid", "ipo"] = "sigmoid"
    """The loss of a margin: sigmoid (Bradley-Terry), or the square of IPO (Azar et al. 2023)."""
    length_normalised: bool = False
    """Whether log-probabilities are means over tokens instead of sums; IPO's paper wants it."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Share of the preferences taken to be the wrong way round (conservative DPO); for one rejected text only."""
    negatives: Annotated[int, Field(ge=1, le=32)] = 1
    """Rejected texts used of each row at the most: the rejected one, then its ranked negatives, hardest first."""
    ranking: Literal["first", "full"] = "first"
    """With several: only the chosen text is ranked, above all (softmax), or all are, in order (Plackett-Luce)."""

    @model_validator(mode="after")
    def _fits(self) -> "DpoConfig":
        if self.negatives > 1 and (self.form != "sigmoid" or self.label_smoothing):
            raise ValueError("several negatives are ranked by form sigmoid without label_smoothing only")
        return self


class MdpoConfig(Section):
    """Set mDPO (Wang et al. 2024), the baseline: text, image and anchor terms, added."""

    beta: Beta = 0.1
    """Strength of the pull towards the reference."""
    anchored: bool = True
    """Whether the chosen text's own reward is held above ``delta``; without it, two DPO losses are added."""
    delta: float = 0.0
    """The anchor."""


class AdavipConfig(Section):
    """Set the adaptive preference loss of AdaViP (paper 004, Eq. 11)."""

    beta: Beta = 0.1
    """The paper's 0.1."""


class AdpoConfig(Section):
    """Set the adversarial retriever of ADPO (paper 000, section 4; what it leaves open is ours)."""

    beta: Beta = 0.1
    """Strength of the pull towards the reference; not published, 0.1 is common."""
    candidates: Annotated[int, Field(ge=2, le=65_536)] = 128
    """|N|: texts drawn from the training split per pair, of which the retriever chooses; the paper's 128."""
    tau: Annotated[float, Field(gt=0)] = 2.0
    """Temperature of the retriever's softmax; the paper's 2."""
    scale: Annotated[float, Field(gt=0)] = 100.0
    """What cosines are multiplied by before they are divided by ``tau``, as in CLIP; not published."""
    samples: Annotated[int, Field(ge=1, le=32)] = 1
    """m: negatives sampled per pair; the paper's 1. From 2 on, each one's baseline is the mean of the others."""
    baseline: Literal["none", "running"] = "running"
    """With one sample: no baseline (the paper's algorithm), or the running mean of the rewards."""
    learning_rate: Rate = 1e-4
    """Of the retriever; the paper's 1e-4."""
    encoder: Literal["heads", "clip4idc"] = "heads"
    """Trainable heads on vectors that are computed once, or a CLIP of its own that sees both images."""
    width: Annotated[int, Field(ge=8, le=4096)] = 256
    """Dimension of the space in which the heads compare pairs and texts."""
    warm_up: Count = 100
    """Steps in which the retriever learns which text belongs to which pair before ADPO starts, as CLIP4IDC is trained;
    0: none, it starts with random weights; ours."""
    min_entropy: Share = 0.1
    """Entropy, as a share of that of a uniform choice, below which a collapse of the retriever is reported."""


class LoraConfig(Section):
    """Set the adapters of LoRA (Hu et al. 2021)."""

    rank: Annotated[int, Field(ge=1, le=1024)] = 64
    """Rank of the adapters."""
    alpha: Positive = 128
    """Their scale is alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Off by default: with it, the policy's log-probabilities at the start are not the reference's."""
    targets: tuple[str, ...] = ()
    """Endings of the names of the layers that get one; none named: all linear layers of the language model."""


class ModelConfig(Section):
    """Say which model is trained, and how images come to it."""

    name: Annotated[str, Field(min_length=1)] = TINY
    """A folder, a name on the Hub whose files are in the local cache, or "tiny" or "small"; with ``start``, not named:
    that run's."""
    revision: str = ""
    """A commit of the Hub, or the hash of a folder's files; empty: what is there (``main``). A run writes it down."""
    tuning: Literal["lora", "full"] = "lora"
    """Whether adapters are trained, or all weights."""
    lora: LoraConfig = LoraConfig()
    """The adapters."""
    train_vision: bool = False
    """Whether the vision tower and the projector behind it are trained, too."""
    vision_tuning: Literal["same", "full"] = "same"
    """How they are: as the language model is, with LoRA by adapters of their own, or all of their weights; beside LoRA
    for SFT only, with ``differential`` by default (paper 002)."""
    differential: DifferentialConfig = DifferentialConfig()
    """Differential perception; for SFT."""
    most_pixels: Annotated[int, Field(ge=784, le=16_777_216)] = 448 * 448
    """Larger images are scaled down to so many pixels before the model's own processor sees them."""
    longest: Annotated[int, Field(ge=16, le=1_048_576)] = 8192
    """Rows whose prompt and longest answer have more tokens are refused, never cut."""
    attention: Literal["auto", "sdpa", "eager", "flex_attention"] = "auto"
    """How attention is computed; auto: sdpa."""
    packing: Annotated[Literal["auto", "on", "off"], OFF] = "auto"
    """Whether a prompt is encoded once for all of its answers; auto: where the model gives the same result so, which is
    tried on the first batch."""


class ReferenceConfig(Section):
    """Say what the policy is compared with."""

    by: Literal["auto", "adapters", "table", "copy"] = "auto"
    """The start itself, with the adapters switched off; a table of its log-probabilities, made before the training; or
    a second copy of the weights. auto: adapters with LoRA; else the table, or for ADPO, whose negatives are not known
    before, the copy."""


class OptimiserConfig(Section):
    """Set the optimiser and how long it runs."""

    learning_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """0: 1e-4 with LoRA; with full tuning 5e-7 for SFT (paper 000) and for AdaViP, mDPO and DPO (as RLAIF-V), 3e-6 for
    ADPO (paper 000)."""
    vision_learning_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of the vision tower, without the projector; 0: as the others."""
    batch: Positive = 4
    """Rows per device and step."""
    accumulate: Positive = 1
    """Batches whose gradients are added before the optimiser steps."""
    epochs: Annotated[float, Field(gt=0, le=10_000)] = 1.0
    """Passes over the training split."""
    steps: Count = 0
    """Optimiser steps; 0: by ``epochs``."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the steps over which the learning rate rises."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """How it falls after that."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of AdamW."""
    clip: Annotated[float, Field(gt=0)] = 1.0
    """Norm to which gradients are cut."""
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    """auto: bf16 on a GPU, fp32 on a CPU."""
    checkpointing: bool = False
    """Whether activations are computed again in the backward pass instead of being kept."""
    seed: Seed = 0
    """Of the order of rows, of dropout, of new adapters and of the retriever's draws."""


class LoadingConfig(Section):
    """Say which rows are read, and how."""

    split: str = "train"
    """The split that is trained on."""
    held_out: str = "validation"
    """The split that is measured on; empty: none."""
    held_out_rows: Count = 256
    """Of it, so many rows at the most; 0: all."""
    limit: Count = 0
    """First so many rows of the shuffled training split; 0: all."""
    workers: Literal["auto"] | Count = "auto"
    """Processes per device that read, decode and tokenise ahead; 0: none, it happens between steps. auto: four for a
    GPU, fewer where there are few cores, and none for a CPU, which has no time to wait."""


class SavingConfig(Section):
    """Say when checkpoints are written, and what is logged."""

    every: Positive = 500
    """Steps between checkpoints; there is one at the end in any case."""
    keep: Positive = 2
    """Latest checkpoints that are kept."""
    merged: bool = True
    """Whether adapters are merged into the weights that a finished run writes, and lie beside them in ``adapters/``;
    else they alone are written, and weights that were trained in full beside them: only Pairwright loads those. A run
    from one that has adapters alone is merged in any case."""
    log_every: Positive = 10
    """Steps between rows of the metrics."""
    measure_every: Count = 0
    """Steps between measurements on the held-out split; 0: at the end only."""
    answers: bool = False
    """Whether a finished model answers all rows that are measured on, for ``pairwright evaluate captions``."""
    report_to: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Trackers that get the metrics, too."""


class TrainConfig(Section):
    """Be everything that a training run can be told."""

    objective: Objective
    """What is optimised."""
    start: str = ""
    """The run whose model this one starts from, and is compared with: a name in the same dataset, or its folder."""
    negatives: str = ""
    """The ADPO run of the same dataset whose retriever gives each row its rejected text; none: the rows' own are it."""
    model: ModelConfig = ModelConfig()
    """What is trained."""
    reference: ReferenceConfig = ReferenceConfig()
    """What the policy is compared with."""
    sft: SftConfig = SftConfig()
    """Supervised fine-tuning."""
    dpo: DpoConfig = DpoConfig()
    """DPO and its kin."""
    mdpo: MdpoConfig = MdpoConfig()
    """mDPO."""
    adavip: AdavipConfig = AdavipConfig()
    """AdaViP."""
    adpo: AdpoConfig = AdpoConfig()
    """ADPO."""
    namc: NamcConfig = NamcConfig()
    """NAMC."""
    optimiser: OptimiserConfig = OptimiserConfig()
    """The optimiser."""
    loading: LoadingConfig = LoadingConfig()
    """The rows."""
    saving: SavingConfig = SavingConfig()
    """Checkpoints and metrics."""

    @model_validator(mode="after")
    def _fits(self) -> "TrainConfig":
        model = self.model
        if model.differential.attached and self.objective != "sft":
            raise ValueError("model.differential: differential perception is trained with objective sft only")
        if model.vision_tuning == "full" and model.tuning == "lora" and self.objective != "sft":
            raise ValueError("model.vision_tuning: full goes beside LoRA with objective sft only")
        if self.optimiser.vision_learning_rate and not model.train_vision:
            raise ValueError("optimiser.vision_learning_rate: nothing of what sees is trained: set model.train_vision")
        return self

    @property
    def table(self) -> Literal["preferences", "mined"]:
        """Return the table that is trained on: the dataset's preferences, or those with mined negatives."""
        return "mined" if self.negatives else "preferences"
