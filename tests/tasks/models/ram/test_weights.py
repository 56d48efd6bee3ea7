"""Checkpoints of RAM and RAM++ in their published form, and files that are something else."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.ram.weights import load_ram
from tests.fixtures.hostile_checkpoints import write_payloads
from tests.fixtures.ram_checkpoints import HIDDEN, SIDE, VISION, WIDTH, write_ram

QUERY = "tagging_head.encoder.layer.1.crossattention.self.query.weight"


@pytest.mark.parametrize("plus", [False, True], ids=["RAM", "RAM++"])
def test_the_decoder_comes_by_its_published_keys(tmp_path: Path, plus: bool) -> None:
    made = write_ram(tmp_path, plus=plus)
    loaded = load_ram(Path(made.config.checkpoint), field="x", plus=plus)
    wanted = {name: value for name, value in made.weights.items() if not name.startswith("visual_encoder.")}
    assert loaded.side == SIDE
    assert loaded.decoder.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(loaded.decoder[name], torch.tensor(value).float(), rtol=0, atol=0)


def test_the_older_name_of_the_head_is_known(tmp_path: Path) -> None:
    path = Path(write_ram(tmp_path).config.checkpoint)
    tensors = torch.load(path, weights_only=True)["model"]
    wanted = load_ram(path, field="x", plus=False).decoder
    renamed = {name.replace("tagging_head.", "vision_multi."): value for name, value in tensors.items()}
    torch.save({"model": renamed}, tmp_path / "older.pth")
    found = load_ram(tmp_path / "older.pth", field="x", plus=False).decoder
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_half_precision_and_safetensors_are_read(tmp_path: Path) -> None:
    path = Path(write_ram(tmp_path).config.checkpoint)
    tensors = torch.load(path, weights_only=True)["model"]
    kept = {name: value.half() if value.is_floating_point() else value for name, value in tensors.items()}
    save_file(kept, tmp_path / "ram.safetensors")
    loaded = load_ram(tmp_path / "ram.safetensors", field="x", plus=False)
    assert loaded.decoder["fc.weight"].dtype == torch.float32
    assert torch.equal(loaded.decoder["fc.weight"], tensors["fc.weight"].half().float())
    assert next(loaded.swin.parameters()).dtype == torch.float32


def test_parts_that_write_captions_are_left(tmp_path: Path) -> None:
    spare = {"tagging_head.embeddings.word_embeddings.weight": torch.zeros(7, HIDDEN), "temp": torch.zeros(1)}
    path = Path(write_ram(tmp_path, changes=spare).config.checkpoint)
    loaded = load_ram(path, field="x", plus=False)
    assert not [name for name in loaded.decoder if name.startswith(("tag_encoder", "text_decoder", "temp"))]
    assert "tagging_head.embeddings.word_embeddings.weight" not in loaded.decoder


@pytest.mark.parametrize(("plus", "found", "wanted"), [(False, "RAM\\+\\+", "ram-plus"), (True, "RAM", "ram")])
def test_a_checkpoint_of_the_other_model_is_told(tmp_path: Path, plus: bool, found: str, wanted: str) -> None:
    path = write_ram(tmp_path, plus=not plus).config.checkpoint
    message = rf"x: {path}: .*{found}: .*tagging\.taggers to {wanted}\b"
    with pytest.raises(ModelError, match=message):
        load_ram(Path(path), field="x", plus=plus)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({QUERY: None}, " tagging_head.encoder.layer.1.crossattention.self.query.weight$"),
        ({"label_embed": None}, "label_embed"),
        ({"label_embed": torch.zeros(3)}, "label_embed"),
        ({"fc.bias": None, "image_proj.bias": None}, "image_proj.bias, fc.bias"),
        (
            {"image_proj.weight": torch.zeros(WIDTH, VISION + 1)},
            r"image_proj.weight .*\(12, 17\).* \(12,",
        ),
        ({"fc.weight": torch.zeros(2, HIDDEN)}, r"fc.weight .*\(2, 16\).* \(1, 16\)"),
        ({"wordvec_proj.weight": torch.zeros(HIDDEN + 1, WIDTH)}, "17 numbers, .*4 heads"),
        ({"fc.weight": torch.zeros(1, HIDDEN, dtype=torch.int64)}, "fc.weight .*torch.int64"),
        ({"fc.lora_A": torch.zeros(1)}, "fc.lora_A"),
        ({"tagging_head.encoder.layer.4.output.dense.bias": torch.zeros(1)}, "layer.N"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: dict[str, torch.Tensor | None], message: str) -> None:
    path = write_ram(tmp_path, changes=change).config.checkpoint
    with pytest.raises(ModelError, match=message) as caught:
        load_ram(Path(path), field="tagging.ram.checkpoint", plus=False)
    assert str(caught.value).startswith(f"tagging.ram.checkpoint: {path}: ")


def test_other_files_are_refused_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for path in write_payloads(tmp_path / "files", marker).values():
        with pytest.raises(ModelError):
            load_ram(path, field="x", plus=False)
    torch.save(torch.nn.Linear(3, 2).state_dict(), tmp_path / "linear.pth")
    with pytest.raises(ModelError, match=r"visual_encoder.patch_embed.proj.weight"):
        load_ram(tmp_path / "linear.pth", field="x", plus=False)
    assert not marker.exists()
