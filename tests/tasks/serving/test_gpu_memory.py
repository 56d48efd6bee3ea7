"""Memory of models that vLLM is to load: against the libraries' own models, by hand, and as a build
meets it."""

import json
from pathlib import Path

import pytest

from pairwright.schemas.writing import ChatConfig, LaunchConfig
from pairwright.tasks.serving import gpu_memory
from pairwright.tasks.serving.launch import vllm_command

PUBLISHED = Path(__file__).parents[2] / "fixtures" / "published"
GB = 10**9


def published(name: str) -> dict:
    return json.loads((PUBLISHED / f"{name}.json").read_text())


def count_bytes(name: str) -> float:
    """Return the size of a model as transformers makes it of the published config: 16 bits, or 4 as
    AWQ packs them."""
    import torch
    from transformers import (
        MixtralConfig,
        MixtralForCausalLM,
        Qwen2VLConfig,
        Qwen2VLForConditionalGeneration,
    )

    config = dict(published(name)["config"])
    quantization = config.pop("quantization_config", None)
    makes = {
        "qwen2_vl": (Qwen2VLConfig, Qwen2VLForConditionalGeneration),
        "mixtral": (MixtralConfig, MixtralForCausalLM),
    }
    make_config, make_model = makes[config["model_type"]]
    with torch.device("meta"):
        model = make_model(make_config(**config))
    packed = (
        4 / 8 + (16 + 4) / 8 / 128
    )  # of a number: its bits, and its share of a scale and of a zero
    return sum(
        number.numel()
        * (packed if quantization and number.ndim > 1 and is_linear_of_text(key) else 2)
        for key, number in model.named_parameters()
    )


def is_linear_of_text(key: str) -> bool:
    return ".layers." in key and "visual" not in key and not key.endswith("gate.weight")


@pytest.mark.parametrize(
    "name", ["qwen2-vl-7b", "qwen2-vl-7b-awq", "mixtral-8x7b", "mixtral-8x7b-awq"]
)
def test_published_sizes_are_those_of_the_models(name):
    assert published(name)["total_size"] == count_bytes(name)


@pytest.mark.slow
def test_sizes_of_encoders_are_those_of_the_libraries_models():
    import open_clip
    import torch
    from segment_anything import sam_model_registry
    from transformers import (
        Dinov2Config,
        Dinov2Model,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        SwinConfig,
    )

    stages = {
        "depths": [2, 2, 18, 2],
        "num_heads": [4, 8, 16, 32],
        "out_features": ["stage2", "stage3", "stage4"],
    }
    swin = SwinConfig(window_size=12, image_size=384, embed_dim=128, **stages)
    with torch.device("meta"):
        dino = Dinov2Config(
            hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, image_size=518
        )
        models = {
            "embeddings": [
                open_clip.CLIP(**open_clip.get_model_config("ViT-L-14-quickgelu")),
                Dinov2Model(dino),
            ],
            "boxes": [GroundingDinoForObjectDetection(GroundingDinoConfig(backbone_config=swin))],
            "masks": [sam_model_registry["vit_h"]()],
        }
    found = {
        name: sum(one.numel() for model in some for one in model.parameters())
        for name, some in models.items()
    }
    assert {name: 4 * count for name, count in found.items()}.items() <= {
        name: one["bytes"] for name, one in published("encoders").items()
    }.items()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Give what makes a machine of GPUs: ``nvidia-smi`` says their MiB."""

    def make(*mebibytes: int) -> None:
        said = "".join(f"{index}, GPU-{index}a, {size}\n" for index, size in enumerate(mebibytes))
        (tmp_path / "said").write_text(said)
        monkeypatch.setattr(gpu_memory, "ASK", ("cat", str(tmp_path / "said")))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return make


def flags(**launch) -> list[str]:
    command = vllm_command(ChatConfig(model="m", launch=LaunchConfig(enabled=True, **launch)), 1)
    return [
        f"{name[2:4]}{command[command.index(name) + 1]}"
        for name in command
        if name.endswith("-parallel-size")
    ]


def test_gpus_have_copies_and_share_a_model_as_the_profile_says(machine):
    machine(*[81_559] * 8)
    assert flags() == ["da8"]
    assert flags(tensor_parallel=4) == ["te4", "da2"]
    assert flags(tensor_parallel=8, data_parallel=1) == ["te8"]
    machine(16_380)
    assert flags() == []


def test_only_visible_gpus_count(machine, tmp_path, monkeypatch):
    machine(10_000, 20_000, 30_000)
    for visible, sizes in {"2,0": (30_000, 10_000), "GPU-1": (20_000,), "": (), "7": ()}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpu_memory.gpu_memory() == tuple(size << 20 for size in sizes)


@pytest.mark.parametrize("said", ["Unable to determine\n", "0, GPU-0, [N/A]\n", ""])
def test_gpus_without_a_known_size_are_none(machine, tmp_path, said):
    machine(8_000)
    (tmp_path / "said").write_text(said)
    assert gpu_memory.gpu_memory() == ()
