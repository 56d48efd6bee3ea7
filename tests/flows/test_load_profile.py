"""Tests of profiles: what is wrong is said with file, field and what would be allowed."""

import re
from pathlib import Path

import pytest

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.schemas.errors import ConfigError


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_settings_win_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml", "mining: {min_similarity: 0.5, max_similarity: 0.9}\n")
    profile = load_profile(
        path, ["mining.min_similarity=0.6", "embedding.embedders=[gradients]", "mining.weights=[1]"]
    )
    assert profile.name == "mine"
    assert (profile.mining.min_similarity, profile.mining.max_similarity) == (0.6, 0.9)
    assert profile.embedding.embedders == ("gradients",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "mining: {min_similarty: 0.5}",
            ["mining.min_similarty", "no such field", "Did you mean min_similarity?"],
        ),
        ("minning: {}", ["minning", "no such field", "mining"]),
        ("mining: {gamma: -1}", ["mining.gamma", "greater than 0", "-1"]),
        ("mining: {min_similarity: .nan}", ["mining.min_similarity", "finite"]),
        ("mining: {min_similarity: 0.9, max_similarity: 0.8}", ["mining", "lower one of them"]),
        (
            "embedding: {embedders: [sift]}",
            ["embedding.embedders.0", "colour-layout, gradients, clip, dinov2"],
        ),
        ("mining: {weights: [1.0]}", ["mining.weights has 1 numbers for 2 embedders"]),
        (
            "preferences: {test_share: 0.5, validation_share: 0.5}",
            ["preferences", "left to train on"],
        ),
        ("- a list", ["must be a mapping"]),
        ("extends: none-such", ["none-such: no such profile", "laptop"]),
        ("extends: [laptop]", ["extends", "laptop"]),
        ("{extends: laptop, mining: {gamma: -1}}", ["mining.gamma", "greater than 0", "-1"]),
        ("mining: [", ["cannot be read as YAML"]),
    ],
)
def test_a_wrong_profile_names_file_and_field(tmp_path: Path, text: str, words: list[str]) -> None:
    path = write(tmp_path / "wrong.yaml", text)
    with pytest.raises(ConfigError) as caught:
        load_profile(path)
    message = str(caught.value)
    assert "wrong.yaml" in message
    assert not [word for word in words if word not in message], message


def test_a_profile_extends_another_field_by_field(tmp_path: Path) -> None:
    middle = write(
        tmp_path / "middle.yaml",
        "{extends: gpu-80, mining: {max_similarity: 0.9}, models: {language: null}}",
    )
    found = load_profile(
        write(tmp_path / "mine.yaml", f"{{extends: {middle}, mining: {{min_similarity: 0.5}}}}")
    )
    papers = load_profile("gpu-80")
    assert found.name == "mine"
    assert found.mining == papers.mining.model_copy(
        update={"max_similarity": 0.9, "min_similarity": 0.5}
    )
    assert found.models == {"chat": papers.models["chat"]}
    assert found.segmentation == papers.segmentation
    write(tmp_path / "middle.yaml", f"extends: {tmp_path}/mine.yaml")
    with pytest.raises(ConfigError, match=r"middle\.yaml: extends: .*circle"):
        load_profile(str(tmp_path / "mine.yaml"))


def test_the_first_name_of_a_profile_stays() -> None:
    named, first = (
        load_profile(name).model_dump(exclude={"name", "about"}) for name in ("gpu-80", "gpu")
    )
    assert named == first


@pytest.mark.parametrize(
    "settings",
    [
        ["mining"],
        ["=1"],
        ["source.deep=1"],
        ["mining.gamma=["],
        ["mining.gamma=0.1", "mining.gamma.deep=1"],
    ],
    ids=lambda settings: settings[-1],
)
def test_a_wrong_setting_is_quoted(settings: list[str]) -> None:
    with pytest.raises(ConfigError, match="--set " + re.escape(settings[-1])):
        load_profile("scenes", settings)


@pytest.mark.parametrize("value", ["sk-SECRET-991", "secret key", "lower_case", "block:mine", 7])
def test_a_key_itself_is_refused_and_never_repeated(value) -> None:
    with pytest.raises(ConfigError, match=r"models\.chat\.key: ") as caught:
        load_profile("scenes", [f"models.chat.key={value}"])
    assert str(value) not in str(caught.value)


def test_a_key_is_named_by_its_variable_and_nothing_is_no_text() -> None:
    assert (
        load_profile("scenes", ["models.chat.key=OPENAI_API_KEY"]).models["chat"].key
        == "OPENAI_API_KEY"
    )
    assert load_profile("gpu", ["models.chat.model="]).models["chat"].model == ""
    with pytest.raises(ConfigError, match=r"--set mining\.gamma=: mining\.gamma: "):
        load_profile("gpu", ["mining.gamma="])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: " + "[" * 5_000, "nested too deep"),
        ("mining: {k: 1}\nmining: {k: 2}", "mining is set twice"),
    ],
)
def test_yaml_that_python_or_a_reader_would_stumble_over_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"own\.yaml: .*{said}"):
        load_profile(str(path))
    with pytest.raises(ConfigError, match=said):
        load_profile("scenes", [f"mining={{{text}}}".replace("\n", ", ")])
