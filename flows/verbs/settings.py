"""The verbs that say what there is to set: ``settings`` and ``profiles``."""

import json
import shutil
import sys
import textwrap
from typing import Annotated

import typer

from pairwright.flows.verbs.options import AsJson, ProfileName, app


@app.command(epilog="Examples: `pairwright settings mining --profile laptop`, `pairwright settings train.optimiser`")
def settings(
    section: Annotated[str, typer.Argument(help="`mining`, `run`, ..., `train`, or one setting. Default: all.")] = "",
    *,
    profile: ProfileName = "scenes",
    tables: Annotated[bool, typer.Option("--tables", help="Show the tables of a dataset instead.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write the page of the documentation.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the settings that `--set` and profiles take, with type, range, default and meaning."""
    if markdown:
        from pairwright.flows.document_settings import write_settings_page, write_tables_page

        print(write_tables_page() if tables else write_settings_page(), end="")
        return
    if tables:
        from pairwright.flows.list_tables import draw_tables, list_tables

        print(json.dumps([one.as_json() for one in list_tables()], indent=2) if as_json else draw_tables())
        return
    from pairwright.flows.list_settings import as_typed, list_settings

    found = list_settings(section, profile=profile)
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=2))
        return
    for command in dict.fromkeys(one.command for one in found):
        print(f"pairwright {command} --set NAME=VALUE{f'  (values of profile {profile})' * (command == 'build')}\n")
        for one in (one for one in found if one.command == command):
            default = "" if one.value == one.default else f" (default {as_typed(one.default)})"
            allowed = "; ".join(filter(None, (one.type, one.range)))
            _print_wrapped(f"{one.name} = {as_typed(one.value)}{default}", "        ")
            _print_wrapped(f"    [{allowed}] {one.meaning}", "    ")
            print()


@app.command(epilog="Example: `pairwright profiles`")
def profiles(*, as_json: AsJson = False) -> None:
    """List the profiles that come with Pairwright. Copy one to make your own, and give it as `--profile FILE.yaml`."""
    from pairwright.flows.list_settings import list_profiles

    found = list_profiles()
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=2))
        return
    for one in found:
        _print_wrapped(f"{one.name:10}{one.about}", " " * 10)
        print(f"{'':10}{one.path}")


def _print_wrapped(text: str, indent: str) -> None:
    """Print a paragraph as wide as the terminal; where there is none, on one line."""
    width = shutil.get_terminal_size((sys.maxsize, 0)).columns
    print(textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
