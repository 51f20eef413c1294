"""The glossary has the words that newcomers meet, each with an example and a way to read on."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import pages

TEXT = next(page.text for page in pages() if page.name == "docs/glossary.md")
WORDS = [
    *("prod", "mid", "batch", "free", "LSE", "LSR", "LS", "BE", "SYSTEM", "Colocation", "Overcommit", "Prediction"),
    *("NodeMetric", "NodeSLO", "Amplification", "Normalisation", "NUMA zone", "Gang", "Elastic quota", "Reservation"),
    *("Batch capacity", "Load awareness", "Colocation profile", "Abnormal node", "Preemption", "Lease"),
]


@pytest.mark.parametrize("word", WORDS)
def test_the_word_is_explained(word: str) -> None:
    assert re.search(rf"\*\*{word}\b", TEXT)


def entries() -> list[str]:
    return re.findall(r"^\*\*.+?(?=\n\n|\Z)", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry[2:30].partition("*")[0])
def test_each_entry_is_short_and_leads_on(entry: str) -> None:
    assert len(entry.split()) <= 80
    assert re.search(r"\]\([^)]+\)", entry), "no page that goes deeper"


def test_it_is_linked_from_the_front_page() -> None:
    assert "(docs/glossary.md)" in next(page.text for page in pages() if page.name == "README.md")
