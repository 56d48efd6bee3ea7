"""Memory of models that vLLM is to load: against the libraries' own models, by hand, and as a build meets it."""

import json
from pathlib import Path

import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.writing import ChatConfig, LaunchConfig
from pairwright.tasks.serving import memory
from pairwright.tasks.serving.launch import vllm_command
from pairwright.tasks.serving.memory import Needs, check_memory

PUBLISHED = Path(__file__).parents[2] / "fixtures" / "published"
GB = 10**9


def published(name: str) -> dict:
    return json.loads((PUBLISHED / f"{name}.json").read_text())


def needs(name: str) -> Needs:
    found = published(name)
    return Needs.of(found["config"], found["total_size"])


def count_bytes(name: str) -> float:
    """Return the size of a model as transformers makes it of the published config: 16 bits, or 4 as AWQ packs them."""
    import torch
    from transformers import MixtralConfig, MixtralForCausalLM, Qwen2VLConfig, Qwen2VLForConditionalGeneration

    config = dict(published(name)["config"])
    quantization = config.pop("quantization_config", None)
    makes = {
        "qwen2_vl": (Qwen2VLConfig, Qwen2VLForConditionalGeneration),
        "mixtral": (MixtralConfig, MixtralForCausalLM),
    }
    make_config, make_model = makes[config["model_type"]]
    with torch.device("meta"):
        model = make_model(make_config(**config))
    packed = 4 / 8 + (16 + 4) / 8 / 128  # of a number: its bits, and its share of a scale and of a zero
    return sum(
        number.numel() * (packed if quantization and number.ndim > 1 and is_linear_of_text(key) else 2)
        for key, number in model.named_parameters()
    )


def is_linear_of_text(key: str) -> bool:
    return ".layers." in key and "visual" not in key and not key.endswith("gate.weight")


@pytest.mark.parametrize("name", ["qwen2-vl-7b", "qwen2-vl-7b-awq", "mixtral-8x7b", "mixtral-8x7b-awq"])
def test_published_sizes_are_those_of_the_models(name):
    assert published(name)["total_size"] == count_bytes(name)


@pytest.mark.slow
def test_sizes_of_encoders_are_those_of_the_libraries_models():
    import open_clip
    import torch
    from segment_anything import sam_model_registry
    from transformers import Dinov2Config, Dinov2Model, GroundingDinoConfig, GroundingDinoForObjectDetection, SwinConfig

    stages = {"depths": [2, 2, 18, 2], "num_heads": [4, 8, 16, 32], "out_features": ["stage2", "stage3", "stage4"]}
    swin = SwinConfig(window_size=12, image_size=384, embed_dim=128, **stages)
    with torch.device("meta"):
        dino = Dinov2Config(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, image_size=518)
        models = {
            "embeddings": [open_clip.CLIP(**open_clip.get_model_config("ViT-L-14-quickgelu")), Dinov2Model(dino)],
            "boxes": [GroundingDinoForObjectDetection(GroundingDinoConfig(backbone_config=swin))],
            "masks": [sam_model_registry["vit_h"]()],
        }
    found = {name: sum(one.numel() for model in some for one in model.parameters()) for name, some in models.items()}
    assert {name: 4 * count for name, count in found.items()}.items() <= {
        name: one["bytes"] for name, one in published("encoders").items()
    }.items()


def test_a_cache_is_counted_by_hand():
    # Keys and values, 28 layers, 4 heads of 128 numbers, 2 bytes: 57,344 a token, and 128 KiB of Mixtral's 32 and 8.
    assert needs("qwen2-vl-7b").cache(8192) == 8192 * 57_344
    assert needs("mixtral-8x7b").cache(8192) == 1 << 30
    assert needs("mixtral-8x7b").cache(8192, 8) == 1 << 27
    assert needs("qwen2-vl-7b").cache(1, 8) == needs("qwen2-vl-7b").cache(1, 4) == 57_344 // 4  # a head at least
    nested = {"text_config": published("qwen2-vl-7b")["config"], "vision_config": {"num_hidden_layers": 3}}
    assert Needs.of(nested, 16_582_751_232) == needs("qwen2-vl-7b")
    plain = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
    assert Needs.of(plain | {"torch_dtype": "float32"}, 1000).weights == 500  # vLLM loads it in 16 bits
    assert Needs.of(plain, 1000).cache(1) == 2 * 2 * 4 * 16 * 2
    with pytest.raises(ValueError, match="num_hidden_layers"):
        Needs.of({"num_attention_heads": 4, "hidden_size": 64}, 1000)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Give what makes a machine of GPUs: ``nvidia-smi`` says their MiB."""

    def make(*mebibytes: int) -> None:
        said = "".join(f"{index}, GPU-{index}a, {size}\n" for index, size in enumerate(mebibytes))
        (tmp_path / "said").write_text(said)
        monkeypatch.setattr(memory, "ASK", ("cat", str(tmp_path / "said")))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return make


def chat_of(folder: Path, name: str, **launch) -> ChatConfig:
    found, folder = published(name), folder / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(found["config"]))
    (folder / memory.INDEX).write_text(json.dumps({"metadata": {"total_size": found["total_size"]}, "weight_map": {}}))
    return ChatConfig(model=str(folder), launch=LaunchConfig(enabled=True, **launch))


def flags(chat: ChatConfig) -> list[str]:
    command = vllm_command(chat, 1)
    return [f"{name[2:4]}{command[command.index(name) + 1]}" for name in command if name.endswith("-parallel-size")]


def test_a_model_that_does_not_fit_is_refused_with_its_needs(machine, tmp_path):
    machine(81_559)
    with pytest.raises(ConfigError) as caught:
        check_memory(chat_of(tmp_path, "mixtral-8x7b"), "models.language")
    # 93.4 + 1.07 + 3, and 0.9 of 81,559 MiB
    needed = "97.5 GB of each of 1 GPU (weights 93.4, cache of 8192 tokens 1.1, 3 overhead), of 77.0"
    assert needed in str(caught.value)
    assert "28.7 GB" in check_memory(chat_of(tmp_path, "mixtral-8x7b-awq"), "models.language")
    machine(24_564)
    # 0.9 of 24,564 MiB, less 3 GB and 16.58: 3,598,747,545 bytes, 62,757 tokens of 57,344
    check_memory(chat_of(tmp_path, "qwen2-vl-7b", max_model_len=62_757), "models.chat")
    with pytest.raises(ConfigError, match=r"models\.chat\.launch\.max_model_len"):
        check_memory(chat_of(tmp_path, "qwen2-vl-7b", max_model_len=62_758), "models.chat")


def test_gpus_have_copies_and_share_a_model_as_the_profile_says(machine, tmp_path):
    machine(*[81_559] * 8)
    assert flags(chat_of(tmp_path, "qwen2-vl-7b")) == ["da8"]
    assert flags(chat_of(tmp_path, "mixtral-8x7b", tensor_parallel=4)) == ["te4", "da2"]
    assert flags(chat_of(tmp_path, "mixtral-8x7b", tensor_parallel=8, data_parallel=1)) == ["te8"]
    with pytest.raises(ConfigError, match=r"models\.chat\.launch: .* 16 GPUs, of 8"):
        check_memory(chat_of(tmp_path, "qwen2-vl-7b", tensor_parallel=4, data_parallel=4), "models.chat")
    machine(16_380)
    assert flags(ChatConfig(model="owner/unknown")) == []


def test_only_visible_gpus_count(machine, tmp_path, monkeypatch):
    machine(10_000, 20_000, 30_000)
    for visible, sizes in {"2,0": (30_000, 10_000), "GPU-1": (20_000,), "": (), "7": ()}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert memory.gpu_memory() == tuple(size << 20 for size in sizes)


def test_what_is_not_known_is_said_and_stops_nothing(machine, tmp_path, monkeypatch):
    assert "no GPU" in check_memory(chat_of(tmp_path, "mixtral-8x7b"), "models.chat") or memory.gpu_memory()
    machine(8_000)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    strange = tmp_path / "strange"
    strange.mkdir()
    for content in ("{}", "[]", "nonsense"):
        (strange / "config.json").write_text(content)
        assert "not checked" in check_memory(ChatConfig(model=str(strange)), "models.chat")
    assert "owner/name is not on this machine" in check_memory(ChatConfig(model="owner/name"), "models.chat")
    offload = chat_of(tmp_path, "mixtral-8x7b", flags=("--cpu-offload-gb=80",))
    assert "--cpu-offload-gb" in check_memory(offload, "models.chat")
    for broken in ("Unable to determine\n", "0, GPU-0, [N/A]\n", ""):
        (tmp_path / "said").write_text(broken)
        assert "no GPU" in check_memory(chat_of(tmp_path, "mixtral-8x7b"), "models.chat")
