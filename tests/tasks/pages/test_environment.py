from pathlib import Path

import pytest
from jinja2 import UndefinedError

from pairwright.tasks.pages.environment import (
    copy_looks,
    count_things,
    make_environment,
    write_page,
)


def render(folder: Path, template: str, **given: object) -> str:
    (folder / "own.html.j2").write_text(template)
    return make_environment(folder, known="<known>").get_template("own.html.j2").render(**given)


def test_texts_are_escaped_and_what_is_not_given_is_an_error(tmp_path: Path) -> None:
    assert render(tmp_path, "{{ known }} {{ given }}", given="<b>") == "&lt;known&gt; &lt;b&gt;"
    assert render(tmp_path, "{{ given }}", given="a\0<\x1b\n") == "a\ufffd&lt;\ufffd\n", (
        "no byte that HTML cannot hold"
    )
    with pytest.raises(UndefinedError):
        render(tmp_path, "{{ forgotten }}")
    assert render(
        tmp_path, '{{ 1000 | number }}, {{ 2 | things("pair") }}, {{ 0.125 | percent }}'
    ) == ("1,000, 2 pairs, 12.5%")
    assert count_things(2, "match", "matches") == "2 matches"
    write_page(tmp_path / "page.html", "a\ud800b")
    assert (tmp_path / "page.html").read_bytes() == b"a?b"


def test_a_package_has_the_frame_and_the_looks_for_its_own_pages(tmp_path: Path) -> None:
    page = render(
        tmp_path,
        (
            '{% extends "page.html.j2" %}{% block nav %}{% endblock %}{% block content %}own{% '
            "endblock %}"
        ),
        subject={"name": "<i>", "version": "version 1", "made": ""},
    )
    assert '<link rel="stylesheet" href="report.css">' in page
    assert "&lt;i&gt;, version 1" in page
    own = tmp_path / "own.css"
    own.write_text("p {}")
    (tmp_path / "out").mkdir()
    copy_looks(tmp_path / "out", [own])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["own.css", "report.css"]
