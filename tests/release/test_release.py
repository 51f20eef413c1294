"""A release: what CHANGELOG.md becomes, two commits, and nothing at all where something is not ready."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from release import __main__ as command
from release.__main__ import cut
from release.changelog import of_release, released, releases, sections
from release.errors import ReleaseError
from release.version import HOME, current

ROOT = Path(__file__).parents[2]
BEFORE = """\
# Changelog

## Unreleased

### Upgrade notes

Nothing is to be done.

### Added
- A thing.

### Changed

## 0.1.0 - 2026-12-01

### Added
- An older thing.
"""


def test_what_was_unreleased_is_the_release_and_an_empty_list_begins() -> None:
    after = released(BEFORE, "0.2.0", "2027-01-31")
    assert releases(after) == ["0.2.0", "0.1.0"]
    assert of_release(after, "0.2.0") == "### Upgrade notes\n\nNothing is to be done.\n\n### Added\n- A thing.\n"
    assert of_release(after, "0.1.0") == "### Added\n- An older thing.\n"
    head, _, _ = after.partition("## 0.2.0")
    assert list(sections(head)) == ["Upgrade notes", "Added", "Changed", "Fixed"]
    with pytest.raises(ReleaseError, match="no upgrade notes"):
        released(after, "0.3.0", "2027-02-28")


@pytest.mark.parametrize(
    ("text", "version", "why"),
    [
        (BEFORE.replace("Nothing is to be done.", "Nothing so far."), "0.2.0", "no upgrade notes"),
        (BEFORE.replace("- A thing.", ""), "0.2.0", "says of nothing"),
        (BEFORE, "0.1.0", "already"),
        ("# Changelog\n", "0.2.0", "no section Unreleased"),
    ],
)
def test_what_is_not_ready_is_said(text: str, version: str, why: str) -> None:
    with pytest.raises(ReleaseError, match=why):
        released(text, version, "2027-01-31")


def test_every_release_of_the_project_begins_with_upgrade_notes() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    for version in releases(text):
        assert of_release(text, version).startswith("### Upgrade notes\n"), version
    assert text.index("## Unreleased\n\n### Upgrade notes\n") < text.index("\n## ", text.index("## Unreleased") + 1)


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with what a release needs."""
    for variable in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{variable}_NAME", "t")
        monkeypatch.setenv(f"GIT_{variable}_EMAIL", "t@example.com")
    (tmp_path / HOME).parent.mkdir(parents=True)
    (tmp_path / HOME).write_text('__version__ = "0.2.0"\n')
    (tmp_path / "README.md").write_text("koordinator:0.2.0\n")
    (tmp_path / "CHANGELOG.md").write_text(BEFORE)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "start")
    return tmp_path


def test_a_release_is_one_commit_and_the_next_version_begins_in_another(checkout: Path) -> None:
    rendered = []
    commit = cut(checkout, "0.3.0", "2027-01-31", lambda root: rendered.append(current(root)))
    assert git(checkout, "log", "--format=%s") == "version: 0.3.0 begins\nrelease 0.2.0\nstart"
    assert git(checkout, "rev-parse", "HEAD~1") == commit
    assert "## 0.2.0 - 2027-01-31" in git(checkout, "show", f"{commit}:CHANGELOG.md")
    assert git(checkout, "show", f"{commit}:README.md") == "koordinator:0.2.0"
    assert git(checkout, "show", "HEAD:README.md") == "koordinator:0.3.0"
    assert rendered == ["0.2.0", "0.3.0"]
    assert git(checkout, "tag") == ""


def test_the_command_line_cuts_a_release_and_prints_what_it_has_made(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "ROOT", checkout)
    monkeypatch.setattr(command, "render", lambda root: None)
    monkeypatch.setattr(command, "build_commit", lambda root, commit, folder: [folder / f"{commit[:4]}.whl"])
    (checkout / "README.md").write_text("koordinator:0.1.0\n")
    assert command.main(["version", "0.2.0"]) == 0
    assert git(checkout, "status", "--porcelain") == ""
    assert command.main(["cut", "--next=0.3.0", f"--directory={checkout}"]) == 0
    released_as = git(checkout, "rev-parse", "HEAD~1")
    assert capsys.readouterr().out == (
        f"{checkout / released_as[:4]}.whl\n"
        f"Nothing is published yet; docs/release.md says how. git tag --sign v0.2.0 {released_as}\n"
    )
    assert command.main(["notes", "0.2.0"]) == command.main(["build", f"--directory={checkout}"]) == 0
    assert "- A thing." in capsys.readouterr().out
    assert command.main(["cut", "--next=0.3.0"]) == 1
    assert capsys.readouterr().err == "no release: 0.3.0 does not follow 0.3.0\n"


@pytest.mark.parametrize(
    ("change", "following", "why"),
    [
        ({"README.md": "koordinator:0.2.0 \n"}, "0.3.0", "not committed"),
        ({}, "0.2.0", "does not follow"),
        ({}, "0.1.9", "does not follow"),
        ({}, "next", "is no version"),
    ],
)
def test_nothing_has_changed_where_a_release_is_refused(
    checkout: Path, change: dict[str, str], following: str, why: str
) -> None:
    for name, text in change.items():
        (checkout / name).write_text(text)
    before = git(checkout, "status", "--porcelain")
    with pytest.raises(ReleaseError, match=why):
        cut(checkout, following, "2027-01-31", lambda _: None)
    assert git(checkout, "status", "--porcelain") == before
    assert git(checkout, "log", "--format=%s") == "start"


def test_stale_manifests_and_stale_pages_stop_a_release(checkout: Path) -> None:
    with pytest.raises(ReleaseError, match="was not current"):
        cut(checkout, "0.3.0", "2027-01-31", stale_manifest)
    git(checkout, "checkout", "--quiet", "README.md")
    (checkout / "README.md").write_text("koordinator:0.1.0\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "an old page")
    with pytest.raises(ReleaseError, match=r"not of version 0\.2\.0: README\.md"):
        cut(checkout, "0.3.0", "2027-01-31", lambda _: None)


def stale_manifest(root: Path) -> None:
    (root / "README.md").write_text("koordinator:0.2.0, rendered anew\n")
