"""Tests of profiles: what is wrong is said with file, field and what would be allowed."""

import re

import pytest

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.schemas.errors import ConfigError


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a profile and returns its path."""

    def write(text, name="mine.yaml"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_settings_win_over_the_file(write) -> None:
    path = write("mining: {min_similarity: 0.5, max_similarity: 0.9}")
    settings = [
        "mining.min_similarity=0.6",
        "embedding.embedders=[gradients]",
        "mining.weights=[1]",
    ]
    profile = load_profile(path, settings)
    assert profile.name == "mine"
    assert (profile.mining.min_similarity, profile.mining.max_similarity) == (0.6, 0.9)
    assert profile.embedding.embedders == ("gradients",)


NEAR = ["mining.min_similarty", "no such field", "did you mean min_similarity"]
EMBEDDERS = ["embedding.embedders.0", "colour-layout, gradients, clip, dinov2"]
SHARES = "preferences: {test_share: 0.5, validation_share: 0.5}"
GAMMA = ["mining.gamma", "greater than 0", "-1"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mining: {min_similarty: 0.5}", NEAR),
        ("minning: {}", ["minning", "no such field", "mining"]),
        ("mining: {gamma: -1}", GAMMA),
        ("mining: {min_similarity: .nan}", ["mining.min_similarity", "finite"]),
        ("mining: {min_similarity: 0.9, max_similarity: 0.8}", ["mining", "lower one of them"]),
        ("embedding: {embedders: [sift]}", EMBEDDERS),
        ("mining: {weights: [1.0]}", ["mining.weights", "1 numbers", "2 embedders"]),
        (SHARES, ["preferences", "left to train on"]),
        ("- a list", ["mapping"]),
        ("extends: none-such", ["none-such: ", "laptop"]),
        ("extends: [laptop]", ["extends", "laptop"]),
        ("{extends: laptop, mining: {gamma: -1}}", GAMMA),
        ("mining: [", ["YAML"]),
    ],
)
def test_a_wrong_profile_names_file_and_field(write, text, words) -> None:
    with pytest.raises(ConfigError) as caught:
        load_profile(write(text, "wrong.yaml"))
    message = str(caught.value)
    assert "wrong.yaml" in message
    assert not [word for word in words if word not in message], message


def test_a_profile_extends_another_field_by_field(write) -> None:
    middle = write(
        "{extends: paper-80, mining: {max_similarity: 0.9}, models: {language: null}}",
        "middle.yaml",
    )
    profile = load_profile(write(f"{{extends: {middle}, mining: {{min_similarity: 0.5}}}}"))
    base = load_profile("paper-80")
    own = {"max_similarity": 0.9, "min_similarity": 0.5}
    assert profile.name == "mine"
    assert profile.mining == base.mining.model_copy(update=own)
    assert profile.models == {"chat": base.models["chat"]}
    assert profile.segmentation == base.segmentation


def test_a_circle_of_profiles_is_refused(write) -> None:
    mine = write("extends: {}")
    middle = write(f"extends: {mine}", "middle.yaml")
    write(f"extends: {middle}")
    with pytest.raises(ConfigError, match=r"middle\.yaml: extends: .*circle"):
        load_profile(mine)


def test_the_first_name_of_a_profile_stays() -> None:
    profiles = [load_profile(name) for name in ("paper-80", "gpu")]
    named, first = (profile.model_dump(exclude={"name", "about"}) for profile in profiles)
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
def test_a_wrong_setting_is_quoted(settings) -> None:
    with pytest.raises(ConfigError, match="--set " + re.escape(settings[-1])):
        load_profile("scenes", settings)


@pytest.mark.parametrize("value", ["sk-SECRET-991", "secret key", "lower_case", "block:mine", 7])
def test_a_key_itself_is_refused_and_never_repeated(value) -> None:
    with pytest.raises(ConfigError, match=r"models\.chat\.key: ") as caught:
        load_profile("scenes", [f"models.chat.key={value}"])
    assert str(value) not in str(caught.value)


def test_a_key_is_named_by_its_variable_and_nothing_is_an_empty_text() -> None:
    profile = load_profile("scenes", ["models.chat.key=OPENAI_API_KEY"])
    assert profile.models["chat"].key == "OPENAI_API_KEY"
    assert load_profile("gpu", ["models.chat.model="]).models["chat"].model == ""
    with pytest.raises(ConfigError, match=r"--set mining\.gamma=: mining\.gamma: "):
        load_profile("gpu", ["mining.gamma="])


@pytest.mark.parametrize(
    ("text", "reason"),
    [("a: " + "[" * 1_000, "nested"), ("mining: {k: 1}\nmining: {k: 2}", "mining is set twice")],
    ids=["deep", "twice"],
)
def test_yaml_that_python_or_a_reader_would_stumble_over_is_refused(write, text, reason) -> None:
    with pytest.raises(ConfigError, match=rf"own\.yaml: .*{reason}"):
        load_profile(write(text, "own.yaml"))
    with pytest.raises(ConfigError, match=reason):
        load_profile("scenes", [f"mining={{{text}}}".replace("\n", ", ")])
