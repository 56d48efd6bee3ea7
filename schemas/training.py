"""The settings of a training run, and of the tables that it makes of a dataset's rows.

A run: model, objective, reference, optimiser, data, output. Table: vectors of texts.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.namc_config import NamcConfig
from pairwright.schemas.section import Count, Names, Positive, Section, Seed, Share

NAME = "differential"
SIZES, WEIGHTS = f"{NAME}.json", f"{NAME}.safetensors"
"""Files beside a model's weights: settings and weights of the module."""


class DifferentialConfig(Section):
    """Differential perception: a module that compares two images (M3Diff)."""

    enabled: bool = False
    """Whether the model gets the module; the same as ``--differential``."""
    depth: Annotated[int, Field(ge=1, le=8)] = 2
    """Number of layers of self- and cross-attention; the paper's 2."""
    shared_weights: bool = True
    """Whether all compared layers of the vision tower share the same weights; not published."""
    weight_per: Literal["channel", "layer"] = "channel"
    """Whether each channel of a compared layer has its own weight, or the layer has one."""
    softmax: bool = False
    """Whether the weights sum to 1 over the layers (softmax), or each is between 0 and 1 (sigmoid,
    as printed)."""


ObjectiveName = Literal["sft", "dpo", "mdpo", "adavip", "symmpo", "adpo", "grpo", "namc"]
Beta = Annotated[float, Field(gt=0, le=100)]
Rate = Annotated[float, Field(gt=0, le=1)]
TINY, SMALL = "tiny", "small"
"""Models with random weights, written beside the dataset: to try the commands, and to learn from
scratch."""
STAND_INS = (TINY, SMALL)


class DpoConfig(Section):
    """Direct preference optimisation (Rafailov et al. 2023)."""

    beta: Beta = 0.1
    """Strength of the pull towards the reference model."""
    max_negatives: Annotated[int, Field(ge=1, le=32)] = 1
    """Maximum rejected texts per row: the rejected one, then its ranked negatives, hardest first;
    the chosen text is ranked above all of them."""
    loss_type: Literal["sigmoid", "ipo", "hinge"] = "sigmoid"
    """Loss of a margin: DPO's; IPO's square (Azar et al. 2024), which stops at a margin; or SLiC's
    hinge (Zhao et al. 2023). Of several negatives, the last two take the mean."""
    length_normalised: bool = False
    """Whether log-ratios are divided by the answer's tokens (Lambert et al. 2024, Tulu 3)."""
    ranking: Literal["first", "plackett_luce"] = "first"
    """With several negatives: the chosen text is first (S-DPO), or the whole order counts, hardest
    to easiest (Plackett-Luce; Rafailov et al. 2023, Appendix A.3)."""

    @model_validator(mode="after")
    def _ranks_by_sigmoid(self) -> "DpoConfig":
        if self.ranking == "plackett_luce" and self.loss_type != "sigmoid":
            raise ValueError(f"ranking: plackett_luce has no {self.loss_type}: leave out loss_type")
        return self


class MdpoConfig(Section):
    """mDPO (Wang et al. 2024), a baseline: the sum of a text, an image and an anchor term."""

    beta: Beta = 0.1
    """Strength of the pull towards the reference model."""
    anchor: bool = True
    """Whether there is an anchor term; without it the loss is the row "+ Vision" of AdaViP's
    ablation, the text and the image with equal weights (paper 004, Table 2)."""


class AdavipConfig(Section):
    """Adaptive preference loss of AdaViP (paper 004, Eq. 11)."""

    beta: Beta = 0.1
    """Strength of the pull towards the reference model; the paper's 0.1."""


class SymmpoConfig(Section):
    """SymMPO (Liu et al. 2025): the texts of both orders of a pair, compared under the same images.

    The weights are those of the authors' code.
    """

    beta: Beta = 0.1
    """Strength of the pull towards the reference model."""
    symmetric_weight: Annotated[float, Field(ge=0, le=100)] = 0.5
    """Weight of the two comparisons of both orders' texts, beside DPO on the rejected text."""
    consistency_weight: Annotated[float, Field(ge=0, le=100)] = 1e-4
    """Weight of the squared difference between both margins, in log-ratios."""
    anchor: bool = True
    """Whether the chosen text of each order gets an anchor term, as in mDPO."""


OwnMaker = Literal["swapped", "edited", "sampled", "blind", "counterfactual"]


class AdpoConfig(Section):
    """Adversarial retriever of ADPO (paper 000, section 4; unpublished choices are ours)."""

    beta: Beta = 0.1
    """Strength of the pull towards the reference model; not published, 0.1 is common."""
    candidates: Annotated[int, Field(ge=2, le=65_536)] = 128
    """Texts drawn from the training split per pair for the retriever to choose from; the paper's
    |N| = 128."""
    own_makers: tuple[OwnMaker, ...] = ()
    """Makers whose rejected texts of the row itself are always among its candidates, beside other
    rows' chosen texts (ours), as in `[blind, edited]`; the paper's pool has none."""
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """Temperature of the retriever's softmax; the paper's tau = 2."""
    logit_scale: Annotated[float, Field(gt=0)] = 100.0
    """Factor of the cosines before they are divided by ``temperature``, as in CLIP; not
    published."""
    samples: Annotated[int, Field(ge=1, le=32)] = 1
    """Negatives sampled per pair; the paper's 1. From 2 on, the baseline of each is the mean of the
    others."""
    baseline: Literal["none", "running"] = "running"
    """With one sample: no baseline (the paper's algorithm), or the running mean of the rewards."""
    retriever_learning_rate: Rate = 1e-4
    """Learning rate of the retriever; the paper's 1e-4."""
    encoder: Literal["heads", "clip4idc"] = "heads"
    """Trainable heads on stored vectors, or a separate CLIP that sees both images."""
    projection_dim: Annotated[int, Field(ge=8, le=4096)] = 256
    """Dimension of the space in which the heads compare pairs and texts."""
    warmup_steps: Count = 100
    """Steps that train the retriever to match texts with pairs before ADPO starts, as for CLIP4IDC
    (ours); 0: none."""
    min_entropy: Share = 0.1
    """Entropy below which a collapse of the retriever is reported, as a share of that of a uniform
    choice."""


class GrpoConfig(Section):
    """GRPO (Shao et al. 2024, "DeepSeekMath") by TRL's trainer, with rewards by scene graphs."""

    num_generations: Annotated[int, Field(ge=2, le=256)] = 8
    """Answers sampled to each prompt, a group."""
    max_completion_length: Positive = 160
    """Maximum tokens of an answer."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 1.0
    """Sampling temperature."""
    beta: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Weight of the divergence from the start model; 0, TRL's default: none, and no reference."""
    epsilon: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Clipping of the probability ratio."""
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo"] = "dapo"
    """Average of the tokens' losses, by its name in TRL."""


Rank = Annotated[int, Field(ge=1, le=1024)]


class LoraConfig(Section):
    """Adapters of LoRA (Hu et al. 2021) on linear layers of the language model."""

    rank: Rank = 64
    """Rank of the adapters."""
    rank_pattern: Mapping[str, Rank] = Field(default_factory=dict[str, int])
    """Other ranks by the end of a layer's name, as in peft: `{o_proj: 16, "layers.0.mlp.up_proj":
    8}`."""
    target_modules: Names = ()
    """Ends of the names of the layers with adapters, such as `[q_proj, v_proj]`; empty: all linear
    layers."""
    modules_to_save: Names = ()
    """Ends of the names of modules trained in full beside the adapters, such as `[embed_tokens,
    lm_head]`."""
    alpha: Positive = 128
    """Scale of the adapters, times ``rank``: they are multiplied by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout inside the adapters; above 0, the policy does not start with the reference's
    log-probabilities."""


class ModelConfig(Section):
    """Trained model, and its image input."""

    name: Annotated[str, Field(min_length=1)] = TINY
    """A folder, a name on the Hub (in the local cache), "tiny" or "small"; default with ``start``:
    that run's model."""
    revision: str = ""
    """Commit on the Hub, or hash of a folder's files, that the model must have; empty: any."""
    tuning: Literal["lora", "full", "projector"] = "lora"
    """Whether to train LoRA adapters, all weights, or only the projector from image features to
    the language model."""
    lora: LoraConfig = LoraConfig()
    reference: Literal["auto", "scores"] = "auto"
    """With LoRA: whether the reference runs at each step, as the model without adapters (auto), or
    scores all answers once; scores are kept beside the dataset, so that a sweep computes them
    once."""
    dropout: Literal["auto", "keep", "zero"] = "auto"
    """Dropout of the checkpoint's own configuration; auto: zero in preference losses, so that the
    policy starts with the reference's log-probabilities, kept in SFT."""
    train_vision: bool = False
    """Whether the vision tower and its projector are also trained."""
    vision_tuning: Literal["same", "full"] = "same"
    """Whether the vision tower follows ``tuning``, or is trained in full; full beside LoRA: SFT
    only (paper 002)."""
    differential: DifferentialConfig = DifferentialConfig()
    max_pixels: Annotated[int, Field(ge=784, le=16_777_216)] = 448 * 448
    """Maximum pixels of an image; larger ones are scaled down before the model's own processor sees
    them."""
    max_length: Annotated[int, Field(ge=16, le=1_048_576)] = 8192
    """Maximum tokens of a prompt and its longest answer; longer rows are refused, never cut."""
    template_kwargs: Mapping[str, bool | int | float | str | None] = Field(
        default_factory=dict[str, bool | int | float | str | None]
    )
    """Arguments of the chat template, such as `{enable_thinking: false}`; the finished model's
    template has them as defaults."""
    load_in_4bit: bool = False
    """Whether the frozen linear layers of the language model are kept in 4 bits (QLoRA's NF4; extra
    "qlora")."""
    attn_implementation: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    """Attention by its name in transformers; auto: PyTorch's, in two parts where answers share a
    prompt. FlashAttention has no mask for shared prompts, and needs the package flash-attn."""
    shared_prompt: Literal["auto", "always", "never"] = "auto"
    """Whether a prompt is encoded once for all its answers; auto: in model families that score them
    the same."""


class OptimiserConfig(Section):
    """Optimiser, schedule and precision."""

    optim: str = "adamw_torch_fused"
    """Optimiser by its name in transformers: adamw_torch_fused, adamw_8bit, paged_adamw_8bit (extra
    "qlora"), ..."""
    learning_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Peak learning rate; 0: 1e-4 with LoRA, 1e-3 for a projector (LLaVA-1.5), else 5e-7 (SFT, DPO,
    mDPO, AdaViP), 3e-6 (ADPO) or 5e-6 (SymMPO), as in the papers; 1e-6 (GRPO)."""
    vision_learning_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Peak learning rate of the vision tower, not its projector; 0: ``learning_rate``."""
    per_device_train_batch_size: Positive = 4
    """Rows per device and forward pass."""
    gradient_accumulation_steps: Positive = 1
    """Batches whose gradients are added up before each optimiser step."""
    num_train_epochs: Annotated[float, Field(gt=0, le=10_000)] = 1.0
    """Passes over the training split."""
    max_steps: Count = 0
    """Optimiser steps, overriding ``num_train_epochs``; 0: as many as the epochs have."""
    warmup_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the steps over which the learning rate rises from 0."""
    warmup_steps: Count = 0
    """Steps over which it rises, overriding ``warmup_ratio``; 0: as many as that share has."""
    lr_scheduler_type: Literal["cosine", "linear", "constant"] = "cosine"
    """Schedule of the learning rate after the warm-up."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Weight decay."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Maximum norm of the gradient; larger ones are clipped."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """Precision of the computation; auto: bf16 on a GPU, fp32 on a CPU."""
    gradient_checkpointing: bool = False
    """Whether activations are recomputed in the backward pass instead of kept in memory."""


CONVERSATIONS = "conversations"


def _shared(value: str) -> str:
    if re.fullmatch(r".+:0?\.(?!0+$)\d+", value):
        return value
    raise ValueError(
        "must be FILE_OR_DATASET:SHARE, with a share between 0 and 1, as in coco.json:0.4"
    )


class DataConfig(Section):
    """Training and held-out rows."""

    table: Literal["preferences", "differences", "comparisons", "questions", "captions"] = (
        "preferences"
    )
    """Table to train on; all but preferences by SFT only, as conversations in which every answer
    bears loss."""
    mix: tuple[Annotated[str, AfterValidator(_shared)], ...] = ()
    """SFT: further data with their shares of the rows: "FILE:SHARE" for LLaVA's JSON,
    "DATASET:SHARE" for the same table of another dataset."""
    split: str = "train"
    """Training split."""
    only_accepted: bool = False
    """Whether to train only on rows that people accepted (`pairwright view`, `decide`); held-out
    rows stay."""
    eval_split: str = "validation"
    """Held-out split to evaluate on; empty: none."""
    min_hardness: Share = 0.0
    """Least hardness of a training row (table `hardness`): the probability that a model without the
    images prefers the rejected text; rows of unknown hardness are left out. 0: all rows."""
    draw_by_hardness: bool = False
    """Whether as many training rows are drawn, with repeats, each with its hardness as weight."""
    max_eval_rows: Count = 256
    """Maximum rows of the held-out split; 0: all."""
    max_train_rows: Count = 0
    """Maximum rows of the shuffled training split; 0: all."""
    group_by_length: bool = False
    """Whether batches group rows of similar text length, to reduce padding."""
    dataloader_num_workers: Literal["auto"] | Count = "auto"
    """Processes per device that read and tokenise ahead; 0: none; auto: up to four for a GPU, none
    for a CPU."""

    @property
    def mixed(self) -> list[tuple[str, float]]:
        """Return the further data, each with its share."""
        return [
            (source, float(share)) for source, _, share in (one.rpartition(":") for one in self.mix)
        ]

    @model_validator(mode="after")
    def _leaves_room(self) -> "DataConfig":
        if sum(share for _, share in self.mixed) >= 1:
            raise ValueError(
                f"mix: {', '.join(self.mix)}: the shares leave no room for the dataset's own rows"
            )
        return self


class OutputConfig(Section):
    """Checkpoints, metrics and answers of a run."""

    save_steps: Positive = 500
    """Steps between checkpoints; the last step always has one."""
    save_total_limit: Positive = 2
    """Number of latest checkpoints kept while a run is not finished."""
    keep_checkpoints: bool = False
    """Whether checkpoints stay when the run is finished; if not, only its model does."""
    merge_adapters: bool = True
    """Whether the adapters are merged into the finished model; if not, only Pairwright loads it."""
    logging_steps: Positive = 10
    """Steps between rows of the metrics."""
    eval_steps: Count = 200
    """Steps between evaluations on the held-out split; 0: only at the end."""
    alarms: Literal["stop", "log"] = "stop"
    """Whether a run stops when held-out rows show that the model forgets chosen texts or answers
    unreadably."""
    write_answers: bool = False
    """Whether the finished model answers all held-out rows, for ``pairwright evaluate
    captions``."""
    report_to: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Trackers that also get the metrics."""


class TrainConfig(Section):
    """Training settings: every setting of a training run."""

    objective: ObjectiveName
    """Training objective."""
    start: str = ""
    """Run to start from: a name in the same dataset, or a folder; its model is also the
    reference."""
    sft_weight: Annotated[float, Field(ge=0, le=100)] = 4.0
    """Weight of the chosen text's negative log-likelihood per token beside a preference loss; the
    papers' is 0, ours did the least harm of 0, 1 and 4 (docs/what-the-data-teaches.md)."""
    seed: Seed = 0
    """Seed of everything that is drawn: the order of rows, dropout, new adapters, the retriever's
    draws."""
    model: ModelConfig = ModelConfig()
    dpo: DpoConfig = DpoConfig()
    mdpo: MdpoConfig = MdpoConfig()
    adavip: AdavipConfig = AdavipConfig()
    symmpo: SymmpoConfig = SymmpoConfig()
    adpo: AdpoConfig = AdpoConfig()
    grpo: GrpoConfig = GrpoConfig()
    namc: NamcConfig = NamcConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    data: DataConfig = DataConfig()
    output: OutputConfig = OutputConfig()

    @model_validator(mode="after")
    def _fits(self) -> "TrainConfig":
        model = self.model
        if model.differential.enabled and self.objective != "sft":
            raise ValueError("model.differential: differential perception needs objective sft")
        if model.vision_tuning == "full" and model.tuning == "lora" and self.objective != "sft":
            raise ValueError("model.vision_tuning: full beside LoRA needs objective sft")
        if model.tuning == "projector" and model.train_vision:
            raise ValueError(
                "model.tuning: projector trains the projector alone: leave out model.train_vision"
            )
        if model.reference == "scores" and self.objective in ("sft", "adpo", "grpo", "namc"):
            raise ValueError(
                f"model.reference: {self.objective} has no answers that can be scored before the "
                "training: leave it out"
            )
        self._check_attention()
        if model.load_in_4bit and model.tuning != "lora":
            raise ValueError(
                "model.load_in_4bit: weights in 4 bits cannot be trained: set model.tuning to lora"
            )
        if self.data.table != "preferences" and self.objective != "sft":
            raise ValueError(
                f"data.table: {self.data.table} have no rejected texts: they need objective sft"
            )
        if self.data.mix and self.objective != "sft":
            raise ValueError("data.mix: further data need objective sft")
        if self.optimiser.vision_learning_rate and not model.train_vision:
            raise ValueError(
                "optimiser.vision_learning_rate: the vision tower is frozen: "
                "set model.train_vision=true"
            )
        return self

    def _check_attention(self) -> None:
        if self.model.attn_implementation != "flash_attention_2":
            return
        if self.model.shared_prompt == "always":
            raise ValueError(
                "model.attn_implementation: flash_attention_2 has no mask for answers that share "
                "a prompt: set model.shared_prompt to auto, or take sdpa"
            )
        if self.optimiser.precision == "fp32":
            raise ValueError(
                "model.attn_implementation: flash_attention_2 computes in 16 bits: "
                "set optimiser.precision to bf16, or take sdpa"
            )

    @property
    def table(self) -> Literal["preferences", "conversations"]:
        """Return the training table: preferences, or a table whose rows become conversations."""
        return "preferences" if self.data.table == "preferences" else CONVERSATIONS


class RecipeConfig(Section):
    """Description of a recipe, beside its training settings."""

    about: str = ""
    """One sentence."""
    gpus: Positive = 1
    """Number of GPUs; several share the weights (FSDP)."""
    memory_gb: Positive = 80
    """Memory of each GPU."""
    sizes: Mapping[str, Any] = Field(default_factory=dict[str, Any])
    """Published sizes of the model, used to count memory."""


WORDS = "words"


class TextVectorsConfig(Section):
    """Vectors of the chosen texts."""

    encoder: Literal["words", "clip"] = WORDS
    """Hashed words and word pairs of a text; or CLIP's text tower, if the images have CLIP's
    vectors."""
    dimension: Annotated[int, Field(ge=64, le=65_536)] = 512
    """Length of the vectors of hashed words."""
    clip: ClipConfig = ClipConfig()
