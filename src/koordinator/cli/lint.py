"""``koord lint``: typing mistakes in manifests that an API server takes in silence, each with its line."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from koordinator.api.elastic_quota import BUILT_IN_QUOTAS
from koordinator.api.kinds import ELASTIC_QUOTAS
from koordinator.base.errors import KoordinatorError
from koordinator.base.strict_yaml import load_documents
from koordinator.base.yaml_lines import line_of
from koordinator.cli.explain import add_cluster, find_named_cluster
from koordinator.cli.explain_cluster import seconds
from koordinator.cli.explain_object import read_from
from koordinator.cli.lint_rules import findings, quota_named
from koordinator.cli.output_forms import JSON, NAME, TEXT, YAML, add_output
from koordinator.cli.query import Answer, run_query
from koordinator.cli.session import Session
from koordinator.cli.what_if_input import read_text
from koordinator.model.typing_mistakes import Document, Mistake

FOUND: Final = 1
_SECONDS: Final = 3.0

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
  koord lint manifests/*.yaml -o json | jq -r '.[].message'
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
    add_output(parser, TEXT, NAME, JSON, YAML, names="the files in which something was found")
    parser.add_argument(
        "--request-timeout",
        type=seconds,
        default=_SECONDS,
        metavar="SECONDS",
        help="how long to wait for the quotas of a cluster (default: %(default)g)",
    )
    add_cluster(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class Finding:
    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.path}: {self.message}"


def run(options: argparse.Namespace) -> int:
    """Check and print a line for each finding."""
    return run_query(options, lambda _: lambda session: _answer(options, session))


async def _answer(options: argparse.Namespace, session: Session) -> Answer:
    texts = {file: read_text(file) for file in options.files}
    documents = {file: _documents(text, file) for file, text in texts.items()}
    quotas = await _quotas(options, [each for found in documents.values() for each in found], session)
    found = [each for file, parts in documents.items() for each in _findings(file, texts[file], parts, quotas)]
    files = list(dict.fromkeys(each.file for each in found))
    text = "".join(f"{each}\n" for each in found)
    return Answer([asdict(each) for each in found], lambda: text, files, FOUND if found else 0)


def _findings(
    file: str, text: str, documents: Sequence[Document | None], quotas: Collection[str] | None
) -> Iterator[Finding]:
    for index, document in enumerate(documents):
        if document is None:
            continue
        for found in findings(document, quotas):
            yield Finding(file, _line(text, document, index, found), found.full_path, found.message)


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


async def _quotas(
    options: argparse.Namespace, documents: Sequence[Document | None], session: Session
) -> Collection[str] | None:
    """The names of the cluster's quotas and of those of the files; None where no cluster can be queried and the files
    have none."""
    named = {name for document in documents if document is not None and (name := quota_named(document))}
    found = None
    try:
        cluster = find_named_cluster(options)
        if cluster is not None and cluster.client is not None:
            async with read_from(session, cluster) as reader:
                found = [quota["metadata"]["name"] for quota in await reader.every(ELASTIC_QUOTAS)]
    except KoordinatorError:
        """A cluster is a help here, not a need."""
    if found is None:
        return {*named, *BUILT_IN_QUOTAS} if named else None
    return {*named, *found, *BUILT_IN_QUOTAS}
