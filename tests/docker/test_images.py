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
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SERVERS = ("vllm-chat", "vllm-language")
each_file = pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
each_service = pytest.mark.parametrize("service", SERVICES.values(), ids=list(SERVICES))


def instructions(file: Path, name: str) -> list[str]:
    """Return what follows each instruction of a name, in one line."""
    text = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [line.removeprefix(f"{name} ").strip() for line in lines if line.startswith(f"{name} ")]


def dockerfile(service: dict[str, Any]) -> Path:
    return ROOT / service["build"]["dockerfile"]


def pip_install(file: Path) -> list[str]:
    """Return the words behind the only ``pip install`` of a file."""
    commands = [part for line in instructions(file, "RUN") for part in line.split("&&")]
    (words,) = (shlex.split(command) for command in commands if " pip install " in command)
    return words[words.index("install") + 1 :]


def extras(words: list[str]) -> set[str]:
    """Return the extras of what is installed of this project."""
    project = [word for word in words if word.startswith(".")]
    return {extra for word in project for extra in re.findall(r"[a-z0-9]+", word)}


def tool(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / name), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@each_file
def test_an_image_passes_hadolint_and_runs_as_a_user_with_a_number(file: Path) -> None:
    done = tool("hadolint", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert instructions(file, "USER") == ["10001"]
    assert file.read_text().splitlines()[-1].startswith("ENTRYPOINT ")


@each_file
def test_what_an_image_takes_is_there_and_what_it_installs_is_pinned(file: Path) -> None:
    taken = [word for line in instructions(file, "COPY") for word in line.split()[:-1]]
    assert [word for word in taken if not (ROOT / word).exists()] == []
    assert not [word for word in taken if "secret" in word or word == "."]
    installed = pip_install(file)
    assert extras(installed) <= PROJECT["optional-dependencies"].keys()
    others = [word for word in installed if word[0] not in "-."]
    assert "constraints.txt" in installed or all("==" in word for word in others)
    assert "constraints.txt" in installed or not any(word[0] == "." for word in installed)


def test_each_deployment_goes_to_a_pool_whose_image_can_do_it() -> None:
    workers = [each for each in SERVICES.values() if "worker" in each.get("command", [])]
    pools = {each["command"][4]: extras(pip_install(dockerfile(each))) for each in workers}
    assert set(pools) == {"pairwright", "pairwright-gpu"}
    building = {"gpu", "models", "nouns", "s3", "dask", "train"}
    needs = dict.fromkeys(("build", "resume", "update", "train", "evaluate-model"), building)
    needs["export"] = {"s3"}
    for deployment in yaml.safe_load((FOLDER / "prefect.yaml").read_text())["deployments"]:
        name, pool = deployment["name"], deployment["work_pool"]["name"]
        assert needs[name] <= pools[pool], name
    environment = SERVICES["gpu-worker"]["environment"]
    assert environment["PREFECT_DEPLOYMENTS_DEFAULT_WORK_POOL_NAME"] == "pairwright-gpu"


def test_images_of_ours_have_its_version_and_others_a_whole_one() -> None:
    images = [service["image"] for service in SERVICES.values()]
    ours = [image for image in images if image.startswith("pairwright")]
    assert {image.partition(":")[2] for image in ours} == {PROJECT["version"]}
    assert all(re.search(r":\d+\.\d+-", image) for image in images if image not in ours)


@each_file
def test_an_image_is_of_a_whole_version_of_python(file: Path) -> None:
    assert re.search(r"^ARG BASE=python:\d+\.\d+\.\d+-", file.read_text(), re.MULTILINE)


def test_weights_outlive_the_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is fetched lies in what is mounted, and vLLM finds there what `fetch --served`
    fetches."""
    variables: list[tuple[str, str]] = []
    for name in ("gpu-worker", *SERVERS):
        assert "../models:/models" in SERVICES[name]["volumes"]
        lines = instructions(dockerfile(SERVICES[name]), "ENV")
        pairs = [word.split("=") for line in lines for word in line.split()]
        assert dict(pairs)["HF_HOME"] == "/models/huggingface"
        variables += [(key, value) for key, value in pairs if key == CACHE]
    ((_, cache),) = variables
    monkeypatch.setenv(CACHE, cache)
    assert weights_folder().is_relative_to("/models")
    fetched = served_on_hub(profile_to_fetch("containers", ()), "").values()
    assert {chat.model for chat in fetched} == {SERVICES[name]["command"][0] for name in SERVERS}


def flags_of(words: list[str]) -> set[str]:
    """Return the flags of a vLLM command, but for those that are its place's own."""
    line = re.sub(r"(--\S+) ([^-])", r"\1=\2", " ".join(words))
    flags = {flag.replace(" ", "") for flag in re.findall(r"--\S+(?: [^-]\S*)*", line)}
    places = r"--(served-model-name|host|port|gpu-memory-utilization)="
    return {flag for flag in flags if not re.match(places, flag)}


@pytest.mark.parametrize("name", ["chat", "language"])
def test_vllm_serves_the_models_of_the_profile_as_a_build_would(name: str) -> None:
    chat = load_profile("containers").models[name]
    (endpoint,) = chat.endpoint
    model, *words = SERVICES[urlsplit(endpoint).hostname or ""]["command"]
    assert (model, chat.launch.enabled) == (chat.model, False)
    launched = load_profile("paper-80").models[name].model_copy(update={"model": chat.model})
    assert flags_of(vllm_command(launched, 8000)) == flags_of(words)


def test_both_servers_and_the_builds_own_models_fit_on_one_card() -> None:
    """Of 80 GB; the build's largest encoder, RAM, has 5.6, and its batches are halved until they
    fit."""
    folder = ROOT / "tests/fixtures/published"
    published = [json.loads(path.read_bytes()) for path in folder.glob("*.json")]
    sizes = {each.get("model"): each.get("total_size") for each in published}
    left = 80e9
    for name in SERVERS:
        model, *flags = SERVICES[name]["command"]
        values = dict(flag.split("=", 1) for flag in flags if "=" in flag)
        share = float(values["--gpu-memory-utilization"]) * 80e9
        assert sizes[model] + MARGIN < share
        left -= share
    assert left >= 20e9 - 1


def test_nothing_secret_reaches_a_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", "docker/secrets", "data", "models"} <= set(ignored)
    assert "/docker/secrets/" in (ROOT / ".gitignore").read_text().split()
    names = {name for service in SERVICES.values() for name in service.get("environment", {})}
    secret = [name for name in names if re.search("PASSWORD|SECRET|TOKEN|AUTH", name)]
    assert secret == ["POSTGRES_PASSWORD_FILE"]


def test_the_services_are_what_compose_allows(tmp_path: Path) -> None:
    check = ("check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    done = tool(*check, str(COMPOSE))
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("healthcheck:", "health_check:"))
    assert tool(*check, str(wrong)).returncode == 1


def test_only_this_machine_reaches_what_is_published() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:4200:4200"]


@each_service
def test_a_service_has_no_privileges_and_names_what_exists(service: dict[str, Any]) -> None:
    assert not service.get("privileged")
    assert "no-new-privileges:true" in service["security_opt"]
    assert set(service.get("depends_on", {})) <= SERVICES.keys()
    build = service.get("build", {"context": "", "dockerfile": FILES[0]})
    assert (FOLDER / build["context"] / build["dockerfile"]).resolve() in FILES
