"""What a release consists of: the sdist makes the wheel, and the wheel runs in an environment of its own, which has its
declared dependencies and neither tools nor sources.

Nothing is downloaded: the wheel is built by the hatchling that is installed, and the dependencies are links to those
that are installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import pytest

import koordinator
from koordinator.api.manifests.installation import Installation, manifest_files
from release.distributions import SUMS, build

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src/koordinator"
SECONDS = 90.0
EPOCH: Final = 1_700_000_000
_DAY_SECONDS: Final = 900.0
"""It ends by itself when nothing happens for three minutes; a busy machine takes its time."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with wheel, sdist and chart."""
    folder = tmp_path_factory.mktemp("built") / "dist"
    build(REPOSITORY, folder, EPOCH)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return only(built, "*.whl")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `pip install koordinator` makes it."""
    return installed(wheel, tmp_path_factory.mktemp("environment"), declared(wheel))


@pytest.fixture(scope="module")
def node_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With what requirements/node.txt is made from instead."""
    groups = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["dependency-groups"]
    return installed(wheel, tmp_path_factory.mktemp("node"), [*required(groups, "node")])


def required(groups: dict[str, list[str | dict[str, str]]], name: str) -> Iterator[str]:
    """What a group needs, those that it includes among them."""
    for each in groups[name]:
        if isinstance(each, str):
            yield each
        else:
            yield from required(groups, each["include-group"])


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def declared(wheel: Path) -> list[str]:
    """What the wheel requires without any extra."""
    metadata = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA"))
    required = message_from_bytes(zipfile.ZipFile(wheel).read(metadata)).get_all("Requires-Dist", [])
    return [each for each in required if "extra ==" not in each]


def installed(wheel: Path, folder: Path, requirements: list[str]) -> Path:
    """A virtual environment with the wheel and what these need."""
    venv.create(folder, with_pip=False)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--no-cache"]
    subprocess.run([*install, f"--python={folder}", str(wheel)], check=True)
    link_dependencies(requirements, only(folder, "lib/python*/site-packages"), set())
    return folder


def link_dependencies(requirements: list[str], site: Path, seen: set[str]) -> None:
    """Links to what these need, and to what that needs."""
    for text in requirements:
        described, _, condition = text.partition(";")
        (name,) = re.findall(r"^[\w.-]+", described)
        if name in seen or "extra ==" in condition:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            # What only other versions of Python need is not installed.
            assert condition, f"{name} is not installed"
            continue
        for entry in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            target = site / entry
            if not target.exists():
                target.symlink_to(str(found.locate_file(entry)))
        link_dependencies(found.requires or [], site, seen)


def run(environment: Path, folder: Path, *command: str, within: float = SECONDS) -> str:
    """What one of the installed commands prints, far from the sources."""
    program, *arguments = command
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ended = subprocess.run(
        [environment / "bin" / program, *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_package_is_that_of_the_wheel(environment: Path, tmp_path: Path) -> None:
    where = run(environment, tmp_path, "python", "-c", "import koordinator; print(koordinator.__file__)")
    assert Path(where.strip()).is_relative_to(environment)


def test_the_sdist_makes_the_same_wheel(built: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(only(built, "*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build(source, tmp_path / "again", EPOCH)
    assert only(tmp_path / "again", "*.whl").read_bytes() == wheel.read_bytes()
    assert only(tmp_path / "again", "*.tgz").read_bytes() == only(built, "*.tgz").read_bytes()


def test_what_was_built_has_its_sums_and_the_time_that_it_was_given(built: Path, wheel: Path) -> None:
    lines = {name: digest for digest, name in map(str.split, (built / SUMS).read_text().splitlines())}
    assert lines == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built.iterdir() if path.name != SUMS
    }
    assert {each.date_time for each in zipfile.ZipFile(wheel).infolist()} == {time.gmtime(EPOCH)[:6]}


@pytest.mark.parametrize("tool", ["pytest", "hypothesis", "hatchling"])
def test_tools_are_out_of_sight(tool: str, environment: Path, tmp_path: Path) -> None:
    found = run(
        environment, tmp_path, "python", "-c", f"import importlib.util as u; print(u.find_spec({tool!r}) is None)"
    )
    assert found.strip() == "True"


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("koordinator/")}
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    wanted = {f"koordinator/{path.relative_to(PACKAGE)}" for path in files}
    assert names == wanted


def test_the_wheel_has_its_license(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/licenses/LICENSE")]
    assert archive.read(name) == (REPOSITORY / "LICENSE").read_bytes()


def test_the_command_knows_its_version(environment: Path, tmp_path: Path) -> None:
    assert run(environment, tmp_path, "koord", "--version").startswith(f"koord {koordinator.__version__} ")


@pytest.mark.parametrize("program", ["koordlet", "koord-device-daemon", "koord-runtime-proxy"])
def test_a_node_s_programs_start_without_what_others_need(program: str, node_environment: Path, tmp_path: Path) -> None:
    assert "usage" in run(node_environment, tmp_path, program, "--help").lower()


@pytest.mark.parametrize("package", ["numpy", "rich", "cryptography", "re2"])
def test_a_node_s_environment_lacks_what_its_programs_do_not_use(
    package: str, node_environment: Path, tmp_path: Path
) -> None:
    code = f"import importlib.util as u; print(u.find_spec({package!r}) is None)"
    assert run(node_environment, tmp_path, "python", "-c", code).strip() == "True"


@pytest.mark.parametrize("program", ["koord-scheduler", "koord-manager"])
def test_the_programs_start(program: str, environment: Path, tmp_path: Path) -> None:
    assert "\nExamples" in run(environment, tmp_path, program, "--help")


def test_the_manifests_are_those_of_the_sources(environment: Path, tmp_path: Path) -> None:
    assert run(environment, tmp_path, "koord", "manifests") == "---\n".join(manifest_files(Installation()).values())


def test_the_demonstration_starts(environment: Path, tmp_path: Path) -> None:
    """Until its last program, the simulated nodes, is started: the others have answered by then."""
    output = tmp_path / "output"
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    with output.open("wb") as stream:
        command = [str(environment / "bin/koord"), "demo"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=stream, stderr=stream, env=variables)
    try:
        deadline = time.monotonic() + SECONDS
        while not list(tmp_path.glob("*/logs/nodes.log")):
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_local_cluster_and_a_whole_day_run(environment: Path, tmp_path: Path) -> None:
    """All that a newcomer types first, from what `pip install koordinator` brings."""
    runs_as_documented(environment, tmp_path)


def runs_as_documented(environment: Path, folder: Path) -> None:
    """A cluster that answers, and the demonstration, all of whose claims hold."""
    data = f"--data={folder / 'data'}"
    run(environment, folder, "koord", "up", "--detach", "--free-ports", "--nodes=3", data)
    try:
        assert "is healthy" in run(environment, folder, "koord", "status", data)
        kubeconfig = f"--kubeconfig={folder / 'data/kubeconfig'}"
        assert "node" in run(environment, folder, "koord", "what-if", "add-node", "--like=small-0", kubeconfig)
    finally:
        run(environment, folder, "koord", "down", data)
    assert "Played in" in run(environment, folder, "koord", "demo", f"--data={folder / 'day'}", within=_DAY_SECONDS)
