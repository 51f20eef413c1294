"""docs/coverage.md: what the documents of the original promise, and what shows that it is so here.

``python -m tests.docs.coverage_page`` writes the page from docs/coverage.toml. ``test_coverage.py`` checks the claims.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import date
from functools import cache
from itertools import groupby
from typing import Final

import msgspec

from tests.docs.generated_pages import ROOT, table, write_or_print

DATA: Final = ROOT / "docs/coverage.toml"
PAGE: Final = ROOT / "docs/coverage.md"
_INTRODUCTION: Final = """\
# What is covered

The public documents of the Go original say what the system does. This page has their claims, in short words of ours,
and says what shows each of them here: tests, and where there is one a command to see it with. A claim is **open** where
something is missing; the page then says what. A test may show what is written to the kernel, and not what the hardware
makes of it.

`python -m tests.docs.coverage_page` writes this page from `coverage.toml`. `tests/docs/test_coverage.py` checks that
every test is there, that another page has every command, and that the command line takes it. `make test` runs the
tests, and `make test-real` those in `tests/real`. *Since* is the day since which all tests of a claim are there.
"""


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document of the original; claims refer to it by ``number``."""

    number: str
    title: str


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``missing`` is what an open claim lacks; one that works has tests, and a day since which it has them."""

    part: str
    documents: list[str]
    claim: str
    tests: list[str] = []
    command: str = ""
    since: date | None = None
    missing: str = ""


class Coverage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    document: list[Document]
    claim: list[Claim]


@cache
def coverage() -> Coverage:
    """What docs/coverage.toml says. Raises msgspec.ValidationError, which names the field."""
    return msgspec.toml.decode(DATA.read_text(), type=Coverage)


def page(covered: Coverage) -> str:
    """The whole page, in Markdown."""
    sections = [_INTRODUCTION, _summary(covered)]
    for part, claims in groupby(covered.claim, key=lambda claim: claim.part):
        head = ["documents", "claim", "shown by", "since"]
        sections.append(f"## {part}\n\n{table(head, map(_row, claims))}")
    return "\n".join(sections)


def _summary(covered: Coverage) -> str:
    count, missing = len(covered.claim), sum(bool(claim.missing) for claim in covered.claim)
    rows = []
    for document in covered.document:
        claims = [claim for claim in covered.claim if document.number in claim.documents]
        rows.append([document.number, document.title, f"{len(claims)}", f"{sum(bool(one.missing) for one in claims)}"])
    head = f"Of {count} claims {count - missing} work and {missing} are open."
    return f"{head}\n\n{table(['', 'document', 'claims', 'open'], rows)}"


def _row(claim: Claim) -> Sequence[str]:
    shown = [f"**open:** {claim.missing}"] if claim.missing else []
    shown += [f"`{command}`" for command in (claim.command, *claim.tests) if command]
    return [", ".join(claim.documents), claim.claim, "<br>".join(shown), f"{claim.since or ''}"]


def main(arguments: Sequence[str]) -> None:
    """Write the page, or print it with ``--print``."""
    write_or_print({PAGE: page(coverage())}, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
