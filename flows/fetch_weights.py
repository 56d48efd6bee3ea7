"""Fetch and verify all weights that a build would load, ahead of it.

Reads a profile. Which files these are, the stages say themselves: each that has a ``pin`` looks for them when a build
starts, and does so here in a rehearsal (``rehearse``), again and again until it finds everything or cannot
go on. Models that vLLM serves are a matter of their own: they are large, and another program loads them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from pairwright.flows.find_models import served_models
from pairwright.flows.load_profile import load_profile
from pairwright.flows.pipeline import Pipeline
from pairwright.flows.run_build import with_source
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ModelError
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.models.fetching.lacking_weights import Room, find_lacking, find_room
from pairwright.tasks.models.fetching.rehearse import rehearsing
from pairwright.tasks.models.fetching.served_weights import is_on_hub, list_here, list_on_hub
from pairwright.tasks.models.fetching.verify_weights import Verified, Wanted, have_verified, model_of, names_of
from pairwright.tasks.store.stage import Stage

Say = Callable[[str], None]
SPARE_BYTES = 100_000_000
"""What is left free on a disk."""


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Outcome of fetching: what is here now, and what could not be had."""

    found: dict[Wanted, list[Verified]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """What keeps a build from starting, beside the files' own faults."""

    @property
    def files(self) -> list[Verified]:
        """Return every file."""
        return [file for files in self.found.values() for file in files]

    @property
    def faults(self) -> list[str]:
        """Return everything that is wrong, each once."""
        return list(dict.fromkeys([*(file.fault for file in self.files if file.fault), *self.problems]))

    def joined(self, other: "Fetched") -> "Fetched":
        """Return both together."""
        return Fetched(found=self.found | other.found, problems=[*self.problems, *other.problems])

    def lacks(self, wanted: Wanted) -> bool:
        """Say whether a file could not be had."""
        return any(file.fault for file in self.found[wanted])


def profile_to_fetch(name: str, settings: Sequence[str], source: str | None) -> Profile:
    """Return the profile whose weights are meant; where it names no source, a folder of images stands for it.

    Raises:
        ConfigError: the profile or a setting is wrong.
        SourceError: there is no such source.
    """
    profile = load_profile(name, settings)
    if source is None and not profile.source:
        return profile.model_copy(update={"source": "folder:"})
    return with_source(profile, source)


def fetch_weights(profile: Profile, until: str, *, fetch: bool, say: Say) -> Fetched:
    """Have every file that a build's stages load, and verify each; without ``fetch`` nothing comes from the network.

    Raises:
        ConfigError: there is no such stage.
    """
    done = Fetched()
    stages = {stage.section: stage for stage in Pipeline(profile, until).running if stage.pin}
    while True:
        looked = [_rehearse(stage, profile) for stage in stages.values()]
        new = list(dict.fromkeys(file for files, _ in looked for file in files if file not in done.found))
        _have(new, done, fetch=fetch, say=say)
        if not new or any(map(done.lacks, new)):
            break
    done.problems.extend(fault for files, fault in looked if fault and not any(map(done.lacks, files)))
    return done


def fetch_served(profile: Profile, until: str, *, fetch: bool, say: Say) -> Fetched:
    """Have the files of the models that the build starts vLLM for, and verify each."""
    done = Fetched()
    wanted: list[Wanted] = []
    for name, chat in _hub_models(profile, until).items():
        try:
            wanted.append(list_on_hub(chat, name)[0] if fetch else list_here(chat, name))
        except ModelError as error:
            done.problems.append(str(error))
    _have(wanted, done, fetch=fetch, say=say)
    return done


def tell_served(profile: Profile, until: str, *, ask: bool, say: Say) -> None:
    """Say which models vLLM loads that nothing was done about, and how large they are where the Hub may be asked."""
    for name, chat in _hub_models(profile, until).items():
        try:
            size = f" ({shown_size(list_on_hub(chat, name)[1])})" if ask else ""
        except ModelError:
            size = ""
        say(
            f"Left out: {chat.model}{size}, which vLLM loads ({name}). Add --served, or let vLLM fetch it: "
            f"--set {name}.launch.download=true"
        )


def files_table(files: Sequence[Verified]) -> Table:
    """Return the table of what is here: file by file, how large, and by what verified."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, wraps in {"section": False, "model": True, "file": True, "size": False, "verified by": False}.items():
        table.add_column(name, justify="right" if name == "size" else "left", no_wrap=not wraps, overflow="fold")
    for file in files:
        size = shown_size(file.size) if file.folder else ""
        how = file.how if not file.fault else "DAMAGED" if file.folder else "NOT HERE"
        table.add_row(file.field, file.model, file.file, size, how)
    return table


def places_of(files: Sequence[Verified]) -> list[str]:
    """Return where files are, in words: how many, and how large, in each folder."""
    folders = dict.fromkeys(file.folder for file in files if file.folder)
    inside = {folder: [file.size for file in files if file.folder == folder] for folder in folders}
    return [f"{folder}: {_files(len(sizes))}, {shown_size(sum(sizes))}" for folder, sizes in inside.items()]


def shown_size(size: int) -> str:
    """Return a number of bytes for people."""
    unit, name = next(((unit, name) for unit, name in ((1e9, "GB"), (1e6, "MB")) if size >= unit), (1e3, "kB"))
    return f"{size / unit:.1f} {name}"


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"


def _hub_models(profile: Profile, until: str) -> dict[str, ChatConfig]:
    return {name: chat for name, chat in served_models(profile, until).items() if is_on_hub(chat)}


def _rehearse(stage: Stage, profile: Profile) -> tuple[list[Wanted], str]:
    """Return which files a stage looks for, and what kept it from looking further."""
    assert stage.pin
    with rehearsing() as noted:
        try:
            stage.pin(profile.section(stage.section))
            fault = ""
        except ModelError as error:
            fault = str(error)
        except Exception as error:  # noqa: BLE001 - an empty file stands in for what is missing: anything may follow
            fault = f"{stage.section}: {type(error).__name__}: {error}"
    return [file for file in noted if isinstance(file, Wanted)], fault


def _have(wanted: list[Wanted], done: Fetched, *, fetch: bool, say: Say) -> None:
    """Announce, fetch and verify files; what there is no room for is not begun."""
    lacking = {file: find_lacking(file) for file in wanted} if fetch else {}
    full: set[Path] = set()
    for room in find_room(lack for lacks in lacking.values() for lack in lacks):
        say(f"To fetch into {_among(room)}")
        if room.size + SPARE_BYTES > room.free:
            full.update(room.folders)
            done.problems.append(f"there is no room on the disk, nothing was fetched into {_among(room)}")
    for file in wanted:
        say(f"{file.field}: {model_of(file)} {names_of(file)}")
        has_room = not any(lack.folder in full for lack in lacking.get(file, []))
        done.found[file] = have_verified(file, fetch=fetch and has_room)


def _among(room: Room) -> str:
    more = f" and {room.unknown} of unknown size" if room.unknown else ""
    folders = " and ".join(map(str, room.folders))
    return f"{folders}: {_files(room.files)}, {shown_size(room.size)}{more}; {shown_size(room.free)} are free"
