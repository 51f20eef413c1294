"""The Dockerfile and what the Deployments expect of its image; nothing here can build it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from koordinator.api.manifests.installation import Installation, manifest_files
from tests.yaml_documents import yaml_documents

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
WORKLOADS = [
    yaml_documents(text)[0]
    for text in manifest_files(
        Installation(), ("scheduler", "manager", "descheduler", "koordlet", "device-daemon")
    ).values()
]
PODS = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in WORKLOADS}
WITHOUT_ROOT = {name: pod for name, pod in PODS.items() if "securityContext" in pod}
"""koordlet and koord-device-daemon are root on their nodes."""


def test_its_head_builds_the_image_that_is_installed_by_default() -> None:
    assert f"docker build --tag {Installation().image} ." in DOCKERFILE


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


def test_an_image_of_a_node_has_less() -> None:
    assert requirements("node") < requirements("runtime")
    assert not {"numpy", "rich", "cryptography"} & {each.partition("==")[0] for each in requirements("node")}


@pytest.mark.parametrize("extra", ["nvidia", "network"])
def test_an_extra_can_be_built_in(extra: str) -> None:
    """Its requirements are those of a node's programs, and one more."""
    assert "ARG REQUIREMENTS=runtime\n" in DOCKERFILE
    assert "--require-hashes --only-binary=:all: -r requirements/${REQUIREMENTS}.txt" in DOCKERFILE
    assert f"requirements/{extra}.txt " in DOCKERFILE
    assert requirements("node") < requirements(extra)


@pytest.mark.parametrize("pod", WITHOUT_ROOT.values(), ids=WITHOUT_ROOT)
def test_its_user_is_that_of_the_pods(pod: dict[str, dict[str, int]]) -> None:
    context = pod["securityContext"]
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}\n" in DOCKERFILE


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_the_commands_of_the_pods_are_those_of_the_package(pod: dict[str, list[dict[str, list[str]]]]) -> None:
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    assert {container["command"][0] for container in pod["containers"]} <= set(scripts)


@pytest.mark.parametrize("name", PODS)
def test_a_program_is_also_where_the_originals_manifests_start_it(name: str) -> None:
    linked = re.search(r"for program in ([^;]+);", DOCKERFILE)
    assert linked is not None
    assert name in linked[1].split()


def test_the_interpreter_of_the_build_is_that_of_the_image() -> None:
    # The environment refers to it.
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2
    assert len(set(bases)) == 1
