"""The files of the page as browsers get them."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest
from multidict import CIMultiDict

from koordinator.cli import page
from koordinator.cli.page.static_files import StaticFiles
from koordinator.kube.pages import PageError, Request

FOLDER = Path(page.__file__).parent / "static"
FILES = StaticFiles()
VENDORED = {
    "preact.js": "preact 10.29.8",
    "preact-hooks.js": "preact 10.29.8",
    "htm.js": "htm 3.1.1",
    "uplot.js": "uplot 1.6.32",
    "uplot.css": "uplot 1.6.32",
}


def get(path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    found = FILES.respond(path, Request.to("GET", f"/static/{path}", CIMultiDict(headers)))
    return found.status, found.body, dict(found.headers)


def test_all_of_it_is_small() -> None:
    assert FILES.compressed_bytes() < 250 << 10


def test_nothing_is_loaded_from_elsewhere() -> None:
    """But for the names of XML and of licences, no file names another host."""
    names = [path for path in FILES if not path.startswith("vendor/")]
    found = {
        (name, url)
        for name in names
        for url in re.findall(r"https?://[^\s\"'`<>)]+", (FOLDER / name).read_text())
        if not url.startswith("http://www.w3.org/")
    }
    assert found == set()


def test_scripts_are_ours_alone_and_the_import_map_is_named_by_its_hash() -> None:
    _, body, headers = get("index.html")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    (allowed,) = re.findall(r"script-src ([^;]*)", policy)
    assert re.fullmatch(r"'self' 'sha256-[\w+/=]+'", allowed)
    assert body.count(b"<script") == 2


@pytest.mark.parametrize("name", sorted(VENDORED))
def test_what_others_wrote_is_shipped_as_it_is(name: str) -> None:
    """vendor/README.txt names each file with its version and hash."""
    listed = (FOLDER / "vendor" / "README.txt").read_text()
    digest = hashlib.sha256((FOLDER / "vendor" / name).read_bytes()).hexdigest()
    assert f"{name}  {VENDORED[name]}  sha256:{digest}" in listed
    assert (FOLDER / "vendor" / f"{VENDORED[name].split()[0]}-LICENSE.txt").exists()


def test_a_file_is_compressed_for_whoever_takes_that() -> None:
    _, plain, headers = get("main.js")
    _, packed, _ = get("main.js", **{"Accept-Encoding": "gzip, br"})
    assert gzip.decompress(packed) == plain
    assert headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert get("main.js", **{"If-None-Match": headers["ETag"]})[:2] == (304, b"")


@pytest.mark.parametrize("path", ["nothing.js", "../command.py", "..%2fcommand.py", "", "vendor"])
def test_only_these_files_are_there(path: str) -> None:
    with pytest.raises(PageError) as refusal:
        get(path)
    assert refusal.value.response.status == 404


def test_every_module_that_is_imported_is_there() -> None:
    for path in FILES:
        if path.endswith(".js") and not path.startswith("vendor/"):
            for name in re.findall(r'from "\./([^"]+)"', (FOLDER / path).read_text()):
                assert (FOLDER / name).exists(), f"{path} imports {name}"
