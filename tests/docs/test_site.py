"""The site of docs/: all pages are in it, its links lead somewhere, and nothing in it is fetched from elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs import site as sites
from tests.docs.diagrams import DRAWINGS, FOLDER
from tests.docs.features_page import PAGE, page
from tests.docs.pages import ROOT, Page, pages
from tests.docs.site import Document, Site, SiteError

PARTS = ["What it is for", "Switch it on", "See that it works", "Tune it", "Troubleshoot"]
PROGRAMS = ["scheduler", "manager", "koordlet", "descheduler", "device-daemon", "runtime-proxy", "koord"]
TABS = ["Start", "Recipes", "Programs", "Concepts", "Reference", "Operate", "Contribute"]
LONGEST = 480
"""Lines of a page that is read; tables that are looked up may be longer."""
LOOKED_UP = {"docs/differences.md", "docs/performance.md", "docs/architecture.md"}


def of_docs() -> list[Page]:
    return [each for each in pages() if each.name.startswith("docs/")]


def fetched(document: Document) -> list[str]:
    """What a browser would ask another server for; links that a reader has to follow are none of it."""
    return [address for where, address in document.addresses if where != "a href" and urlsplit(address).netloc]


def dead(site: Site, document: Document) -> list[str]:
    """Addresses within the site that lead nowhere."""
    here = site.folder / document.name
    found = []
    for _, address in document.addresses:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        path = unquote(parts.path)
        target = site.folder / path.lstrip("/") if path.startswith("/") else (here.parent / path).resolve()
        target = (target / "index.html" if target.is_dir() else target) if path else here
        anchors = site.documents.get(str(target.relative_to(site.folder))) if target.suffix == ".html" else None
        fragment = unquote(parts.fragment)
        if not target.is_file() or (anchors and fragment and fragment not in anchors.anchors):
            found.append(address)
    return found


def test_each_page_is_listed_once() -> None:
    names = [f"docs/{name}" for name in sites.listed()]
    assert sorted(names) == sorted(each.name for each in of_docs())


def test_the_tabs_are_tasks() -> None:
    nav = sites.navigation()
    assert [next(iter(tab)) for tab in nav] == TABS


def test_no_address_leads_nowhere(site: Site) -> None:
    broken = {name: found for name, each in site.documents.items() if (found := dead(site, each))}
    assert not broken


def test_nothing_is_fetched_from_elsewhere(site: Site) -> None:
    elsewhere = {name: found for name, each in site.documents.items() if (found := fetched(each))}
    assert not elsewhere
    # The theme would fetch the program that draws such blocks.
    drawn = [name for name in site.documents if 'class="mermaid"' in (site.folder / name).read_text()]
    assert not drawn
    sheets = [*site.folder.rglob("*.css"), *site.folder.rglob("*.svg")]
    assert sheets
    for sheet in sheets:
        text = sheet.read_text()
        assert "@import" not in text, sheet
        assert "url(http" not in text, sheet
        assert "url(//" not in text, sheet


@pytest.mark.parametrize(
    "text",
    ["[a](nowhere.md)", "[a](glossary.md#nowhere)", "[a][b]\n\n[b]: nowhere.md"],
)
def test_a_dead_link_fails_the_build(text: str, tmp_path: Path) -> None:
    """That of `make docs`, without the other pages."""
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copytree(ROOT / "docs/.theme", docs / ".theme")
    (docs / "glossary.md").write_text("# Glossary\n")
    (docs / "index.md").write_text(f"# Start\n\n{text}\n")
    (tmp_path / "zensical.toml").write_text(
        '[project]\nsite_name = "a"\nnav = ["index.md", "glossary.md"]\n[project.theme]\nfont = false\n'
    )
    with pytest.raises(SiteError, match=r"nowhere|does not exist"):
        sites.run(tmp_path)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_page_of_a_program_has_the_same_parts(name: str) -> None:
    text = next(each.prose for each in of_docs() if each.name == f"docs/{name}.md")
    assert [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")] == PARTS


def test_pages_are_of_readable_length() -> None:
    long = {each.name for each in of_docs() if each.text.count("\n") > LONGEST}
    assert long <= LOOKED_UP


def test_the_page_of_features_is_current() -> None:
    assert PAGE.read_text() == page(), "python -m tests.docs.features_page writes it anew"


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_current(name: str) -> None:
    assert (FOLDER / name).read_text() == DRAWINGS[name](), "python -m tests.docs.diagrams writes it anew"
