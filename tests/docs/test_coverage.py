"""docs/coverage.md names tests that are there and commands that work, and says what docs/coverage.toml says."""

from __future__ import annotations

import shlex
from contextlib import redirect_stderr
from io import StringIO

import pytest

from koordinator.cli.main import make_parser
from tests.docs.coverage_page import PAGE, Claim, coverage, page
from tests.docs.generated_pages import ROOT, absent_tests, stale_lines
from tests.docs.pages import pages

CLAIMS = coverage().claim
PARSER = make_parser()


def test_the_page_is_as_the_data_are() -> None:
    lines = stale_lines({PAGE: page(coverage())})
    assert not lines, "python -m tests.docs.coverage_page writes it anew:\n" + "\n".join(lines)


def test_every_test_is_there() -> None:
    assert absent_tests(test for claim in CLAIMS for test in claim.tests) == []


def test_every_command_is_taken() -> None:
    assert [command for command in commands() if not is_taken(command)] == []


def test_a_command_that_is_none_is_found() -> None:
    assert is_taken("koord top nodes")
    assert not is_taken("koord top nodes --no-such-flag")
    assert not is_taken("kord top nodes")


def test_a_page_has_every_command() -> None:
    """The commands of blocks are run by test_commands.py."""
    others = " ".join(each.text for each in pages() if ROOT / each.name != PAGE)
    assert [command for command in commands() if command not in others] == []


def commands() -> list[str]:
    return list(dict.fromkeys(claim.command for claim in CLAIMS if claim.command))


def is_taken(command: str) -> bool:
    program, *words = shlex.split(command)
    try:
        with redirect_stderr(StringIO()):
            PARSER.parse_args(words)
    except SystemExit:
        return False
    return program == "koord"


@pytest.mark.parametrize("number", [document.number for document in coverage().document])
def test_every_document_has_claims(number: str) -> None:
    assert [claim for claim in CLAIMS if number in claim.documents]


def test_every_claim_is_shown_or_says_what_is_missing() -> None:
    assert [claim.claim for claim in CLAIMS if not is_whole(claim)] == []


def is_whole(claim: Claim) -> bool:
    """One that works is shown by a test that needs nothing but Python, so that each ``make test`` shows it."""
    numbers = {document.number for document in coverage().document}
    shown = claim.since is not None and any(not test.startswith("tests/real/") for test in claim.tests)
    return set(claim.documents) <= numbers and bool(claim.documents) and shown != bool(claim.missing)


def test_a_claim_stands_there_once() -> None:
    assert len({claim.claim for claim in CLAIMS}) == len(CLAIMS)
