"""The verbs that say what there is to set: ``settings`` and ``profiles``."""

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from pairwright.flows.verbs.options import AsJson, ProfileName, app


@app.command(epilog="Examples: `pairwright settings mining --profile laptop`, `pairwright settings train.optimiser`")
def settings(
    section: Annotated[str, typer.Argument(help="`mining`, `run`, ..., `train`, or one setting. Default: all.")] = "",
    *,
    profile: ProfileName = "scenes",
    tables: Annotated[bool, typer.Option("--tables", help="Show the tables of a dataset instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the settings that `--set` and profiles take, with type, range, default and meaning."""
    if tables:
        from pairwright.flows.list_tables import draw_tables, list_tables

        print(json.dumps([one.as_json() for one in list_tables()], indent=2) if as_json else draw_tables())
        return
    from pairwright.flows.list_settings import list_settings

    found = list_settings(section, profile=profile)
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=2))
        return
    for command in dict.fromkeys(one.command for one in found):
        print(f"pairwright {command} --set NAME=VALUE{f'  (values of profile {profile})' * (command == 'build')}\n")
        for one in (one for one in found if one.command == command):
            default = "" if one.value == one.default else f" (default {_say(one.default)})"
            print(f"{one.name} = {_say(one.value)}{default}    [{'; '.join(filter(None, (one.type, one.range)))}]")
            print(f"    {one.meaning}\n")


@app.command(epilog="Example: `pairwright profiles`")
def profiles(*, as_json: AsJson = False) -> None:
    """List the profiles that come with Pairwright. Copy one to make your own, and give it as `--profile FILE.yaml`."""
    from pairwright.flows.list_settings import list_profiles

    found = list_profiles()
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=2))
        return
    for one in found:
        print(f"{one.name:10}{one.about}\n{'':10}{one.path}")


def _say(value: Any) -> str:
    """Return a value as a user would type it."""
    if isinstance(value, str):
        return value or "''"
    if isinstance(value, Iterable) and not isinstance(value, dict):
        return f"[{', '.join(map(_say, value))}]"
    return "(none)" if value is None else json.dumps(value)
