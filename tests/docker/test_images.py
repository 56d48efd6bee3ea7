"""The images and the services, as far as they can be looked at where there is no engine that runs
them."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from pairwright.flows.building.find_models import profile_to_fetch, served_on_hub
from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.tasks.models.weights import CACHE, weights_folder
from pairwright.tasks.serving.gpu_memory import MARGIN
from pairwright.tasks.serving.launch import vllm_command

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker"
FILES = sorted(FOLDER.glob("Dockerfile*"))
COMPOSE = FOLDER / "compose.yaml"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
each_file = pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])


def instructions(file: Path) -> list[tuple[str, str]]:
    """Return each instruction with what follows it, in one line; comments are left out."""
    text = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [
        (name, rest.strip())
        for name, _, rest in (line.partition(" ") for line in lines if line.strip())
    ]


def pip_install(file: Path) -> list[str]:
    """Return the words behind the only ``pip install`` of a file."""
    commands = [
        part for name, rest in instructions(file) if name == "RUN" for part in rest.split("&&")
    ]
    (words,) = (shlex.split(command) for command in commands if " pip install " in command)
    return words[words.index("install") + 1 :]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text())["services"]


def tool(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / name), *words],
        capture_output=True,
        text=True,
        check=False,
    )


@each_file
def test_an_image_passes_hadolint_and_runs_as_a_user_with_a_number(file: Path) -> None:
    done = tool("hadolint", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [rest for name, rest in instructions(file) if name == "USER"] == ["10001"]
    assert instructions(file)[-1][0] == "ENTRYPOINT"


@each_file
def test_what_an_image_takes_is_there_and_what_it_installs_is_pinned(file: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    taken = [
        word for name, rest in instructions(file) if name == "COPY" for word in rest.split()[:-1]
    ]
    assert [word for word in taken if not (ROOT / word).exists()] == []
    assert not any("secret" in word or word == "." for word in taken)
    installed = pip_install(file)
    own = [word for word in installed if word.startswith(".")]
    assert all(extra in extras for word in own for extra in re.findall(r"[a-z0-9]+", word))
    assert (
        ("constraints.txt" in installed)
        if own
        else all("==" in word for word in installed if word[0] != "-")
    )


def extras_of(service: dict[str, Any]) -> set[str]:
    """Return the extras of the image that a service runs."""
    installed = pip_install(ROOT / service["build"]["dockerfile"])
    return set(re.findall(r"[a-z0-9]+", next(word for word in installed if word.startswith("."))))


def test_each_deployment_goes_to_a_pool_whose_image_can_do_it(services: dict[str, Any]) -> None:
    pools = {
        one["command"][4]: extras_of(one)
        for one in services.values()
        if "worker" in one.get("command", [])
    }
    assert set(pools) == {"pairwright", "pairwright-gpu"}
    needed = {"gpu", "models", "nouns", "s3", "dask", "train"}
    needs = dict.fromkeys(("build", "resume", "update", "train", "evaluate-model"), needed) | {
        "export": {"s3"}
    }
    for one in yaml.safe_load((FOLDER / "prefect.yaml").read_text())["deployments"]:
        assert needs[one["name"]] <= pools[one["work_pool"]["name"]], one["name"]
    assert (
        services["gpu-worker"]["environment"]["PREFECT_DEPLOYMENTS_DEFAULT_WORK_POOL_NAME"]
        == "pairwright-gpu"
    )


def test_images_of_ours_have_its_version_and_others_a_whole_one(services: dict[str, Any]) -> None:
    for service in services.values():
        name, _, tag = service["image"].partition(":")
        assert tag == VERSION if name.startswith("pairwright") else re.match(r"\d+\.\d+-", tag)
    for file in FILES:
        assert re.search(r"^ARG BASE=python:\d+\.\d+\.\d+-", file.read_text(), re.MULTILINE)


def test_weights_outlive_the_containers(
    services: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is fetched lies in what is mounted, and vLLM finds there what `fetch --served`
    fetches."""
    homes: set[str] = set()
    for name in ("gpu-worker", "vllm-chat", "vllm-language"):
        assert "../models:/models" in services[name]["volumes"]
        lines = instructions(ROOT / services[name]["build"]["dockerfile"])
        set_there = dict(
            word.split("=") for what, rest in lines if what == "ENV" for word in rest.split()
        )
        homes.add(set_there["HF_HOME"])
        if cache := set_there.get(CACHE):
            monkeypatch.setenv(CACHE, cache)
    assert homes == {"/models/huggingface"}
    assert weights_folder().is_relative_to("/models")
    fetched = {
        chat.model for chat in served_on_hub(profile_to_fetch("containers", ()), "").values()
    }
    assert fetched == {services[name]["command"][0] for name in ("vllm-chat", "vllm-language")}


@pytest.mark.parametrize("name", ["chat", "language"])
def test_vllm_serves_the_models_of_the_profile_as_a_build_would(
    services: dict[str, Any], name: str
) -> None:
    profile, launching = load_profile("containers"), load_profile("gpu-80")
    chat = profile.models[name]
    (endpoint,) = chat.endpoint
    service = services[urlsplit(endpoint).hostname or ""]
    assert (service["command"][0], chat.launch.enabled) == (chat.model, False)
    line = " ".join(
        vllm_command(launching.models[name].model_copy(update={"model": chat.model}), 8000)
    )
    wanted = {
        flag.strip().replace(" ", "=", 1).replace(" ", "")
        for flag in re.findall(r"--\S+(?: [^-]\S*)*", line)
    }
    its_own = r"--(served-model-name|host|port|gpu-memory-utilization)="
    assert {flag for flag in wanted if not re.match(its_own, flag)} == {
        flag for flag in service["command"][1:] if not re.match(its_own, flag)
    }


def test_both_servers_and_the_builds_own_models_fit_on_one_card(services: dict[str, Any]) -> None:
    """Of 80 GB; the build's largest encoder, RAM, has 5.6, and its batches are halved until they
    fit."""
    published = [
        json.loads(path.read_bytes())
        for path in (ROOT / "tests" / "fixtures" / "published").glob("*.json")
    ]
    left = 80e9
    for name in ("vllm-chat", "vllm-language"):
        model, *flags = services[name]["command"]
        said = dict(flag.split("=", 1) for flag in flags if "=" in flag)
        (known,) = (one for one in published if one.get("model") == model)
        share = float(said["--gpu-memory-utilization"]) * 80e9
        assert known["total_size"] + MARGIN < share
        left -= share
    assert left >= 20e9 - 1


def test_nothing_secret_reaches_a_build(services: dict[str, Any]) -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", "docker/secrets", "data", "models"} <= set(ignored)
    assert "/docker/secrets/" in (ROOT / ".gitignore").read_text().split()
    named = {
        name: value
        for service in services.values()
        for name, value in service.get("environment", {}).items()
    }
    assert [name for name in named if re.search("PASSWORD|SECRET|TOKEN|AUTH", name)] == [
        "POSTGRES_PASSWORD_FILE"
    ]


def test_the_services_are_what_compose_allows(tmp_path: Path) -> None:
    check = ("--builtin-schema", "vendor.compose-spec")
    done = tool("check-jsonschema", *check, str(COMPOSE))
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("healthcheck:", "health_check:"))
    assert tool("check-jsonschema", *check, str(wrong)).returncode == 1


def test_only_this_machine_reaches_what_is_published(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:4200:4200"]


def test_services_name_existing_files_and_services(
    services: dict[str, Any],
) -> None:
    for service in services.values():
        assert not service.get("privileged")
        assert "no-new-privileges:true" in service["security_opt"]
        assert set(service.get("depends_on", {})) <= services.keys()
        if build := service.get("build"):
            assert (FOLDER / build["context"] / build["dockerfile"]).resolve() in FILES
