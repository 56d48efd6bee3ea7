"""Models on this machine: found as folders and in the Hub's cache, known again by their bytes, or
refused in words."""

import json
import shutil
from pathlib import Path

import pytest

from pairwright.schemas.errors import ModelError
from pairwright.schemas.training import SIZES, DifferentialConfig
from pairwright.tasks.training import find_model as module
from pairwright.tasks.training.find_model import find_base, find_model, find_module, read_module

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(qwen: Path, tmp_path: Path) -> Path:
    """Return a copy that a test may change."""
    return Path(shutil.copytree(qwen, tmp_path / "qwen"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the Hub's local cache, empty."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def into_cache(cache: Path, model: Path, name: str, commit: str = COMMIT) -> Path:
    """Lay a model into the cache as the Hub's client does."""
    place = cache / f"models--{name.replace('/', '--')}"
    (place / "refs").mkdir(parents=True, exist_ok=True)
    (place / "refs" / "main").write_text(commit)
    return Path(shutil.copytree(model, place / "snapshots" / commit))


def test_the_same_bytes_are_the_same_model_wherever_they_lie(qwen: Path, folder: Path) -> None:
    first, second = find_model(str(qwen)), find_model(str(folder))
    assert first.folder != second.folder
    assert first.revision == first.identity == second.revision
    assert first.revision.startswith("xxh3:")


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "config.json",
        "processor_config.json",
        "tokenizer.json",
        "chat_template.jinja",
    ],
)
def test_each_file_that_counts_changes_the_hash(folder: Path, name: str) -> None:
    before = find_model(str(folder)).identity
    (folder / "README.md").write_text("not read by any loader")
    assert find_model(str(folder)).identity == before
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert find_model(str(folder)).identity != before


def test_a_folder_that_is_no_longer_the_same_is_refused(folder: Path) -> None:
    known = find_model(str(folder)).revision
    assert find_model(str(folder), known).revision == known
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(ModelError, match=known):
        find_model(str(folder), known)


def test_the_hubs_cache_is_looked_into_by_name_and_by_commit(qwen: Path, cache: Path) -> None:
    place = into_cache(cache, qwen, "owner/qwen")
    found = find_model("owner/qwen")
    assert (found.folder, found.revision, found.identity) == (place, COMMIT, COMMIT)
    other = "f" * 40
    into_cache(cache, qwen, "owner/qwen", other)
    assert find_model("owner/qwen").revision == other, "main has moved on"
    assert find_model("owner/qwen", COMMIT).folder == place


def test_what_is_not_in_the_cache_names_what_fetches_it(cache: Path, qwen: Path) -> None:
    with pytest.raises(
        ModelError, match=r"model\.name: owner/none .*models--owner--none.*hf download owner/none"
    ):
        find_model("owner/none")
    with pytest.raises(ModelError, match=f"hf download owner/none --revision {COMMIT}"):
        find_model("owner/none", COMMIT)
    with pytest.raises(ModelError, match="no such name, as it has spaces"):
        find_model("no such name, as it has spaces")
    (into_cache(cache, qwen, "owner/half") / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model\.safetensors.*hf download owner/half"):
        find_model("owner/half")


def test_weights_in_several_files_are_those_that_the_index_names(folder: Path) -> None:
    from transformers import AutoModelForImageTextToText

    before, model = find_model(str(folder)), AutoModelForImageTextToText.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="200KB")
    now = find_model(str(folder))
    assert now.identity != before.identity
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    shards[1].unlink()
    with pytest.raises(ModelError, match=shards[1].name):
        find_model(str(folder))


def test_pickles_are_refused_with_the_reason(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="only pickled weights"):
        find_model(str(folder))


def test_what_is_no_model_that_sees_says_so(folder: Path, tmp_path: Path) -> None:
    (folder / "processor_config.json").unlink()
    with pytest.raises(ModelError, match=r"preprocessor_config\.json .*processor_config\.json"):
        find_model(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"\bconfig\.json"):
        find_model(str(folder))
    with pytest.raises(ModelError, match="nowhere"):
        find_model(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": ' * 100_000, "\udcff"])
def test_adapters_whose_settings_are_broken_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "adapter_config.json").write_bytes(text.encode(errors="surrogateescape"))
    for look in (lambda: find_model(str(tmp_path)), lambda: find_base(tmp_path)):
        with pytest.raises(ModelError, match=r"adapter_config\.json"):
            look()


def adapters_of(base: Path, folder: Path) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    (folder / "adapter_model.safetensors").write_bytes(b"any")
    return folder


def test_adapters_are_others_on_another_model(folder: Path, tmp_path: Path) -> None:
    adapters = adapters_of(folder, tmp_path / "adapters")
    before = find_model(str(adapters))
    assert before.base == (str(folder), "")
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    now = find_model(str(adapters))
    assert now.identity == now.revision != before.revision
    with pytest.raises(ModelError, match=before.revision):
        find_model(str(adapters), before.revision)


def test_adapters_of_a_hubs_model_are_of_the_commit_that_they_name(
    qwen: Path, cache: Path, tmp_path: Path
) -> None:
    places = [into_cache(cache, qwen, "owner/qwen", commit) for commit in (COMMIT, "f" * 40)]
    adapters = adapters_of(qwen, tmp_path / "adapters")
    for revision, place in ((COMMIT, places[0]), (None, places[1])):
        own = {"base_model_name_or_path": "owner/qwen", "revision": revision}
        (adapters / "adapter_config.json").write_text(json.dumps(own))
        base = find_base(adapters)
        assert base
        assert base.folder == place
    assert find_base(qwen) is None


def test_adapters_of_adapters_and_of_themselves_are_refused(folder: Path, tmp_path: Path) -> None:
    first = adapters_of(folder, tmp_path / "first")
    second, circle = (
        adapters_of(first, tmp_path / "second"),
        adapters_of(tmp_path / "circle", tmp_path / "circle"),
    )
    for one, below in ((second, first), (circle, circle)):
        with pytest.raises(ModelError, match=f"{one} .*{below}"):
            find_model(str(one))


def test_a_module_of_differential_perception_is_the_models(folder: Path, tmp_path: Path) -> None:
    """Adapters have that of their model, unless they have their own; what it is changes what the
    model is."""
    adapters = adapters_of(folder, tmp_path / "adapters")
    assert find_module(folder) is find_module(adapters) is None
    before = find_model(str(adapters))
    settings = {"depth": 3, "shared_weights": False, "weight_per": "layer", "softmax": True}
    (folder / SIZES).write_text(json.dumps(settings | {"width": 32, "heads": 2, "layers": [1, 2]}))
    assert (find_module(folder), find_module(adapters)) == (folder, folder)
    assert find_model(str(adapters)).identity != before.identity
    assert read_module(folder) == DifferentialConfig.model_validate({"enabled": True, **settings})
    shutil.copyfile(folder / SIZES, adapters / SIZES)
    assert find_module(adapters) == adapters
    for wrong in ("[]", "{", "{}", json.dumps(settings | {"depth": 10**6})):
        (folder / SIZES).write_text(wrong)
        with pytest.raises(ModelError, match=SIZES):
            read_module(folder)


def test_without_the_packages_the_command_that_installs_them_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PACKAGES", ("torch", "no_such_package"))
    with pytest.raises(
        ModelError, match=r"no_such_package.*pip install -c constraints.txt -e '.\[cpu,train\]'"
    ):
        module.require_packages()
