"""docs/differences.md and the table of each topic in docs/differences: what is done otherwise than by the original.

``python -m tests.docs.differences_page`` writes the pages from docs/differences.toml, and removes those of topics that
are gone. ``test_differences.py`` checks the rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec

from tests.docs.generated_pages import ROOT, table, write_or_print

DATA: Final = ROOT / "docs/differences.toml"
PAGE: Final = ROOT / "docs/differences.md"
FOLDER: Final = ROOT / "docs/differences"
Group = Literal["", "safety", "numbers", "names", "shapes"]
_GROUPS: Final[Mapping[Group, str]] = {
    "safety": "Safety: what is kept from harm, and by what",
    "numbers": "Numbers that differ",
    "names": "Flags, gates, ports and defaults",
    "shapes": "What programs read and write",
}
_INTRODUCTION: Final = """\
# Differences from the Go original, on purpose

This page has what an operator must know before and after a switch from the Go original, or back. A table for each topic
has all differences, each with its reason and with the tests that show it. Whatever is not listed there is meant to be
the same; a difference that is missing is a defect. [coverage.md](coverage.md) has what the original's documents
promise, and [known-faults.md](known-faults.md) what is known to be wrong.

**Before the switch:** custom resources, labels, annotations, ConfigMaps and configuration files of the original are
read as they are, so nothing has to be rewritten. Look for what you rely on under *Flags, gates, ports and defaults*:
ports listen on loopback alone unless flags say otherwise, plugins that are compiled into the original are Python
packages here, and a mistake in a configuration ends the start instead of being passed over. [helm.md](helm.md) says how
to upgrade a release of the original's chart, and [install.md](install.md) how to replace one program at a time.

**After the switch:** read the log of each program's start, which names every flag and gate that has no effect here.
Dashboards and alerts keep working but for the metrics below. Expect other batch and mid capacity on nodes with huge
pages or amplified CPU. Before the way back, `koordlet --cleanup` takes back what koordlet has set.

`python -m tests.docs.differences_page` writes this page and the tables from `differences.toml`.
"""


class Difference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``original`` and ``here`` say what each does, ``why`` the reason, ``tests`` the node ids that show it. A row with
    an ``operator`` is on the front page, in that group."""

    id: str
    what: str
    original: str
    here: str
    since: date
    tests: list[str]
    why: str = ""
    operator: Group = ""


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    title: str
    difference: list[Difference]


class Differences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: list[Topic]

    def all(self) -> Iterator[tuple[str, Difference]]:
        """Each with the name of its topic."""
        for topic in self.topic:
            yield from ((topic.name, each) for each in topic.difference)


@cache
def differences() -> Differences:
    """What docs/differences.toml says. Raises msgspec.ValidationError, which names the field."""
    return msgspec.toml.decode(DATA.read_text(), type=Differences)


def pages(known: Differences) -> Mapping[Path, str]:
    """The text of each page, in Markdown."""
    return {PAGE: front_page(known), **{FOLDER / f"{topic.name}.md": _topic_page(topic) for topic in known.topic}}


def front_page(known: Differences) -> str:
    sections = [_INTRODUCTION]
    for group, title in _GROUPS.items():
        lines = [_item(topic, each) for topic in known.topic for each in topic.difference if each.operator == group]
        sections.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    topics = [f"- [{each.title}](differences/{each.name}.md): {len(each.difference)}" for each in known.topic]
    return "\n".join([*sections, "## All differences, by topic\n", *topics]) + "\n"


def _item(topic: Topic, row: Difference) -> str:
    # Links of a row lead from the folder of the tables.
    here, original = (text.replace("](../", "](") for text in (row.here, row.original))
    does = f" The original: {original}." if original else ""
    return f"- **{topic.title}:** [{row.what}](differences/{topic.name}.md#{row.id}).{does} Here: {here}."


def _topic_page(topic: Topic) -> str:
    head = (
        f"# {topic.title}: differences\n\n"
        "What is done otherwise on purpose, why, since which day, and which tests show it.\n"
        "[differences.md](../differences.md) has what an operator must know of it.\n\n"
    )
    columns = ["what", "the original", "here", "why", "shown by", "since"]
    return head + table(columns, map(_row, topic.difference))


def _row(row: Difference) -> Sequence[str]:
    shown = "<br>".join(f"`{test}`" for test in row.tests)
    return [f'<a id="{row.id}"></a>{row.what}', row.original or "–", row.here, row.why, shown, f"{row.since}"]


def main(arguments: Sequence[str]) -> None:
    """Write the pages, or print them with ``--print``."""
    made = pages(differences())
    write_or_print(made, arguments)
    if not arguments:
        for path in set(FOLDER.glob("*.md")) - set(made):
            path.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
