"""The Dockerfile, what the pods expect of the images, and what each program needs; nothing here can build them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import koordinator
from images.programs import IMAGES, commands_of
from koordinator.api.manifests.installation import Installation, manifest_files
from tests.yaml_documents import yaml_documents

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
STAGES = {
    found[1]: found[0] for found in re.finditer(r"^FROM \S+ AS (\S+)\n(?:(?!FROM ).*\n?)*", DOCKERFILE, re.MULTILINE)
}
"""Name -> its lines."""
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
WORKLOADS = [
    yaml_documents(text)[0]
    for text in manifest_files(
        Installation(), ("scheduler", "manager", "descheduler", "koordlet", "device-daemon")
    ).values()
]
PODS = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in WORKLOADS}
ROOT = {"koordlet", "koord-device-daemon", "koord-runtime-proxy"}
_IMPORTED = re.compile(r"^\s*(?:from|import) (koordinator\.)?(\w+)", re.MULTILINE)


def test_the_base_is_one_and_pinned() -> None:
    (base,) = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"\S+:3\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    assert set(re.findall(r"^FROM (\S+) AS", DOCKERFILE, re.MULTILINE)) == {"${BASE}", "scratch", "system"}


def test_there_is_a_target_for_each_image_and_that_of_all_programs_is_the_last() -> None:
    assert list(STAGES) == ["build", "system", *IMAGES]


@pytest.mark.parametrize("name", IMAGES)
def test_a_target_has_what_its_program_needs(name: str) -> None:
    copied = re.findall(r"^COPY --from=build /images/(\S+) /$", STAGES[name], re.MULTILINE)
    assert copied == [IMAGES[name].requirements, name]
    assert f"org.opencontainers.image.title={name}\n" in STAGES[name]


@pytest.mark.parametrize("name", IMAGES)
def test_a_user_is_root_only_where_a_comment_says_why(name: str) -> None:
    before = DOCKERFILE[: DOCKERFILE.index(STAGES[name])].splitlines()[-1]
    assert (("USER 0:0\n" in STAGES[name]), before.startswith("# Root: ")) == (name in ROOT, name in ROOT)
    assert name in ROOT or "USER 65532:65532\n" in STAGES[name]


def test_what_it_copies_exists_and_reaches_the_builder() -> None:
    copied = [
        source
        for sources in re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE)
        for source in sources.split()
    ]
    ignored, *let_in = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert ignored == "*"
    assert all((REPOSITORY / source).exists() for source in copied)
    assert {f"!{source.split('/')[0]}" for source in copied} <= set(let_in)


def requirements(name: str) -> set[str]:
    text = (REPOSITORY / f"requirements/{name}.txt").read_text()
    return set(re.findall(r"^[a-z0-9-]+==\S+", text, re.MULTILINE))


def names(locked: set[str]) -> set[str]:
    return {each.partition("==")[0] for each in locked}


def test_an_image_has_the_versions_that_are_tested_and_not_more_than_it_needs() -> None:
    for image in IMAGES.values():
        # The marker of Windows alone is not among what is tested.
        assert requirements(image.requirements) - {"win-inet-pton==1.1.0"} <= requirements("dev")
    assert not names(requirements("node")) & {"numpy", "cryptography", "aiohttp", "rich"}
    assert not names(requirements("manager")) & {"numpy", "protobuf"}
    assert not names(requirements("scheduler")) & {"aiohttp", "protobuf"}


def test_everything_is_installed_by_hash_and_nothing_is_compiled() -> None:
    installed = (REPOSITORY / "images/environment.py").read_text() + STAGES["build"]
    assert installed.count("--require-hashes") == installed.count("--only-binary=:all:") == 2
    for path in (REPOSITORY / "requirements").iterdir():
        for entry in re.findall(r"^\S+==.*(?:\\\n.*)+", path.read_text(), re.MULTILINE):
            assert "--hash=sha256:" in entry


@pytest.mark.parametrize("name", [name for name, image in IMAGES.items() if image.packages])
def test_an_image_has_the_parts_of_the_package_that_its_program_imports(name: str) -> None:
    packages = IMAGES[name].packages
    assert packages is not None
    found = {
        part
        for package in packages
        for path in (REPOSITORY / "src/koordinator" / package).rglob("*.py")
        for ours, part in _IMPORTED.findall(path.read_text())
        if ours
    }
    assert found <= set(packages)


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_its_user_is_that_of_the_pod(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    context = pod.get("securityContext") or container["securityContext"]
    name = container["command"][0]
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}\n" in STAGES[name]


@pytest.mark.parametrize("name", PODS)
def test_a_pod_runs_the_command_of_its_image(name: str) -> None:
    (container,) = PODS[name]["containers"]
    assert container["image"] == f"{name}:{koordinator.__version__}"
    assert container["command"] == list(commands_of(name)) == [name]
    # As the original's manifests start it.
    assert f'ENTRYPOINT ["/{name}"]\n' in STAGES[name]


def test_the_image_of_all_programs_has_every_command() -> None:
    assert set(commands_of("koordinator")) == set(PYPROJECT["project"]["scripts"])
