"""CHANGELOG.md: what is unreleased becomes what a release has, and an empty list begins above it.

Each release starts with notes for those who upgrade; they may say that nothing is to be done, but have to say so.
"""

from __future__ import annotations

import re
from typing import Final

from release.errors import ReleaseError

UNRELEASED: Final = "## Unreleased\n"
NOTES: Final = "### Upgrade notes\n"
_PLACEHOLDER: Final = "Nothing so far."
_EMPTY: Final = f"{UNRELEASED}\n{NOTES}\n{_PLACEHOLDER}\n\n### Added\n\n### Changed\n\n### Fixed\n\n"
_RELEASE: Final = re.compile(r"^## ([0-9.]+) - ([0-9]{4}-[0-9]{2}-[0-9]{2})$", re.MULTILINE)


def releases(text: str) -> list[str]:
    """The versions that were released, newest first."""
    return [found[1] for found in _RELEASE.finditer(text)]


def sections(text: str) -> dict[str, str]:
    """Heading -> what stands below it, of one release."""
    parts = re.split(r"^### (.+)\n", text, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def of_release(text: str, version: str) -> str:
    """What the changelog says of one release, without its heading: the text that goes with the tag."""
    found = re.search(rf"^## {re.escape(version)} - \S+\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md has no release {version}")
    return found[1].strip() + "\n"


def released(text: str, version: str, date: str) -> str:
    """The changelog in which all that is unreleased is ``version`` of ``date``. Empty sections go.

    Raises ReleaseError where nobody has said what has changed, or what that means for those who upgrade."""
    before, heading, rest = text.partition(UNRELEASED)
    if not heading:
        raise ReleaseError("CHANGELOG.md has no section Unreleased")
    if version in releases(text):
        raise ReleaseError(f"CHANGELOG.md has a release {version} already")
    end = rest.find("\n## ") + 1 or len(rest)
    unreleased, older = sections(rest[:end]), rest[end:]
    notes = unreleased.pop(NOTES.strip("# \n"), "")
    if not notes or notes == _PLACEHOLDER:
        raise ReleaseError("CHANGELOG.md has no upgrade notes: say what is to be done, or that nothing is")
    if not any(unreleased.values()):
        raise ReleaseError("CHANGELOG.md says of nothing that it has changed")
    body = "".join(f"### {name}\n{text}\n\n" for name, text in unreleased.items() if text)
    return f"{before}{_EMPTY}## {version} - {date}\n\n{NOTES}\n{notes}\n\n{body}{older}"
