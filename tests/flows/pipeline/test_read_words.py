"""Words of a domain from files: what is a thing in a profile, and what is none."""

import pytest

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.read_words import pin_words
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import Tag
from pairwright.tasks.captioning import locate_differences
from pairwright.tasks.rejected.tag_images import STAGE, choose_tags


def profile_with(*settings):
    return pin_words(load_profile("laptop", settings))


def test_names_are_read_from_files_for_both_stages_that_ask(tmp_path) -> None:
    file = tmp_path / "domain.txt"
    file.write_text("# Remote sensing.\nwater\nroad  # paved or not\n\nwater\n")
    profile = profile_with(
        f"tagging.included=[rust, '@{file}']", f"tagging.excluded=['@{file}', sky]"
    )
    assert profile.tagging.included == ("rust", f"@{file}"), "settings stay as given"
    config = STAGE.configure(profile)
    assert config.included == ("rust", "water", "road")
    assert config.excluded == ("water", "road", "sky")
    assert locate_differences.STAGE.configure(profile).included == ("rust", "water", "road")
    tags = [Tag(name=name, score=1.0, tagger="ram") for name in ("Rust", "road", "grass")]
    accepted, refused = choose_tags(tags, config)
    assert [tag.name for tag in accepted] == ["rust"]
    assert [(tag.name, tag.reason) for tag in refused] == [
        ("road", "excluded by the profile"),
        ("grass", "names no thing"),
    ]


def test_a_list_in_place_of_ours_changes_the_table(tmp_path) -> None:
    file = tmp_path / "no_things.txt"
    file.write_text("[stuff] sky, clouds\n")
    config = STAGE.configure(profile_with(f"tagging.no_things={file}"))
    ours = STAGE.configure(profile_with())
    assert config.word_list == "[stuff] sky, clouds\n"
    assert STAGE.models(config)[-1] != STAGE.models(ours)[-1]
    accepted, _ = choose_tags([Tag(name="grass", score=1.0, tagger="ram")], config)
    assert [tag.name for tag in accepted] == ["grass"]


@pytest.mark.parametrize(
    ("setting", "content", "message"),
    [
        ("tagging.included=['@FILE']", None, r"tagging\.included: .*: cannot be read as text"),
        ("tagging.no_things=FILE", None, r"tagging\.no_things: .*: cannot be read as text"),
        ("tagging.no_things=FILE", b"\xff\xfe", r"tagging\.no_things: .*: cannot be read as text"),
        ("tagging.no_things=FILE", b"sky\nwater\n", r"tagging\.no_things: .*: has no section"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, setting, content, message) -> None:
    file = tmp_path / "words.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        profile_with(setting.replace("FILE", str(file)))
