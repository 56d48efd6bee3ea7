"""Check names over the whole product: one class, one meaning; names that say something."""

import ast
from collections import Counter
from pathlib import Path

from tests.fixtures.parsed import parse

ROOT = Path(__file__).parent.parent
FOLDERS = ("flows", "pairwright", "prompts", "schemas", "tasks")
EMPTY = {
    *("about", "asked", "found", "given", "kept", "known", "made", "one", "own"),
    *("place", "said", "shown", "some", "there", "thing", "told", "wanted", "words"),
}
"""Names that tell neither type nor role."""
MAX_SHARE = 0.01


def trees() -> list[ast.Module]:
    """Return the parsed files of the product."""
    return [parse(path) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]


def bound_names(tree: ast.Module) -> list[str]:
    """Return the names of variables and arguments that a file binds, each as often as it does."""
    names = list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.arg):
            names.append(node.arg)
    return names


def test_class_names_are_unique() -> None:
    names = Counter(
        node.name for tree in trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert not [name for name, count in names.items() if count > 1]


def test_few_names_are_empty() -> None:
    names = Counter(name for tree in trees() for name in bound_names(tree))
    names -= Counter({name: names[name] for name in ("self", "cls", "_")})
    empty = {name: names[name] for name in EMPTY if names[name]}
    assert sum(empty.values()) <= MAX_SHARE * names.total(), empty
