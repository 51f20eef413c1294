"""The commands of every page do what the page says: they are run as printed, page by page, on one cluster.

What cannot be run here is marked by its page in the line before its block (``<!-- not run: why -->``). Such commands
are read all the same: their flags, files and targets exist. How many there may be is bounded.
"""

from __future__ import annotations

import asyncio
import io
import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest
import yaml

from koordinator.api.kinds import LEASES
from koordinator.api.pod import Pod
from koordinator.cli.main import make_parser
from koordinator.cli.up import ports_of
from koordinator.kube.connect import ClientOptions, connect
from tests.docs.documented_cluster import (
    DocumentedCluster,
    Shell,
    documented_cluster,
    fill,
    has,
    until,
)
from tests.docs.documents import documents
from tests.docs.k9s_plugins import FIELDS, REQUIRED, command_of, plugins
from tests.docs.pages import ROOT, Block, Command, Page, pages

MOST_NOT_RUN: Final = 0.55
"""The part of the commands that pages may mark as not run."""
MOST_WITHOUT_A_TEST: Final = 0.25
"""The part of the commands that are not run and whose mark names no test that runs the like."""
MOST_NOT_COMPARED: Final = 5
WORDS_BETWEEN: Final = 30
"""Between a command and what it prints."""
PLUGINS: Final = "docs/plugins.md"
COMMANDS: Final = [command for page in pages() for command in page.commands]
MENTIONED: Final = [command for page in pages() for command in page.mentioned]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocumentedCluster]:
    with documented_cluster(tmp_path_factory.mktemp("documented")) as found:
        yield found


def reason_not_to_run(command: Command) -> str:
    """Why it is not run here; empty when it is."""
    lacking = [
        program for program in ("kubectl", "jq") if re.search(rf"\b{program}\b", command.text) and not has(program)
    ]
    return command.not_run or (f"{lacking[0]} is not installed here" if lacking else "")


def with_commands_to_run() -> list[str]:
    return list(dict.fromkeys(command.page for command in COMMANDS if not reason_not_to_run(command)))


@contextmanager
def typed(page: str, cluster: DocumentedCluster) -> Iterator[None]:
    """All commands of the page have been run; what they have started runs meanwhile."""
    asyncio.run(fill(cluster.kubeconfig))
    with ExitStack() as stack:
        shell = Shell(cluster, stack)
        for command in COMMANDS:
            if command.page == page and not reason_not_to_run(command):
                shell.run(command)
        yield


@pytest.mark.parametrize("page", [page for page in with_commands_to_run() if page != PLUGINS])
def test_the_commands_of_a_page_succeed_in_their_order(page: str, cluster: DocumentedCluster) -> None:
    with typed(page, cluster):
        pass


@pytest.mark.parametrize(
    ("plugin", "name", "says"),
    [
        ("koord-explain-pod", "web", "default/web"),
        ("koord-explain-node", "small-0", "Why batch and mid capacity is what it is"),
        ("koord-top-nodes", "small-0", "small-0"),
    ],
)
def test_a_plugin_of_k9s_shows_what_it_is_for(cluster: DocumentedCluster, plugin: str, name: str, says: str) -> None:
    asyncio.run(fill(cluster.kubeconfig))
    variables = {
        "KUBECONFIG": str(cluster.kubeconfig),
        "CONTEXT": yaml.safe_load(cluster.kubeconfig.read_text())["current-context"],
        "NAMESPACE": "default",
        "NAME": name,
    }
    command = command_of(plugins()[plugin], variables)
    done = subprocess.run(command, env=cluster.environment, capture_output=True, text=True, check=True)
    assert says in done.stdout


def test_every_plugin_of_k9s_is_one_by_its_schema() -> None:
    for name, plugin in plugins().items():
        assert REQUIRED <= plugin.keys() <= FIELDS.keys(), name
        assert all(isinstance(value, FIELDS[field]) for field, value in plugin.items()), name
    keys = [(scope, plugin["shortCut"]) for plugin in plugins().values() for scope in plugin["scopes"]]
    assert len(set(keys)) == len(keys)


@pytest.mark.skipif(not has("kubectl"), reason="the page's commands need kubectl")
def test_the_example_of_a_plugin_runs_beside_koord_up_and_leaves_its_lease_alone(cluster: DocumentedCluster) -> None:
    before = asyncio.run(lease_holders(cluster))
    with typed(PLUGINS, cluster):
        own, guest, after = asyncio.run(outcome(cluster))
    assert own.spec.node_name == "small-0"
    assert not guest.spec.node_name
    assert "node(s) belonged to another tenant" in next(each.message for each in guest.status.conditions)
    assert after == before


def test_the_port_of_the_example_is_none_of_koord_up_s() -> None:
    taken = {str(port) for port in ports_of(make_parser().parse_args(["up"])).values()}
    used = {
        port for command in COMMANDS for port in re.findall(r"--port=(\d+)", command.text) if command.page == PLUGINS
    }
    assert used
    assert not used & taken


async def lease_holders(cluster: DocumentedCluster) -> dict[str, str]:
    client = await connect(ClientOptions(kubeconfig=str(cluster.kubeconfig)))
    try:
        leases = (await client.list(LEASES)).items
    finally:
        await client.close()
    return {
        f"{each.metadata.namespace}/{each.metadata.name}": each.spec.holder_identity or ""
        for each in leases
        if each.metadata.namespace != "kube-node-lease"
    }


async def outcome(cluster: DocumentedCluster) -> tuple[Pod, Pod, dict[str, str]]:
    """The two pods of the example once both were tried, and who holds which lease."""
    client = await connect(ClientOptions(kubeconfig=str(cluster.kubeconfig)))
    try:
        own = await until(client, "team-a", "own", lambda pod: bool(pod.spec.node_name))
        guest = await until(client, "default", "guest", lambda pod: bool(pod.status.conditions))
    finally:
        await client.close()
    return own, guest, await lease_holders(cluster)


@pytest.mark.parametrize("command", [*COMMANDS, *MENTIONED], ids=lambda command: command.where)
def test_what_a_command_names_is_there(command: Command) -> None:
    """Files of the repository, targets of the Makefile, flags of our programs; run or not."""
    words = command.words
    for word in words[1:]:
        path = word.partition("=")[2] if word.startswith("--") else word
        if re.match(r"(\./)?(docs|config|src|tests|benchmarks)/", path):
            assert (ROOT / path).exists(), f"{command.where}: there is no {path}"
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        made = {word for word in words[1:] if "=" not in word}
        assert made <= targets, f"{command.where}: the Makefile has {sorted(targets)}"
    if program := program_of(command):
        used = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
        unknown = used - flags_of(program) - {"--help", "--version"}
        assert not unknown, f"{command.where}: {' '.join(program)} has no {', '.join(sorted(unknown))}"


def program_of(command: Command) -> tuple[str, ...]:
    """Our program that the command runs, as one would ask it for help; empty for one of others."""
    words = command.words
    name = Path(words[0]).name
    if name == "koord":
        # A what-if has a command of its own for each change.
        count = 3 if words[1:2] == ["what-if"] else 2
        named = words[1:count]
        return ("-m", "koordinator.cli.main", *named) if named and not any(w.startswith("-") for w in named) else ()
    if name in ("koord-scheduler", "koord-manager", "koord-descheduler"):
        return ("-m", f"koordinator.{name.removeprefix('koord-')}")
    if name.startswith("python") and len(words) > 2 and words[1] == "-m" and "." in words[2]:
        return ("-m", words[2])
    return ()


@cache
def flags_of(program: tuple[str, ...]) -> frozenset[str]:
    """In this process: to start one for each of two dozen programs would cost ten times as much."""
    _, module, *words = program
    shown = io.StringIO()
    with (
        redirect_stdout(shown),
        patch.object(sys, "argv", [module, *words, "--help"]),
        warnings.catch_warnings(action="ignore", category=RuntimeWarning),
        pytest.raises(SystemExit) as ended,
    ):
        runpy.run_module(module, run_name="__main__")
    assert ended.value.code in (None, 0)
    return frozenset(re.findall(r"--[a-z][\w-]*", shown.getvalue()))


def test_no_more_is_left_out_than_must_be() -> None:
    not_run = [command for command in COMMANDS if command.not_run]
    without_a_test = [command for command in not_run if not named_tests(command.not_run)]
    assert len(not_run) <= MOST_NOT_RUN * len(COMMANDS)
    assert len(without_a_test) <= MOST_WITHOUT_A_TEST * len(COMMANDS)


def test_what_is_shown_below_a_command_is_compared_or_says_why_not() -> None:
    below = [
        (f"{page.name}:{block.line}", block)
        for page in pages()
        for before, block in pairwise(page.blocks)
        if before.is_shell and not before.not_run and not page.reason and is_printed(block)
    ]
    assert [where for where, block in below if not block.is_printed and not block.not_compared] == []
    assert sum(bool(block.not_compared) for _, block in below) <= MOST_NOT_COMPARED


def is_printed(block: Block) -> bool:
    """Whether readers take it for what the command before it prints: it follows soon, and is nothing else."""
    is_something_else = block.is_shell or block.language not in ("", "text") or bool(documents(block))
    return not is_something_else and len(block.between.split()) <= WORDS_BETWEEN


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_reason_names_tests_that_are_there(page: Page) -> None:
    reasons = {page.reason, *(mark.reason for block in page.blocks for mark in block.marks)}
    named = {test for reason in reasons for test in named_tests(reason)}
    assert [test for test in named if not (ROOT / test).exists()] == []


def named_tests(reason: str) -> list[str]:
    return re.findall(r"\b(?:tests|benchmarks)/[\w/.]*\w", reason)


def test_pages_are_found_by_themselves() -> None:
    names = [page.name for page in pages()]
    assert {"README.md", "CONTRIBUTING.md", "docs/explain.md"} <= set(names)
    folders = ("docs", "charts", "config", "benchmarks")
    assert len(names) == 2 + sum(len(list((ROOT / folder).rglob("*.md"))) for folder in folders)
