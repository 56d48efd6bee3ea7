"""Models on this machine: found as folders and in the Hub's cache, known again by their bytes, or
refused in words."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForImageTextToText

from pairwright.schemas.errors import ModelError
from pairwright.schemas.training import SIZES, DifferentialConfig
from pairwright.tasks.training import find_model as module
from pairwright.tasks.training.find_model import find_base, find_model, find_module, read_module

WEIGHTS = "model.safetensors"
COMMIT, OTHER = "0123456789abcdef0123456789abcdef01234567", "f" * 40


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return the Hub's local cache, empty."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def into_cache(cache, model, name, commit=COMMIT):
    """Lay a model into the cache as the Hub's client does."""
    snapshot = cache / f"models--{name.replace('/', '--')}"
    (snapshot / "refs").mkdir(parents=True, exist_ok=True)
    (snapshot / "refs" / "main").write_text(commit)
    return Path(shutil.copytree(model, snapshot / "snapshots" / commit))


def adapters_of(base, folder, **settings):
    folder.mkdir(exist_ok=True)
    settings = {"base_model_name_or_path": str(base), **settings}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    (folder / "adapter_model.safetensors").write_bytes(b"any")
    return folder


def test_the_same_bytes_are_the_same_model_wherever_they_lie(qwen, folder):
    first, second = find_model(str(qwen)), find_model(str(folder))
    assert first.folder != second.folder
    assert first.revision == first.identity == second.revision
    assert first.revision.startswith("xxh3:")


@pytest.mark.parametrize(
    "name",
    [WEIGHTS, "config.json", "processor_config.json", "tokenizer.json", "chat_template.jinja"],
)
def test_each_file_that_counts_changes_the_hash(folder, name):
    before = find_model(str(folder)).identity
    (folder / "README.md").write_text("not read by any loader")
    assert find_model(str(folder)).identity == before
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert find_model(str(folder)).identity != before


def test_a_folder_that_is_no_longer_the_same_is_refused(folder):
    revision = find_model(str(folder)).revision
    assert find_model(str(folder), revision).revision == revision
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(ModelError, match=revision):
        find_model(str(folder), revision)


def test_the_cache_is_looked_into_by_name_and_by_commit(qwen, cache):
    snapshot = into_cache(cache, qwen, "owner/qwen")
    model = find_model("owner/qwen")
    assert (model.folder, model.revision, model.identity) == (snapshot, COMMIT, COMMIT)
    into_cache(cache, qwen, "owner/qwen", OTHER)
    assert find_model("owner/qwen").revision == OTHER, "main has moved on"
    assert find_model("owner/qwen", COMMIT).folder == snapshot


@pytest.mark.parametrize(
    ("name", "commit", "what"),
    [
        (
            "owner/none",
            "",
            r"model\.name: owner/none .*models--owner--none.*hf download owner/none",
        ),
        ("owner/none", COMMIT, f"hf download owner/none --revision {COMMIT}"),
        ("no such name, as it has spaces", "", "no such name, as it has spaces"),
        ("owner/half", "", r"model\.safetensors.*hf download owner/half"),
    ],
)
def test_what_is_not_in_the_cache_names_what_fetches_it(name, commit, what, cache, qwen):
    (into_cache(cache, qwen, "owner/half") / WEIGHTS).unlink()
    with pytest.raises(ModelError, match=what):
        find_model(name, commit)


def test_weights_in_several_files_are_those_that_the_index_names(folder):
    before, model = find_model(str(folder)), AutoModelForImageTextToText.from_pretrained(folder)
    (folder / WEIGHTS).unlink()
    model.save_pretrained(folder, max_shard_size="200KB")
    assert find_model(str(folder)).identity != before.identity
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    shards[1].unlink()
    with pytest.raises(ModelError, match=shards[1].name):
        find_model(str(folder))


def test_pickles_are_refused_with_the_reason(folder):
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="only pickled weights"):
        find_model(str(folder))


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        ("processor_config.json", r"preprocessor_config\.json .*processor_config\.json"),
        ("config.json", r"\bconfig\.json"),
        (".", "qwen"),
    ],
)
def test_what_is_no_model_that_sees_names_what_it_lacks(missing, what, folder):
    (folder / missing).rename(folder.parent / "gone")
    with pytest.raises(ModelError, match=what):
        find_model(str(folder))


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": ' * 100_000, "\udcff"])
@pytest.mark.parametrize("find", [lambda folder: find_model(str(folder)), find_base])
def test_adapters_whose_settings_are_broken_are_refused(find, tmp_path, text):
    (tmp_path / "adapter_config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ModelError, match=r"adapter_config\.json"):
        find(tmp_path)


def test_adapters_are_others_on_another_model(folder, tmp_path):
    adapters = adapters_of(folder, tmp_path / "adapters")
    before = find_model(str(adapters))
    assert before.base == (str(folder), "")
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    after = find_model(str(adapters))
    assert after.identity == after.revision != before.revision
    with pytest.raises(ModelError, match=before.revision):
        find_model(str(adapters), before.revision)


def test_adapters_of_a_hubs_model_are_of_the_commit_that_they_name(qwen, cache, tmp_path):
    for commit in (COMMIT, OTHER):
        into_cache(cache, qwen, "owner/qwen", commit)
    for revision, commit in ((COMMIT, COMMIT), (None, OTHER)):
        adapters = adapters_of("owner/qwen", tmp_path / "adapters", revision=revision)
        assert find_base(adapters).folder.name == commit
    assert find_base(qwen) is None


def test_adapters_of_adapters_and_of_themselves_are_refused(folder, tmp_path):
    first = adapters_of(folder, tmp_path / "first")
    second = adapters_of(first, tmp_path / "second")
    circle = adapters_of(tmp_path / "circle", tmp_path / "circle")
    for adapters, below in ((second, first), (circle, circle)):
        with pytest.raises(ModelError, match=f"{adapters} .*{below}"):
            find_model(str(adapters))


SETTINGS = {"depth": 3, "shared_weights": False, "weight_per": "layer", "softmax": True}


def test_a_module_of_differential_perception_is_the_models(folder, tmp_path):
    """Adapters have that of their model, unless they have their own; it is part of the model."""
    adapters = adapters_of(folder, tmp_path / "adapters")
    assert find_module(folder) is find_module(adapters) is None
    before = find_model(str(adapters))
    sizes = {"width": 32, "heads": 2, "layers": [1, 2]}
    (folder / SIZES).write_text(json.dumps(SETTINGS | sizes))
    assert (find_module(folder), find_module(adapters)) == (folder, folder)
    assert find_model(str(adapters)).identity != before.identity
    assert read_module(folder) == DifferentialConfig.model_validate({"enabled": True, **SETTINGS})
    shutil.copyfile(folder / SIZES, adapters / SIZES)
    assert find_module(adapters) == adapters


@pytest.mark.parametrize("text", ["[]", "{", "{}", json.dumps(SETTINGS | {"depth": 10**6})])
def test_a_module_of_wrong_sizes_is_refused(text, tmp_path):
    (tmp_path / SIZES).write_text(text)
    with pytest.raises(ModelError, match=SIZES):
        read_module(tmp_path)


def test_missing_packages_name_the_command_that_installs_them(monkeypatch):
    monkeypatch.setattr(module, "PACKAGES", ("torch", "no_such_package"))
    with pytest.raises(ModelError, match=r"no_such_package.*pip install .* -e '.\[cpu,train\]'"):
        module.require_packages()
