"""Follow the guides about operations, command by command, against real things in a temporary
folder.

Each command has a rule here, which runs it and looks whether it did what the guide says beside it;
a command without one fails. Real are the program, Prefect's server, worker and automations, Dask's
scheduler and worker, and moto's S3 server; the models are tiny checkpoints and a scripted chat
server. What is typed otherwise than it stands there is in ``site`` (``stands_for``), what is not
run in ``NOT_HERE``.
"""

import json
import re
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import metadata
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import httpx
import pytest
import yaml
from PIL import Image

import pairwright as pw
from pairwright.schemas.rows import ImageRow, PairRow
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import latest_snapshot, snapshot_numbers
from tests.fixtures.chat_server import Asked, ChatServer, Hang
from tests.fixtures.checkpoints import write_clip_folder, write_dinov2_folder
from tests.fixtures.prefect_server import PrefectServer, free_port
from tests.fixtures.readme import typed_in
from tests.fixtures.s3_server import environment, s3_server
from tests.fixtures.scripted_model import answer as sound
from tests.fixtures.scripted_model import kind_of
from tests.fixtures.terminal import Terminal, wait_for

ROOT = Path(__file__).parent.parent.parent
BUILD = "pairwright build PHOTOS --profile mine.yaml --until captioning --out album"
SMALL = (
    "--set scenes.worlds=3 --set scenes.width=96 --set scenes.height=72 --set "
    "scenes.samples_per_pixel=2 "
    "--set run.workers=1"
)
WIDE = (
    "--set mining.min_best_similarity=0 --set mining.min_similarity=0 --set mining.max_similarity=1"
)
SECTIONS = tuple(
    f"docs/guides/{name}.md" for name in ("resume", "operations", "prefect", "clusters")
)
NOT_HERE = {
    "--profile gpu": (
        "of `docker compose`: there is no container engine; tests/docker looks at the file"
    ),
}


@dataclass
class Site:
    """Folder in which a guide is followed."""

    terminal: Terminal
    chat: ChatServer
    server: PrefectServer
    hangs: list[str] = field(default_factory=list)
    """To which kinds of questions the chat server does not answer."""
    followed: list[str] = field(default_factory=list)
    taken: int = 0
    """How many photographs."""
    key: str = ""
    """Of the image that is removed."""

    @property
    def album(self) -> Path:
        return self.terminal.folder / "album"

    @property
    def photographs(self) -> Path:
        return self.terminal.folder / "PHOTOS"

    @property
    def version(self) -> int:
        snapshot = latest_snapshot(Folder(str(self.album)))
        return snapshot.number if snapshot else 0

    def log(self, name: str) -> Path:
        return self.terminal.folder / f"{name}.log"

    def add_photograph(self) -> str:
        """Add a photograph that is like the others; return its name."""
        number, self.taken = self.taken, self.taken + 1
        image = (
            Image.effect_noise((64, 48), 80).convert("RGB") if number % 4 == 0 else self._first()
        )
        image.paste((255, 20 * number % 256, 0), (0, 0, 6 + number, 8))
        image.save(self.photographs / f"{number:02d}.png")
        return f"{number:02d}.png"

    def _first(self) -> Image.Image:
        return Image.open(self.photographs / "00.png").copy()

    def asked(self, kind: str) -> int:
        """Return how many questions of a kind were asked."""
        return sum(kind_of(one) == kind for one in self.chat.asked)

    def deployment(self) -> dict[str, Any]:
        """Return the deployment of the album's updates."""
        (found,) = self.server.ask("deployments", deployments={"tags": {"all_": ["album"]}})
        return found

    def start_run(self, deployment: str, **parameters: str) -> str:
        """Let a deployment run now; return the run's id."""
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        return self.server.post(f"deployments/{deployment}/create_flow_run", **body)["id"]

    def ended(self, run: str) -> str:
        """Return how a run ended; empty: it has not."""
        (found,) = self.server.ask("flow_runs", flow_runs={"id": {"any_": [run]}})
        return (
            found["state_type"]
            if found["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
            else ""
        )

    def parts(self, table: str) -> set[Path]:
        return set((self.album / "tables" / table).rglob("part-*.parquet"))

    def pairs(self) -> list[PairRow]:
        return [row for row in pw.open(self.album)["pairs"].rows() if isinstance(row, PairRow)]

    def images(self) -> dict[str, ImageRow]:
        return {
            row.name: row
            for row in pw.open(self.album)["images"].rows()
            if isinstance(row, ImageRow)
        }


@contextmanager
def listening() -> Generator[tuple[str, Queue[bytes]]]:
    """Give the address of a server on loopback, and what is posted to it."""
    told: Queue[bytes] = Queue()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook", told
        server.shutdown()


Rule = Callable[[Site, str], None]
RULES: dict[tuple[str, str], Rule] = {}
RESUME, OPERATIONS, PREFECT, MACHINES = SECTIONS


def follows(section: str, words: str) -> Callable[[Rule], Rule]:
    """Let a function follow what a section says to type."""

    def registered(rule: Rule) -> Rule:
        RULES[section, words] = rule
        return rule

    return registered


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    folder = tmp_path_factory.mktemp("readme")
    (folder / "prefect").mkdir()
    server, port = PrefectServer(folder / "prefect"), free_port()
    own = {
        "HF_HOME": str(folder / "hub"),
        "PAIRWRIGHT_CACHE": str(folder / "cache"),
        "TMPDIR": str(folder),
        "PREFECT_HOME": str(server.home),
        "PREFECT_SERVER_API_PORT": str(server.port),
        "PREFECT_RUNNER_POLL_FREQUENCY": "1",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
    }
    here = Site(
        Terminal.opened(folder / "desk", **own),
        ChatServer(lambda asked: answer(here, asked)),
        server,
    )
    here.chat.start()
    encoders = write_clip_folder(folder / "clip"), write_dinov2_folder(folder / "dinov2")
    own_weights = "--set embedding.clip.checkpoint={} --set embedding.dinov2.model={}".format(
        *encoders
    )
    here.terminal.stands_for = {
        "http://127.0.0.1:8000/v1": here.chat.url,
        "http://127.0.0.1:4200": f"http://127.0.0.1:{server.port}",
        # As the README says, a local checkpoint will do, and what needs the other weights can be
        # left out; the paper's
        # thresholds are for trained ones.
        # The server's answers would pass no check, and the tiny CLIP reads no text.
        "--profile laptop": f"--profile laptop {own_weights} {WIDE} --set run.workers=1 --set "
        f"rejections.enabled=false "
        "--set controls.enabled=false --set grounding.enabled=false",
        "--out demo": f"--out demo {SMALL}",
        "docker/": f"{ROOT}/docker/",
        "HOST:8786": f"127.0.0.1:{port}",
        "dask scheduler": f"dask scheduler --host 127.0.0.1 --port {port} --no-dashboard",
        "--nthreads 1": "--nthreads 1 --host 127.0.0.1 --no-dashboard",
        "http://HOST:8000/v1": here.chat.url,
    }
    try:
        with s3_server() as store:
            store.make_bucket("bucket")
            here.terminal.environment |= environment(store)
            begin(here)
            yield here
    finally:
        here.terminal.close()
        here.chat.close()


def answer(site: Site, asked: Asked) -> str | Hang:
    kind = kind_of(asked)
    if kind in site.hangs:
        return Hang()
    return (
        sound(asked)
        if asked.images or kind != "difference"
        else "A server that is held to no grammar."
    )


def begin(site: Site) -> None:
    """Write some photographs, one of them empty, and a profile for them that needs no weights."""
    site.photographs.mkdir()
    for _ in range(5):
        site.add_photograph()
    (site.photographs / "empty.jpg").touch()
    profile: dict[str, Any] = {
        "embedding": {"embedders": ["colour-layout", "gradients"]},
        "mining": {
            "weights": [0.4, 0.6],
            "min_best_similarity": 0,
            "min_similarity": 0,
            "max_similarity": 1,
        },
        "captions": {"writer": "served"},
        "differences": {"writer": "served"},
        "rejections": {"enabled": False},
        "models": {
            "chat": {
                "endpoint": site.chat.url,
                "model": "tiny",
                "structured_output": "none",
                "max_attempts": 2,
            }
        },
        "run": {"workers": 1},
    }
    (site.terminal.folder / "mine.yaml").write_text(yaml.safe_dump(profile))


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_what_the_guides_say_is_done(site: Site, section: str) -> None:
    for earlier in SECTIONS[: SECTIONS.index(section) + 1]:
        if earlier not in site.followed:
            site.followed.append(earlier)
            follow(site, earlier)


def follow(site: Site, section: str) -> None:
    for typed in typed_in(section):
        if typed.words not in NOT_HERE:
            assert (section, typed.words) in RULES, f"{section}: no rule follows `{typed.words}`"
            RULES[section, typed.words](site, typed.words)


def test_every_rule_is_followed() -> None:
    told = {(section, typed.words) for section in SECTIONS for typed in typed_in(section)}
    assert RULES.keys() <= told
    assert NOT_HERE.keys() <= {words for _, words in told}


@follows(RESUME, "kill -9")
def _(site: Site, words: str) -> None:
    site.hangs = ["difference"]
    for how, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        before, log = site.asked("difference"), site.log(how.name)
        process = site.terminal.start(BUILD, log)
        wait_for(lambda: site.asked("difference") > before, process, log)  # noqa: B023
        process.send_signal(how)
        assert process.wait(60) == code
    assert "go on with: pairwright resume album" in site.log("SIGINT").read_text()
    assert not site.version
    site.hangs = []


@follows(RESUME, "pairwright resume album")
def _(site: Site, words: str) -> None:
    captions = site.asked("captions")
    assert captions == 5, "each image once, by three builds"
    assert "as version 1" in site.terminal.run(words)
    assert site.asked("captions") == captions


@follows(RESUME, "pairwright build")
def _(site: Site, words: str) -> None:
    embedded = site.parts("embeddings")
    added, captions = site.add_photograph(), site.asked("captions")
    site.terminal.run(BUILD)
    assert site.asked("captions") == captions + 1
    assert len(site.parts("embeddings")) == len(embedded) + 1
    embedded = site.parts("embeddings")
    (site.photographs / added).rename(site.photographs / "renamed.png")
    (site.photographs / "01.png").unlink()
    site.terminal.run(BUILD)
    assert "renamed.png" in site.images()
    assert not {added, "01.png"} & site.images().keys()
    assert site.asked("captions") == captions + 1, "the image is known by its bytes"
    limit = max(pair.similarity for pair in site.pairs()) - 1e-6
    site.terminal.run(f"{BUILD} --set mining.max_similarity={limit}")
    assert site.parts("embeddings") == embedded
    assert site.version == 4


@follows(RESUME, "pairwright resume album --stage captioning --reason 'no answer in time'")
def _(site: Site, words: str) -> None:
    site.add_photograph()
    site.hangs = ["captions"]
    said = site.terminal.run(f"{BUILD} --set models.chat.timeout_seconds=2", code=1)
    assert "pairwright resume album --stage captions --reason 'no answer in time'" in said
    site.hangs = []
    before = len(site.chat.asked)
    said = site.terminal.run(words, code=1)
    assert [kind_of(one) for one in site.chat.asked[before:]] == ["captions"]
    assert "pairwright resume album --stage captions" not in said, (
        "what is owed now is what comes after it"
    )
    site.terminal.run("pairwright resume album")


@follows(OPERATIONS, "pairwright doctor --profile laptop")
def _(site: Site, words: str) -> None:
    assert "-> pairwright fetch --profile laptop" in site.terminal.run(
        words, code=1, but=("--profile laptop",)
    )
    mended = site.terminal.run(f"{words} --set models.chat.endpoint=http://127.0.0.1:8000/v1")
    assert "laptop: can build here." in mended


@follows(
    OPERATIONS,
    (
        "pairwright plan PHOTOS --profile laptop --set "
        "models.chat.endpoint=http://127.0.0.1:8000/v1 "
        "--trial 50"
    ),
)
def _(site: Site, words: str) -> None:
    assert "pairwright fetch" in site.terminal.run(words, code=2, but=("--profile laptop",))
    said = site.terminal.run(words)
    assert re.search(r"^captions .* \d", said, re.MULTILINE)
    assert "Not known" not in said


@follows(OPERATIONS, "pairwright versions album")
@follows(OPERATIONS, "pairwright diff album 3 4")
def _(site: Site, words: str) -> None:
    assert "mining.max_similarity was 1.0, is 0." in site.terminal.run(words)


@follows(OPERATIONS, "pairwright lineage album KEY")
def _(site: Site, words: str) -> None:
    site.key = site.terminal.stands_for["KEY"] = site.pairs()[0].first
    said = site.terminal.run(words)
    assert site.key in said
    assert "tiny" in said, "the model that wrote"


@follows(OPERATIONS, "pairwright remove album KEY --reason 'on request'")
def _(site: Site, words: str) -> None:
    assert "1 images" in site.terminal.run(words)
    assert f"{site.key}\ton request" in site.terminal.run("pairwright remove album")


@follows(OPERATIONS, "pairwright resume album")
def _(site: Site, words: str) -> None:
    before = site.version
    site.terminal.run(words)
    assert site.version == before + 1
    assert site.key not in {image.key for image in site.images().values()}


@follows(OPERATIONS, "pairwright gc album --keep 1")
def _(site: Site, words: str) -> None:
    site.terminal.run(words)
    assert snapshot_numbers(Folder(str(site.album))) == [site.version]
    assert site.images(), "the others stay"


@follows(OPERATIONS, "--version N")
def _(site: Site, words: str) -> None:
    site.terminal.run(f"pairwright report album --version {site.version}")
    assert "no version 1" in site.terminal.run("pairwright report album --version 1", code=2)


@follows(OPERATIONS, "pairwright publish album")
def _(site: Site, words: str) -> None:
    before = site.version
    site.add_photograph()
    said = site.terminal.run("pairwright resume album --set 'gates.min_yield={images: 1}'", code=1)
    assert "(gates.min_yield)" in said
    assert words in said
    assert site.version == before
    site.terminal.run(words)
    assert site.version == before + 1


@follows(OPERATIONS, "--set 'gates.min_yield={pairs: 0.2}'")
def _(site: Site, words: str) -> None:
    before = site.version
    site.add_photograph()
    site.terminal.run(f"pairwright resume album {words}")
    assert site.version == before + 1
    assert json.loads((site.album / "build.json").read_text())["profile"]["gates"]["min_yield"] == {
        "pairs": 0.2
    }


@follows(OPERATIONS, "pairwright resume album --set run.budget.max_calls=20000")
def _(site: Site, words: str) -> None:
    site.add_photograph()
    before = len(site.chat.asked)
    said = site.terminal.run("pairwright resume album --set run.budget.max_calls=1", code=1)
    assert "run.budget.max_calls" in said
    assert len(site.chat.asked) - before <= 1
    site.terminal.run(words)
    assert site.asked("captions")


@follows(OPERATIONS, "pairwright status album --verify")
def _(site: Site, words: str) -> None:
    assert "sound" in site.terminal.run(words)


@follows(OPERATIONS, "--log-format json")
def _(site: Site, words: str) -> None:
    said = site.terminal.run(f"pairwright resume album {words}").splitlines()
    assert any("message" in json.loads(line) for line in said if line.startswith("{"))


@follows(PREFECT, "export PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1")
@follows(PREFECT, "export PREFECT_API_URL=http://127.0.0.1:4200/api")
def _(site: Site, words: str) -> None:
    site.terminal.export(words)


@follows(PREFECT, "prefect server start --host 127.0.0.1 &")
def _(site: Site, words: str) -> None:
    assert site.terminal.environment.get("DO_NOT_TRACK") == "1", "it would tell of its use"
    process = site.terminal.start(words, site.log("server"))
    wait_for(site.server.is_healthy, process, site.log("server"))
    settings = httpx.get(
        f"{site.server.environment['PREFECT_API_URL']}/admin/settings", timeout=30
    ).json()
    assert settings["server"]["analytics_enabled"] is False
    listening_at = Path(f"/proc/{process.pid}/net/tcp").read_text()
    assert f" 0100007F:{site.server.port:04X} " in listening_at
    assert f" 00000000:{site.server.port:04X} " not in listening_at


@follows(PREFECT, "pairwright build --out demo")
def _(site: Site, words: str) -> None:
    site.terminal.run(words)
    (run,) = site.server.flow_runs("build-demo")
    assert run["state_type"] == "COMPLETED"
    assert [step["name"] for step in site.server.subflows(run)] == [
        *("mine-pairs-demo", "write-texts-demo", "reject-images-demo", "build-preferences-demo")
    ]


@follows(PREFECT, "pairwright schedule album --cron '0 2 * * *' --timezone Europe/Zurich")
def _(site: Site, words: str) -> None:
    site.terminal.run(words)
    assert site.deployment()["work_pool_name"] == "pairwright"


@follows(PREFECT, "pairwright schedule album --cron '0 2 * * *' --serve")
def _(site: Site, words: str) -> None:
    log, before, name = site.log("serve"), site.version, site.add_photograph()
    process = site.terminal.start(words, log)
    wait_for(lambda: "run here" in log.read_text(), process, log)
    run = site.start_run(site.deployment()["id"])
    wait_for(lambda: site.ended(run), process, log)
    assert site.ended(run) == "COMPLETED"
    assert site.version == before + 1
    assert name in site.images()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert site.deployment()["paused"]
    site.terminal.run(words.removesuffix(" --serve"))
    assert not site.deployment()["paused"], "it is scheduled again"


@follows(PREFECT, "prefect work-pool create pairwright --type process --overwrite")
@follows(PREFECT, "prefect work-pool create pairwright-gpu --type process --overwrite")
def _(site: Site, words: str) -> None:
    site.terminal.run(words)
    assert words.split()[3] in {pool["name"] for pool in site.server.ask("work_pools")}


@follows(PREFECT, "prefect --no-prompt deploy --all --prefect-file docker/prefect.yaml")
def _(site: Site, words: str) -> None:
    site.terminal.run(words)
    names = ["build", "resume", "update", "train", "export"]
    found = site.server.ask("deployments", deployments={"name": {"any_": names}})
    assert sorted(one["name"] for one in found) == sorted(names)
    assert all(one["parameter_openapi_schema"]["properties"] for one in found)


@follows(PREFECT, "prefect worker start --pool pairwright-gpu --type process")
def _(site: Site, words: str) -> None:
    log, before, name = site.log("worker"), site.version, site.add_photograph()
    process = site.terminal.start(words, log)
    (update,) = site.server.ask("deployments", deployments={"name": {"any_": ["update"]}})
    run = site.start_run(update["id"], dataset=str(site.album))
    wait_for(lambda: site.ended(run), process, log)
    assert site.ended(run) == "COMPLETED"
    assert site.version == before + 1
    assert name in site.images()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0


@follows(PREFECT, "prefect automation create --from-file notify.yaml")
def _(site: Site, words: str) -> None:
    head = [
        line[2:].strip()
        for line in (ROOT / "docker" / "notify.yaml").read_text().splitlines()
        if line[0] == "#"
    ]
    make, fill, create = (line for line in head if line.startswith(("block=", "sed ", "prefect ")))
    assert create == words
    with listening() as (address, told):
        site.terminal.stands_for["https://chat.example/hook"] = address
        site.terminal.run(f"{make}\n{fill}")
        site.terminal.run(words)
        site.add_photograph()
        site.terminal.run("pairwright resume album --set 'gates.min_yield={images: 1}'", code=1)
        said = json.loads(told.get(timeout=120))["text"]
    assert "(gates.min_yield)" in said
    assert "images" in said
    assert "pairwright publish album" in said


@follows(MACHINES, "python -m pip install -c constraints.txt -e '.[cpu,models,dask,s3]'")
def _(site: Site, words: str) -> None:
    extras = re.findall(r"\w+", words.partition("[")[2])
    assert {*extras} <= set(metadata("pairwright").get_all("Provides-Extra") or [])
    assert (ROOT / "constraints.txt").exists()


@follows(MACHINES, "dask scheduler")
def _(site: Site, words: str) -> None:
    process = site.terminal.start(words, site.log("scheduler"))
    wait_for(
        lambda: "Scheduler at" in site.log("scheduler").read_text(), process, site.log("scheduler")
    )


@follows(
    MACHINES, "CUDA_VISIBLE_DEVICES=0 dask worker tcp://HOST:8786 --nthreads 1 --resources GPU=1"
)
def _(site: Site, words: str) -> None:
    process = site.terminal.start(words, site.log("dask-worker"))
    wait_for(
        lambda: "Registered to" in site.log("dask-worker").read_text(),
        process,
        site.log("dask-worker"),
    )


@follows(
    MACHINES,
    "pairwright build PHOTOS --profile laptop --set models.chat.endpoint=http://HOST:8000/v1 "
    "--out s3://bucket/album "
    "--set run.runner=dask --set run.address=tcp://HOST:8786",
)
def _(site: Site, words: str) -> None:
    from distributed import Client

    assert "pairwright fetch" in site.terminal.run(words, code=2, but=("--profile laptop",))
    site.terminal.run(words)
    photographs = [path for path in site.photographs.iterdir() if path.stat().st_size]
    images = list(pw.open("s3://bucket/album")["images"].rows())
    assert {row.name for row in images if isinstance(row, ImageRow)} == {
        path.name for path in photographs
    }
    assert list(pw.open("s3://bucket/album")["splits"].rows())
    with Client(site.terminal.read("tcp://HOST:8786"), set_as_default=False) as client:
        done: Any = client.run_on_scheduler(
            lambda dask_scheduler: [log[0] for log in dask_scheduler.transition_log]
        )
    assert {"images", "embeddings", "captions", "splits"} <= {
        name.partition("-")[0] for name in done
    }
