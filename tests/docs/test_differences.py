"""docs/differences.toml names tests that are there, and the pages say what it says."""

from __future__ import annotations

import re
from collections import Counter

from tests.docs.differences_page import FOLDER, PAGE, differences, front_page, pages
from tests.docs.generated_pages import absent_tests, stale_lines

ROWS = [row for _, row in differences().all()]


def test_the_pages_are_as_the_data_are() -> None:
    made = pages(differences())
    assert not (lines := stale_lines(made)), "python -m tests.docs.differences_page writes them anew:\n" + "\n".join(
        lines
    )
    assert set(FOLDER.iterdir()) == set(made) - {PAGE}


def test_every_row_is_shown_by_tests_that_are_there() -> None:
    assert [row.id for row in ROWS if not row.tests] == []
    assert absent_tests(test for row in ROWS for test in row.tests) == []


def test_a_row_stands_there_once() -> None:
    anchors = Counter((topic, row.id) for topic, row in differences().all())
    texts = Counter((row.what, row.here) for row in ROWS)
    assert [each for counted in (anchors, texts) for each, count in counted.items() if count > 1] == []


def test_a_row_says_what_is_done_here_and_its_anchor_is_one() -> None:
    assert [row.id for row in ROWS if not row.here or not row.what] == []
    assert [row.id for row in ROWS if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row.id)] == []


def test_what_an_operator_must_know_is_one_page() -> None:
    assert front_page(differences()).count("\n") <= 150
