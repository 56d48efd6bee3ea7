"""Follow the guides about operations, command by command, against real things in a temporary
folder.

A command without a rule here is run and has to end well; what it does is tested with the verbs. A
rule prepares what a command needs, or stops it. Real are the program, Prefect's server, worker and
automations, Dask's scheduler and worker, and moto's S3 server; the models are tiny checkpoints and
a scripted chat server. What is typed otherwise than it stands there is in ``site``
(``stands_for``), what is not run in ``NOT_HERE``.
"""

import json
import re
import signal
from dataclasses import dataclass, field
from importlib.metadata import metadata
from pathlib import Path

import httpx
import pytest
import yaml
from PIL import Image

import pairwright as pw
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import latest_snapshot
from tests.fixtures.chat_server import ChatServer, Hang
from tests.fixtures.checkpoints import write_clip_folder, write_dinov2_folder
from tests.fixtures.command import words_of
from tests.fixtures.prefect_server import PrefectServer, free_port, listening
from tests.fixtures.readme import typed_in
from tests.fixtures.s3_server import environment, s3_server
from tests.fixtures.scripted_model import answer as sound
from tests.fixtures.scripted_model import kind_of
from tests.fixtures.terminal import Terminal, wait_for
from tests.flows import conftest

ROOT = Path(__file__).parents[3]
BUILD = "pairwright build PHOTOS --profile mine.yaml --until captioning --out album"
SMALL, WIDE = " ".join(words_of(conftest.SMALL)), " ".join(words_of(conftest.WIDE))
SECTIONS = RESUME, OPERATIONS, PREFECT, MACHINES = tuple(
    f"docs/guides/{name}.md" for name in ("resume", "operations", "prefect", "clusters")
)
NOT_HERE = {
    "--profile gpu": (
        "of `docker compose`: there is no container engine; tests/docker looks at the file"
    ),
}
RULES = {}
ENDS = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def profile(url):
    """Return a profile for photographs that needs no weights."""
    chat = {"endpoint": url, "model": "tiny", "structured_output": "none", "max_attempts": 2}
    lowest = {"min_best_similarity": 0, "min_similarity": 0, "max_similarity": 1}
    return {
        "embedding": {"embedders": ["colour-layout", "gradients"]},
        "mining": {"weights": [0.4, 0.6], **lowest},
        "captions": {"writer": "served"},
        "differences": {"writer": "served"},
        "rejections": {"enabled": False},
        "models": {"chat": chat},
        "run": {"workers": 1},
    }


@dataclass
class Site:
    """Folder in which a guide is followed."""

    terminal: Terminal
    server: PrefectServer
    hangs: list[str] = field(default_factory=list)
    """To which kinds of questions the chat server does not answer."""
    followed: list[str] = field(default_factory=list)
    taken: int = 0
    """How many photographs."""
    key: str = ""
    """Of the image that is removed."""

    def __post_init__(self):
        self.chat = ChatServer(self.answer)
        self.run = self.terminal.run
        self.photographs = self.terminal.folder / "PHOTOS"
        self.album = self.terminal.folder / "album"

    def begin(self):
        """Write some photographs, one of them empty, and a profile."""
        self.photographs.mkdir()
        for _ in range(5):
            self.add_photograph()
        (self.photographs / "empty.jpg").touch()
        (self.terminal.folder / "mine.yaml").write_text(yaml.safe_dump(profile(self.chat.url)))

    def answer(self, asked):
        kind = kind_of(asked)
        if kind in self.hangs:
            return Hang()
        if asked.images or kind != "difference":
            return sound(asked)
        return "A server that is held to no grammar."

    @property
    def version(self):
        snapshot = latest_snapshot(Folder(str(self.album)))
        return snapshot.number if snapshot else 0

    def log(self, name):
        return self.terminal.folder / f"{name}.log"

    def add_photograph(self):
        """Add a photograph that is like the others; return its name."""
        number, self.taken = self.taken, self.taken + 1
        image = Image.effect_noise((64, 48), 80).convert("RGB")
        if number % 4:
            image = Image.open(self.photographs / "00.png")
        image.paste((255, 20 * number % 256, 0), (0, 0, 6 + number, 8))
        image.save(self.photographs / f"{number:02d}.png")
        return f"{number:02d}.png"

    def count_asked(self, kind):
        """Return how many questions of a kind were asked."""
        return sum(kind_of(asked) == kind for asked in self.chat.asked)

    def start(self, words, name, is_ready=lambda log: True):
        """Start a command, and wait until it is ready, by what it logs; return its process."""
        log = self.log(name)
        process = self.terminal.start(words, log)
        wait_for(lambda: is_ready(log.read_text()), process, log)
        return process

    def interrupt(self, process):
        process.send_signal(signal.SIGINT)
        return process.wait(60)

    def deployment(self):
        """Return the deployment of the album's updates."""
        (deployment,) = self.server.ask("deployments", deployments={"tags": {"all_": ["album"]}})
        return deployment

    def run_deployed(self, deployment, process, log, **parameters):
        """Let a deployment run, which a process has to do; return how it ended."""
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        path = f"deployments/{deployment['id']}/create_flow_run"
        own = {"id": {"any_": [self.server.post(path, **body)["id"]]}}

        def end():
            (flow_run,) = self.server.ask("flow_runs", flow_runs=own)
            return flow_run["state_type"] in ENDS and flow_run["state_type"]

        return wait_for(end, process, self.log(log))

    def rows(self, table):
        return list(pw.open(self.album)[table].rows())

    def images(self):
        return {row.name: row for row in self.rows("images")}


def follows(section, words):
    """Let a function follow what a section says to type."""

    def register(rule):
        RULES[section, words] = rule
        return rule

    return register


@pytest.fixture(scope="module")
def site(tmp_path_factory):
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
    site = Site(Terminal.opened(folder / "desk", **own), server)
    site.chat.start()
    # As the README says, a local checkpoint will do, and what needs the other weights can be left
    # out; the server's answers would pass no check, and the tiny CLIP reads no text.
    laptop = [
        f"embedding.clip.checkpoint={write_clip_folder(folder / 'clip')}",
        f"embedding.dinov2.model={write_dinov2_folder(folder / 'dinov2')}",
        "run.workers=1",
        *(
            f"{section}.enabled=false"
            for section in ("rejections", "controls", "grounding", "regions", "confirming")
        ),
    ]
    site.terminal.stands_for = {
        "http://127.0.0.1:8000/v1": site.chat.url,
        "http://127.0.0.1:4200": f"http://127.0.0.1:{server.port}",
        "--profile laptop": " ".join(["--profile laptop", WIDE, *words_of(laptop)]),
        "--out demo": f"--out demo {SMALL}",
        "docker/": f"{ROOT}/docker/",
        "HOST:8786": f"127.0.0.1:{port}",
        "dask scheduler": f"dask scheduler --host 127.0.0.1 --port {port} --no-dashboard",
        "--nthreads 1": "--nthreads 1 --host 127.0.0.1 --no-dashboard",
        "http://HOST:8000/v1": site.chat.url,
    }
    try:
        with s3_server() as store:
            store.make_bucket("bucket")
            site.terminal.environment |= environment(store)
            site.begin()
            yield site
    finally:
        site.terminal.close()
        site.chat.close()


def follow(site, section):
    for typed in typed_in(section):
        if typed.words in NOT_HERE:
            continue
        if (section, typed.words) in RULES:
            RULES[section, typed.words](site, typed.words)
        else:
            assert typed.words.startswith(("pairwright ", "prefect ")), f"no rule: {typed.words}"
            site.run(typed.words)


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_what_the_guides_say_is_done(site, section) -> None:
    for earlier in SECTIONS[: SECTIONS.index(section) + 1]:
        if earlier not in site.followed:
            site.followed.append(earlier)
            follow(site, earlier)


def test_every_rule_is_followed() -> None:
    typed = {(section, typed.words) for section in SECTIONS for typed in typed_in(section)}
    assert RULES.keys() <= typed
    assert NOT_HERE.keys() <= {words for _, words in typed}


@follows(RESUME, "kill -9")
def _(site, words):
    site.hangs = ["difference"]
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        before = site.count_asked("difference")
        is_asking = lambda log: site.count_asked("difference") > before  # noqa: B023, E731
        process = site.start(BUILD, number.name, is_asking)
        process.send_signal(number)
        assert process.wait(60) == code
    assert "go on with: pairwright resume album" in site.log("SIGINT").read_text()
    assert not site.version
    site.hangs = []


@follows(RESUME, "pairwright build")
def _(site, words):
    added, captions = site.add_photograph(), site.count_asked("captions")
    site.run(BUILD)
    (site.photographs / added).rename(site.photographs / "renamed.png")
    site.run(BUILD)
    assert "renamed.png" in site.images()
    assert site.count_asked("captions") == captions + 1, "the image is known by its bytes"
    limit = max(pair.similarity for pair in site.rows("pairs")) - 1e-6
    site.run(f"{BUILD} --set mining.max_similarity={limit}")
    assert site.version == 4


@follows(RESUME, "pairwright resume album --stage captioning --reason 'no answer in time'")
def _(site, words):
    advice = "pairwright resume album --stage captions"
    site.add_photograph()
    site.hangs = ["captions"]
    output = site.run(f"{BUILD} --set models.chat.timeout_seconds=2", code=1)
    assert f"{advice} --reason 'no answer in time'" in output
    site.hangs = []
    before = len(site.chat.asked)
    output = site.run(words, code=1)
    assert [kind_of(asked) for asked in site.chat.asked[before:]] == ["captions"]
    assert advice not in output, "what is unfinished now is what comes after it"
    site.run("pairwright resume album")


@follows(OPERATIONS, "pairwright doctor --profile laptop")
def _(site, words):
    output = site.run(words, code=1, but=("--profile laptop",))
    assert "-> pairwright fetch --profile laptop" in output
    site.run(f"{words} --set models.chat.endpoint=http://127.0.0.1:8000/v1")


@follows(
    OPERATIONS,
    "pairwright plan PHOTOS --profile laptop "
    "--set models.chat.endpoint=http://127.0.0.1:8000/v1 --trial 50",
)
def _(site, words):
    site.run(words, code=2, but=("--profile laptop",))
    assert "Not known" not in site.run(words)


@follows(OPERATIONS, "pairwright lineage album KEY")
def _(site, words):
    site.key = site.terminal.stands_for["KEY"] = site.rows("pairs")[0].first
    assert site.key in site.run(words)


@follows(OPERATIONS, "pairwright remove album KEY --reason 'on request'")
def _(site, words):
    site.run(words)
    assert f"{site.key}\ton request" in site.run("pairwright remove album")


@follows(OPERATIONS, "--version N")
def _(site, words):
    site.run(f"pairwright report album --version {site.version}")
    assert "no version 1" in site.run("pairwright report album --version 1", code=2)


@follows(OPERATIONS, "pairwright publish album")
def _(site, words):
    before = site.version
    site.add_photograph()
    output = site.run("pairwright resume album --set 'gates.min_yield={images: 1}'", code=1)
    assert "(gates.min_yield)" in output
    assert words in output
    assert site.version == before
    site.run(words)
    assert site.version == before + 1


@follows(OPERATIONS, "--set 'gates.min_yield={pairs: 0.2}'")
def _(site, words):
    before = site.version
    site.add_photograph()
    site.run(f"pairwright resume album {words}")
    assert site.version == before + 1


@follows(OPERATIONS, "pairwright resume album --set run.budget.max_calls=20000")
def _(site, words):
    site.add_photograph()
    site.run("pairwright resume album --set run.budget.max_calls=1", code=1)
    site.run(words)


@follows(OPERATIONS, "--log-format json")
def _(site, words):
    lines = site.run(f"pairwright resume album {words}").splitlines()
    assert any("message" in json.loads(line) for line in lines if line.startswith("{"))


@follows(PREFECT, "export PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1")
@follows(PREFECT, "export PREFECT_API_URL=http://127.0.0.1:4200/api")
def _(site, words):
    site.terminal.export(words)


@follows(PREFECT, "prefect server start --host 127.0.0.1 &")
def _(site, words):
    assert site.terminal.environment.get("DO_NOT_TRACK") == "1", "it would tell of its use"
    process = site.start(words, "server", lambda log: site.server.is_healthy())
    url = f"{site.server.environment['PREFECT_API_URL']}/admin/settings"
    settings = httpx.get(url, timeout=30).json()
    assert settings["server"]["analytics_enabled"] is False
    addresses = Path(f"/proc/{process.pid}/net/tcp").read_text()
    assert f" 0100007F:{site.server.port:04X} " in addresses
    assert f" 00000000:{site.server.port:04X} " not in addresses


@follows(PREFECT, "pairwright schedule album --cron '0 2 * * *' --serve")
def _(site, words):
    before, name = site.version, site.add_photograph()
    process = site.start(words, "serve", lambda log: "run here" in log)
    assert site.run_deployed(site.deployment(), process, "serve") == "COMPLETED"
    assert site.version == before + 1
    assert name in site.images()
    assert site.interrupt(process) == 0
    assert site.deployment()["paused"]
    site.run(words.removesuffix(" --serve"))
    assert not site.deployment()["paused"], "it is scheduled again"


@follows(PREFECT, "prefect worker start --pool pairwright-gpu --type process")
def _(site, words):
    before, name = site.version, site.add_photograph()
    process = site.start(words, "worker")
    (update,) = site.server.ask("deployments", deployments={"name": {"any_": ["update"]}})
    end = site.run_deployed(update, process, "worker", dataset=str(site.album))
    assert end == "COMPLETED"
    assert site.version == before + 1
    assert name in site.images()
    assert site.interrupt(process) == 0


@follows(PREFECT, "prefect automation create --from-file notify.yaml")
def _(site, words):
    lines = (ROOT / "docker" / "notify.yaml").read_text().splitlines()
    head = [line[2:].strip() for line in lines if line[0] == "#"]
    typed = [line for line in head if line.startswith(("block=", "sed ", "prefect "))]
    make, fill, create = typed
    assert create == words
    with listening() as (address, posted):
        site.terminal.stands_for["https://chat.example/hook"] = address
        site.run(f"{make}\n{fill}")
        site.run(words)
        site.add_photograph()
        site.run("pairwright resume album --set 'gates.min_yield={images: 1}'", code=1)
        text = json.loads(posted.get(timeout=120))["text"]
    assert "pairwright publish album" in text


@follows(MACHINES, "python -m pip install -c constraints.txt -e '.[cpu,models,dask,s3]'")
def _(site, words):
    extras = re.findall(r"\w+", words.partition("[")[2])
    assert {*extras} <= set(metadata("pairwright").get_all("Provides-Extra") or [])
    assert (ROOT / "constraints.txt").exists()


@follows(MACHINES, "dask scheduler")
def _(site, words):
    site.start(words, "scheduler", lambda log: "Scheduler at" in log)


@follows(
    MACHINES, "CUDA_VISIBLE_DEVICES=0 dask worker tcp://HOST:8786 --nthreads 1 --resources GPU=1"
)
def _(site, words):
    site.start(words, "dask-worker", lambda log: "Registered to" in log)


@follows(
    MACHINES,
    "pairwright build PHOTOS --profile laptop --set models.chat.endpoint=http://HOST:8000/v1 "
    "--out s3://bucket/album --set run.runner=dask --set run.address=tcp://HOST:8786",
)
def _(site, words):
    from distributed import Client

    assert "pairwright fetch" in site.run(words, code=2, but=("--profile laptop",))
    site.run(words)
    dataset = pw.open("s3://bucket/album")
    photographs = {path.name for path in site.photographs.iterdir() if path.stat().st_size}
    assert {row.name for row in dataset["images"].rows()} == photographs
    assert list(dataset["splits"].rows())
    with Client(site.terminal.read("tcp://HOST:8786"), set_as_default=False) as client:
        tasks = client.run_on_scheduler(
            lambda dask_scheduler: [log[0] for log in dask_scheduler.transition_log]
        )
    steps = {name.partition("-")[0] for name in tasks}
    assert {"images", "embeddings", "captions", "splits"} <= steps
