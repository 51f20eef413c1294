"""Which engine builds, and what is built with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.__main__ import ROOT, build_images, build_of, main, reference
from images.engines import Build, Engine, EngineError, chosen
from images.programs import IMAGES


class Recorder(Engine):
    """Builds nothing, and remembers what it was to build."""

    check = ()

    def __init__(self, name: str, reason: str = "") -> None:
        self.name = name  # type: ignore[misc]  # of each engine here
        self.reason = reason
        self.built: list[tuple[str, str]] = []

    def failing(self) -> str:
        return self.reason

    def build(self, build: Build, target: str, tag: str) -> None:
        self.built.append((target, tag))

    def read(self, image: str, path: str) -> str:
        return f"{path} of {image}"


def engines(**reasons: str) -> dict[str, Engine]:
    return {name: Recorder(name, reason) for name, reason in reasons.items()}


def test_the_first_engine_that_works_builds() -> None:
    assert chosen(None, engines(docker="does not work (no daemon)", podman="", buildah="")).name == "podman"


def test_an_engine_that_is_named_builds_or_says_why_not() -> None:
    there = engines(docker="is not installed", podman="")
    assert chosen("podman", there).name == "podman"
    with pytest.raises(EngineError, match=r"^docker is not installed: install Docker, Podman or buildah"):
        chosen("docker", there)


def test_where_none_works_each_is_named_with_its_reason() -> None:
    with pytest.raises(EngineError, match=r"docker does not work \(no daemon\); buildah is not installed: install"):
        chosen(None, engines(docker="does not work (no daemon)", buildah="is not installed"))


def test_images_are_built_under_their_names_and_listed(tmp_path: Path) -> None:
    engine = Recorder("podman")
    build = Build(ROOT, {"VERSION": "1.2.3"})
    tags = list(build_images(engine, build, ("koordlet", "koordinator"), "registry.example/team/", tmp_path / "new"))
    assert engine.built == [("koordlet", tags[0]), ("koordinator", tags[1])]
    assert tags == ["registry.example/team/koordlet:1.2.3", "registry.example/team/koordinator:1.2.3"]
    listed = (tmp_path / "new/koordlet.cdx.json").read_text()
    assert listed == f"/usr/share/sbom/koordlet.cdx.json of {tags[0]}"


def test_without_a_registry_an_image_is_local() -> None:
    assert reference("", "koordlet", "1.2.3") == "koordlet:1.2.3"


def test_a_build_says_of_which_commit_it_is() -> None:
    arguments = build_of(ROOT, "python:x", None, ()).arguments
    assert arguments.keys() == {"VERSION", "REVISION", "SOURCE_DATE_EPOCH", "BASE"}
    assert len(arguments["REVISION"].removesuffix("-dirty")) == 40
    assert int(arguments["SOURCE_DATE_EPOCH"]) > 1_700_000_000


def test_an_image_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["koordlets"])
    assert f"there is no image koordlets; there are {', '.join(IMAGES)}" in capsys.readouterr().err
