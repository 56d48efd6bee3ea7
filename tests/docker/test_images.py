"""The images and the services, as far as they can be looked at where there is no engine that runs them."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docker.dockerfiles import FILES, FOLDER, instructions, pip_installs

ROOT = FOLDER.parent
COMPOSE = FOLDER / "compose.yaml"
each_file = pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text())["services"]


def tool(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / name), *words], capture_output=True, text=True, check=False
    )


@each_file
def test_hadolint_finds_nothing(file: Path) -> None:
    done = tool("hadolint", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_hadolint_would_find_something(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python\nRUN pip install torch\nUSER root\n")
    done = tool("hadolint", str(tmp_path / "Dockerfile"))
    assert done.returncode == 1
    assert {"DL3006", "DL3013", "DL3002"} <= set(re.findall(r"DL\d{4}", done.stdout))


@each_file
def test_an_image_runs_as_a_user_with_a_number_and_few_rights(file: Path) -> None:
    users = [rest for name, rest in instructions(file) if name == "USER"]
    assert users == ["10001"]
    assert instructions(file)[-1][0] == "ENTRYPOINT"


@each_file
def test_what_an_image_takes_is_there_and_what_it_installs_is_pinned(file: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    taken = [word for name, rest in instructions(file) if name == "COPY" for word in rest.split()[:-1]]
    assert [word for word in taken if not (ROOT / word).exists()] == []
    assert not any("secret" in word or word == "." for word in taken)
    (installed,) = pip_installs(file)
    own = [word for word in installed if word.startswith(".")]
    assert all(extra in extras for word in own for extra in re.findall(r"[a-z0-9]+", word))
    assert ("constraints.txt" in installed) if own else all("==" in word for word in installed if word[0] != "-")


def test_nothing_secret_reaches_a_build(services: dict[str, Any]) -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", "docker/secrets", "data", "models"} <= set(ignored)
    assert "/docker/secrets/" in (ROOT / ".gitignore").read_text().split()
    named = {name: value for service in services.values() for name, value in service.get("environment", {}).items()}
    assert [name for name in named if re.search("PASSWORD|SECRET|TOKEN|AUTH", name)] == ["POSTGRES_PASSWORD_FILE"]


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


def test_each_service_says_whether_it_is_well(services: dict[str, Any]) -> None:
    """By a check of its own, or by that of its image."""
    lacking: list[str] = []
    for name, service in services.items():
        if "healthcheck" not in service:
            file = ROOT / service["build"]["dockerfile"]
            lacking += [] if any(word == "HEALTHCHECK" for word, _ in instructions(file)) else [name]
    assert lacking == []


def test_a_service_is_built_of_a_file_that_is_there_and_waits_for_services_that_are(services: dict[str, Any]) -> None:
    for service in services.values():
        assert not service.get("privileged")
        assert "no-new-privileges:true" in service["security_opt"]
        assert set(service.get("depends_on", {})) <= services.keys()
        if build := service.get("build"):
            assert (COMPOSE.parent / build["context"] / build["dockerfile"]).resolve() in FILES
        else:
            assert re.search(r":\d", service["image"]), "another's image has a version"
