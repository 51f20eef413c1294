"""Configuration files: one document, no key twice, errors that name the place."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.base.strict_yaml import load_document, load_documents, read_configuration_file


def test_empty_documents_do_not_count() -> None:
    assert load_documents("---\n---\na: 1\n---\n", "file") == [{"a": 1}]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "file: '0 documents' is not usable: one Thing"),
        ("a: 1\n---\na: 2\n", "file: '2 documents' is not usable: one Thing"),
        ("[1]", r"file: \[1\] is not usable: a Thing"),
        ("a: {b: 1, b: 2}", "file: line 1: 'b' is not usable: a key may stand only once"),
        ("a: [", "file: line 1, column 5: 'the document' is not usable: YAML"),
        ("kind: ConfigMap\ndata: {key: 1}", r"file: data\[key\]: 1 is not usable: a Thing as text"),
    ],
)
def test_what_is_no_document_is_refused(text: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        load_document(text, "file", "Thing", "key")


def test_a_config_map_may_hold_the_document() -> None:
    assert load_document("kind: ConfigMap\ndata: {key: 'a: 1'}", "file", "Thing", "key") == {"a": 1}


def test_where_no_key_is_named_a_config_map_is_a_document_like_others() -> None:
    assert load_document("kind: ConfigMap", "file", "Thing") == {"kind": "ConfigMap"}


def test_a_file_that_cannot_be_read_is_named_with_its_flag(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"--config: .*absent.* a readable YAML file"):
        read_configuration_file("--config", tmp_path / "absent")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="a readable YAML file"):
        read_configuration_file("--config", tmp_path / "binary")


@pytest.mark.parametrize(
    "text",
    [
        *("a: 2026-13-01", "a: !!float x", "!!timestamp x", "a: " + "9" * 5000, "[" * 3000, "a: &a [*a]"),
        "a: &a [1, 1, 1, 1]\n"
        + "".join(f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}]\n" for old, new in pairwise("abcdefghijklm")),
    ],
    ids=["no date", "no number", "no time", "too long a number", "too deep", "inside of itself", "millions of aliases"],
)
def test_what_the_library_cannot_construct_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="file: 'the document' is not usable"):
        load_documents(text, "file")
