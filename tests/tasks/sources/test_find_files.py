"""Braces expand as in bash."""

import subprocess

import pytest

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.find_files import MAX_NAMES, expand_braces

PATTERNS = "plain.tar s-{000..011}.tar {9..11} {11..9} {08..10} {0..10} {a,b}-{1..2}.tar {x,y{1..2}} {a,}b {a} {} {a..c"


@pytest.mark.parametrize("pattern", [*PATTERNS.split(), "a}b", "{1..}"])
def test_as_bash_does(pattern):
    said = subprocess.run(["bash", "-c", f"printf '%s\\n' {pattern}"], capture_output=True, text=True, check=True)
    assert expand_braces(pattern) == said.stdout.split("\n")[:-1]


@pytest.mark.parametrize("pattern", ["{0..999999999999}", "{0..9}" * 9])
def test_too_many_names_are_refused_at_once(pattern):
    with pytest.raises(SourceError, match=str(MAX_NAMES)):
        expand_braces(pattern)
