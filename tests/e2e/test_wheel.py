"""The wheel in an environment of its own, which sees its declared dependencies and neither tools nor sources.

Nothing is downloaded: the wheel is built by the hatchling that is installed, and the dependencies are links to those
that are installed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, PathDistribution, distribution
from pathlib import Path

import pytest

from koordinator.api.manifests.installation import Installation, manifest_files

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src/koordinator"
SECONDS = 90.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, "koord", tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def node_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, "koordlet", tmp_path_factory.mktemp("node"))


def installed(wheel: Path, extra: str, folder: Path) -> Path:
    """A virtual environment with the wheel and what its extra needs."""
    venv.create(folder, with_pip=False)
    install = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--disable-pip-version-check", str(wheel)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (metadata,) = site.glob("koordinator-*.dist-info")
    link_dependencies(PathDistribution(metadata).requires or [], site, set(), {extra})
    return folder


def link_dependencies(requirements: list[str], site: Path, seen: set[str], extras: set[str]) -> None:
    """Links to what these need, and to what that needs, with the ``extras`` and those that they name."""
    for text in requirements:
        described, _, condition = text.partition(";")
        (name,) = re.findall(r"^[\w.-]+", described)
        chosen = re.findall(r"extra == ['\"]([\w-]+)['\"]", condition)
        if name in seen or (chosen and not extras & set(chosen)):
            continue
        if name == "koordinator":
            more = set(re.findall(r"[\w-]+", described.partition("[")[2])) - extras
            if more:
                link_dependencies(requirements, site, seen, extras | more)
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
        link_dependencies(found.requires or [], site, seen, set())


def run(environment: Path, folder: Path, *command: str) -> str:
    """What one of the installed commands prints, far from the sources."""
    program, *arguments = command
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ended = subprocess.run(
        [environment / "bin" / program, *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_package_is_that_of_the_wheel(environment: Path, tmp_path: Path) -> None:
    where = run(environment, tmp_path, "python", "-c", "import koordinator; print(koordinator.__file__)")
    assert Path(where.strip()).is_relative_to(environment)


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
    assert run(environment, tmp_path, "koord", "--version").startswith("koord ")


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
