"""``koord lint``: typing mistakes in manifests that an API server takes in silence, each with its line."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from koordinator.api.elastic_quota import BUILT_IN_QUOTAS
from koordinator.api.kinds import ELASTIC_QUOTAS
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.base.strict_yaml import load_documents
from koordinator.base.yaml_lines import line_of
from koordinator.cli import interruption
from koordinator.cli.explain import add_cluster, find_named_cluster
from koordinator.cli.explain_cluster import Cluster, seconds
from koordinator.cli.explain_failure import UNUSABLE, ExplainError
from koordinator.cli.explain_object import read_from
from koordinator.cli.explain_terminal import ended, output, say, write
from koordinator.cli.lint_rules import findings, quota_named
from koordinator.cli.session import open_session
from koordinator.cli.what_if_input import read_text
from koordinator.model.typing_mistakes import Document, Mistake

FOUND: Final = 1
_SECONDS: Final = 3.0
"""A cluster is a help here, not a need."""

_DESCRIPTION = """\
Find typing mistakes in manifests that an API server would take in silence: a quality of service that there is not, a
label or annotation that no program reads, a quota that there is not (when a cluster can be queried, or the files have
it), fields of the custom resources and of slo-controller-config that no program knows, and combinations that the
webhooks of koord-manager refuse. Each is named with its line and, where one is near, what was meant.
"""
_EPILOG = """\
examples:
  koord lint web.yaml
  koord lint manifests/*.yaml
  helm template my-chart | koord lint -

exit status: 0 nothing was found; 1 something was; 2 a file cannot be read
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "lint",
        help="find typing mistakes in manifests that an API server takes in silence",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="YAML or JSON; - for standard input")
    parser.add_argument(
        "--request-timeout",
        type=seconds,
        default=_SECONDS,
        metavar="SECONDS",
        help="how long to wait for the quotas of a cluster (default: %(default)g)",
    )
    add_cluster(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check and print a line for each finding."""
    stream, terminal = output()
    try:
        texts = {file: read_text(file) for file in options.files}
        documents = {file: _documents(text, file) for file, text in texts.items()}
        quotas = _quotas(options, [each for found in documents.values() for each in found])
        lines = [line for file, found in documents.items() for line in report(file, texts[file], found, quotas)]
        write("".join(f"{line}\n" for line in lines), stream, terminal)
    except ConfigurationError as error:
        return say(str(error), UNUSABLE)
    except (KeyboardInterrupt, Exception) as error:
        return ended(error, stream)
    return FOUND if lines else 0


def report(file: str, text: str, documents: Sequence[Document | None], quotas: Collection[str] | None) -> Iterator[str]:
    """``FILE:LINE: PATH: MESSAGE`` for each finding."""
    for index, document in enumerate(documents):
        if document is None:
            continue
        for found in findings(document, quotas):
            yield f"{file}:{_line(text, document, index, found)}: {found}"


def _line(text: str, document: Document, index: int, found: Mistake) -> int:
    line = line_of(text, found.path, index)
    if not found.inner:
        return line
    name = found.path.partition("[")[2].rstrip("]")
    inner: str = document["data"][name]
    # JSON is YAML, too; a text of several lines begins on the line after its key.
    return line + line_of(inner, found.inner) if "\n" in inner else line


def _documents(text: str, file: str) -> list[Document | None]:
    """None for what is no object. Lists of objects are not looked into."""
    return [each if isinstance(each, dict) else None for each in load_documents(text, file)]


def _quotas(options: argparse.Namespace, documents: Sequence[Document | None]) -> Collection[str] | None:
    """The names of the cluster's quotas and of those of the files; None where no cluster can be queried and the files
    have none."""
    named = {name for document in documents if document is not None and (name := quota_named(document))}
    try:
        cluster = find_named_cluster(options)
        found = interruption.run(_names(cluster)) if cluster is not None and cluster.client is not None else None
    except (ExplainError, KoordinatorError):
        found = None
    if found is None:
        return {*named, *BUILT_IN_QUOTAS} if named else None
    return {*named, *found, *BUILT_IN_QUOTAS}


async def _names(cluster: Cluster) -> list[str]:
    async with open_session() as session, read_from(session, cluster) as reader:
        return [quota["metadata"]["name"] for quota in await reader.every(ELASTIC_QUOTAS)]
