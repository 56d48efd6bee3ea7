"""Memory of models that vLLM is to load: against the libraries' own models, by hand, and as a build
meets it."""

import json
from pathlib import Path

import pytest

from pairwright.schemas.writing import ChatConfig, LaunchConfig
from pairwright.tasks.serving import gpu_memory
from pairwright.tasks.serving.launch import vllm_command

PUBLISHED = Path(__file__).parents[2] / "fixtures" / "published"


def published(name):
    return json.loads((PUBLISHED / f"{name}.json").read_text())


def bytes_of(key, number, *, packed):
    """Return the size of a tensor: 16 bits a number, or 4 as AWQ packs them, with its share of a
    scale and of a zero."""
    is_linear = ".layers." in key and "visual" not in key and not key.endswith("gate.weight")
    if packed and number.ndim > 1 and is_linear:
        return number.numel() * (4 / 8 + (16 + 4) / 8 / 128)
    return number.numel() * 2


@pytest.mark.parametrize(
    "name", ["qwen2-vl-7b", "qwen2-vl-7b-awq", "mixtral-8x7b", "mixtral-8x7b-awq"]
)
def test_published_sizes_are_those_of_the_models(name):
    import torch
    import transformers

    config = dict(published(name)["config"])
    packed = config.pop("quantization_config", None) is not None
    family, model = {
        "qwen2_vl": ("Qwen2VLConfig", "Qwen2VLForConditionalGeneration"),
        "mixtral": ("MixtralConfig", "MixtralForCausalLM"),
    }[config["model_type"]]
    with torch.device("meta"):
        made = getattr(transformers, model)(getattr(transformers, family)(**config))
    sizes = [bytes_of(key, number, packed=packed) for key, number in made.named_parameters()]
    assert published(name)["total_size"] == sum(sizes)


@pytest.mark.slow
def test_sizes_of_encoders_are_those_of_the_libraries_models():
    import open_clip
    import torch
    import transformers
    from segment_anything import sam_model_registry

    swin = transformers.SwinConfig(
        window_size=12,
        image_size=384,
        embed_dim=128,
        depths=[2, 2, 18, 2],
        num_heads=[4, 8, 16, 32],
        out_features=["stage2", "stage3", "stage4"],
    )
    large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    boxes = transformers.GroundingDinoConfig(backbone_config=swin)
    with torch.device("meta"):
        clip = open_clip.CLIP(**open_clip.get_model_config("ViT-L-14-quickgelu"))
        dino = transformers.Dinov2Model(transformers.Dinov2Config(image_size=518, **large))
        models = {
            "embeddings": [clip, dino],
            "boxes": [transformers.GroundingDinoForObjectDetection(boxes)],
            "masks": [sam_model_registry["vit_h"]()],
        }
    counts = {
        name: sum(number.numel() for model in together for number in model.parameters())
        for name, together in models.items()
    }
    sizes = {name: encoder["bytes"] for name, encoder in published("encoders").items()}
    assert {name: sizes[name] for name in counts} == {
        name: 4 * count for name, count in counts.items()
    }


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Give what makes a machine of GPUs: ``nvidia-smi`` tells their MiB, or prints a text."""

    def make(*mebibytes, printed=""):
        lines = (f"{index}, GPU-{index}a, {size}\n" for index, size in enumerate(mebibytes))
        (tmp_path / "printed").write_text(printed or "".join(lines))
        monkeypatch.setattr(gpu_memory, "ASK", ("cat", str(tmp_path / "printed")))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return make


@pytest.mark.parametrize(
    ("gpus", "launch", "flags"),
    [
        pytest.param(8, {}, "--data-parallel-size 8", id="copies"),
        pytest.param(
            8,
            {"tensor_parallel": 4},
            "--tensor-parallel-size 4 --data-parallel-size 2",
            id="two copies on four each",
        ),
        pytest.param(
            8, {"tensor_parallel": 8, "data_parallel": 1}, "--tensor-parallel-size 8", id="one copy"
        ),
        pytest.param(1, {}, "", id="one GPU"),
    ],
)
def test_gpus_have_copies_and_share_a_model_as_the_profile_says(machine, gpus, launch, flags):
    machine(*[81_559] * gpus)
    chat = ChatConfig(model="m", launch=LaunchConfig(enabled=True, **launch))
    command = vllm_command(chat, 1)
    places = [place for place, word in enumerate(command) if word.endswith("-parallel-size")]
    assert " ".join(f"{command[place]} {command[place + 1]}" for place in places) == flags


@pytest.mark.parametrize(
    ("visible", "sizes"), [("2,0", (30_000, 10_000)), ("GPU-1", (20_000,)), ("", ()), ("7", ())]
)
def test_only_visible_gpus_count(machine, monkeypatch, visible, sizes):
    machine(10_000, 20_000, 30_000)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_memory.gpu_memory() == tuple(size << 20 for size in sizes)


@pytest.mark.parametrize("printed", ["Unable to determine\n", "0, GPU-0, [N/A]\n", "\n"])
def test_gpus_without_a_known_size_are_none(machine, printed):
    machine(printed=printed)
    assert gpu_memory.gpu_memory() == ()


def test_no_gpus_are_none(machine):
    machine()
    assert gpu_memory.gpu_memory() == ()
