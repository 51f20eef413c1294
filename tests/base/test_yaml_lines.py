"""The line of a field in a YAML file, and errors that name it."""

from __future__ import annotations

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.base.strict_yaml import load_documents
from koordinator.base.yaml_lines import line_of, naming_lines

TEXT = """\
changes:
  - drain:
      nodes: [a]
  - scale:
      labels:
        koordinator.sh/qosClass: be
---
kind: Pod
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("", 1),
        ("changes", 1),
        ("changes[0].drain.nodes", 3),
        ("changes[1]", 4),
        ("changes[1].scale.labels[koordinator.sh/qosClass]", 6),
        ("changes[1].scale.no.such", 4),
        ("changes[9]", 1),
    ],
)
def test_the_deepest_part_that_is_there_has_the_line(path: str, line: int) -> None:
    assert line_of(TEXT, path) == line


def test_each_document_counts_from_the_beginning_of_the_file() -> None:
    assert line_of(TEXT, "kind", document=1) == 8


@pytest.mark.parametrize(("text", "document"), [("a: b: c", 0), ("", 0), ("a: 1", 3)])
def test_what_is_not_there_has_no_line(text: str, document: int) -> None:
    assert line_of(text, "a", document) == 0


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("f.yaml: changes[0].drain", "f.yaml: line 2: changes[0].drain"),
        ("changes[1].scale", "f.yaml: line 4: changes[1].scale"),
        ("f.yaml: document 2.kind", "f.yaml: line 8: kind"),
        ("f.yaml", "f.yaml: line 1"),
        ("f.yaml: line 7", "f.yaml: line 7"),
    ],
)
def test_an_error_about_a_field_gets_its_line(field: str, named: str) -> None:
    with pytest.raises(ConfigurationError) as raised, naming_lines(TEXT, "f.yaml"):
        raise ConfigurationError(field, 1, "no")
    assert (raised.value.field, raised.value.value, raised.value.allowed) == (named, 1, "no")


def test_text_that_is_not_yaml_is_named_by_line_and_column() -> None:
    with pytest.raises(ConfigurationError, match=r"^f\.yaml: line 3, column 5: 'the document' is not usable: YAML"):
        load_documents("a:\n  b: 1\n   c: 2\n", "f.yaml")
