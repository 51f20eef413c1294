"""The examples in the help text of ``koord manifests``, as people copy them."""

from __future__ import annotations

from koordinator.cli.manifests import EXAMPLES


def examples() -> list[str]:
    """Each command line, without what is said about it."""
    lines = [line.strip() for line in EXAMPLES.splitlines()]
    return [line for line in lines if line.startswith("koord ")]
