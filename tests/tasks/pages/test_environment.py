import pytest
from jinja2 import UndefinedError

from pairwright.tasks.pages import environment


def render(folder, template, **values):
    (folder / "own.html.j2").write_text(template)
    return (
        environment.make_environment(folder, known="<known>")
        .get_template("own.html.j2")
        .render(**values)
    )


@pytest.mark.parametrize(
    ("template", "page"),
    [
        ("{{ known }} {{ text }}", "&lt;known&gt; a\ufffd&lt;\ufffd\n"),  # bytes that HTML lacks
        ('{{ 1000 | number }}, {{ 1 | things("pair") }}', "1,000, 1 pair"),
        ('{{ 1000 | things("pair") }}', "1,000 pairs"),
        ("{{ 0.125 | percent }}", "12.5%"),
    ],
)
def test_texts_are_escaped_and_numbers_written(tmp_path, template, page) -> None:
    assert render(tmp_path, template, text="a\0<\x1b\n") == page


def test_a_value_that_is_not_given_is_an_error(tmp_path) -> None:
    with pytest.raises(UndefinedError):
        render(tmp_path, "{{ forgotten }}")


def test_things_may_have_a_plural_of_their_own() -> None:
    assert environment.count_things(2, "match", "matches") == "2 matches"


def test_a_page_holds_no_half_of_a_surrogate(tmp_path) -> None:
    environment.write_page(tmp_path / "page.html", "a\ud800b")
    assert (tmp_path / "page.html").read_bytes() == b"a?b"


def test_a_package_has_the_frame_and_the_looks_for_its_own_pages(tmp_path) -> None:
    template = '{% extends "page.html.j2" %}{% block nav %}{% endblock %}'
    template += "{% block content %}own{% endblock %}"
    page = render(tmp_path, template, subject={"name": "<i>", "version": "version 1", "made": ""})
    assert '<link rel="stylesheet" href="report.css">' in page
    assert "&lt;i&gt;, version 1" in page
    own = tmp_path / "own.css"
    own.write_text("p {}")
    (tmp_path / "out").mkdir()
    environment.copy_looks(tmp_path / "out", [own])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["own.css", "report.css"]
