"""Every link of a page leads somewhere: to a file of the repository, to a heading of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import ROOT, Page, pages

_LINK: Final = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_REFERENCE: Final = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
_HEADING: Final = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$", re.MULTILINE)
_ANCHOR: Final = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")


def links(page: Page) -> Iterator[str]:
    prose = page.prose
    # What stands in code is an example of a link at most; a link's text may be code.
    plain = re.sub(r"(?<!\[)`[^`\n]*`(?!\])", "", prose)
    for pattern in (_LINK, _REFERENCE):
        yield from (found[1] for found in pattern.finditer(plain))


def anchors(text: str) -> frozenset[str]:
    """As GitHub makes them of headings: words in lower case with hyphens between, numbered when they come again."""
    found: list[str] = []
    for heading in _HEADING.finditer(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[2]).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        again = sum(1 for each in found if each == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", each))
        found.append(f"{slug}-{again}" if again else slug)
    return frozenset([*found, *_ANCHOR.findall(text)])


@cache
def anchors_of(path: Path) -> frozenset[str]:
    name = str(path.relative_to(ROOT))
    page = next((each for each in pages() if each.name == name), None) or Page(name, path.read_text())
    return anchors(page.prose)


def broken(page: Page, root: Path = ROOT) -> Sequence[str]:
    """The links of the page that lead nowhere, each with why."""
    return [f"{link}: {why}" for link in links(page) if (why := _wrong(page, link, root))]


def _wrong(page: Page, link: str, root: Path) -> str:
    parts = urlsplit(link)
    if parts.scheme:
        return "" if parts.scheme in ("https", "http", "mailto") else "what kind of link is that?"
    here = root / page.name
    target = (here.parent / unquote(parts.path)).resolve() if parts.path else here
    if parts.path and not target.exists():
        return "there is no such file"
    if not parts.fragment:
        return ""
    if target.suffix != ".md":
        return "only pages have headings"
    known = anchors(page.prose) if target == here else anchors_of(target)
    return "" if unquote(parts.fragment) in known else f"there is no such heading; there are {', '.join(sorted(known))}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    assert broken(page) == []


def test_every_page_can_be_reached_from_the_front_page() -> None:
    """What nobody links to nobody finds."""
    by_name = {page.name: page for page in pages()}
    reached, left = {"README.md"}, ["README.md"]
    while left:
        page = by_name[left.pop()]
        for link in links(page):
            path = urlsplit(link).path
            if not urlsplit(link).scheme and path:
                name = str(((ROOT / page.name).parent / unquote(path)).resolve().relative_to(ROOT))
                if name in by_name and name not in reached:
                    reached.add(name)
                    left.append(name)
    assert set(by_name) - reached == set()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("# One two\n[a](#one-two) [b](README.md) [c](https://example.com/x#y)", 0),
        ("# `koord up`: a *cluster*!\n[a](#koord-up-a-cluster)", 0),
        ("# A\n# A\n[a](#a-1)", 0),
        ("[`code`](docs/explain.md#a-node)", 0),
        ("[a](nowhere.md)", 1),
        ("[a](#nowhere)", 1),
        ("[a](docs/explain.md#nowhere)", 1),
        ("[a]: nowhere.md", 1),
        ("[a](file:///x)", 1),
        ("`[a](nowhere.md)`", 0),
        ("    [a](nowhere.md)\n", 0),
    ],
)
def test_a_link_that_leads_nowhere_is_found(text: str, count: int) -> None:
    assert len(broken(Page("README.md", f"begin\n\n{text}\n"))) == count
