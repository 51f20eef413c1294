"""Follows what a controller does on a person's behalf: one line for each change, until it has ended or Ctrl-C comes."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.cli import interruption
from koordinator.cli.explain import add_cluster, needed_cluster
from koordinator.cli.explain_cluster import Cluster, seconds
from koordinator.cli.explain_failure import INTERRUPTED, NOT_REACHED, ExplainError, UsageError, explain_error
from koordinator.cli.explain_source import SECONDS
from koordinator.cli.explain_terminal import ended, say
from koordinator.cli.session import open_session
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import KubeError

POLL_SECONDS: Final = 1.0
_CLEAR_LINE: Final = "\r\x1b[2K"
T = TypeVar("T", bound=Object)
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is. ``status`` is the exit status of the command, None while it goes on."""

    line: str
    status: int | None = None


class ProgressLine:
    """On a terminal one line that is written anew; elsewhere a line for each change."""

    def __init__(self) -> None:
        self._before = ""
        self._redraws = sys.stdout.isatty()

    def show(self, progress: Progress) -> None:
        if progress.line == self._before and progress.status is None:
            return
        self._before = progress.line
        ends = "\n" if progress.status is not None or not self._redraws else ""
        sys.stdout.write(f"{_CLEAR_LINE if self._redraws else ''}{progress.line}{ends}")
        sys.stdout.flush()


async def follow(read: Callable[[], Awaitable[Progress]], show: Callable[[Progress], None], sleep: Sleep) -> int:
    """Show it until it has ended; returns the exit status."""
    while True:
        progress = await read()
        show(progress)
        if progress.status is not None:
            return progress.status
        await sleep(POLL_SECONDS)


async def follow_object(client: KubeClient, kind: Kind[T], name: str, progress_of: Callable[[T, int], Progress]) -> int:
    """Show how far the controller of an object without a namespace is with it.

    ``progress_of`` is given the object as it is now, and how often it has been looked at."""
    looks = count(1)

    async def read() -> Progress:
        return progress_of(await client.get(kind, name), next(looks))

    return await follow(read, ProgressLine().show, pause)


def add_writing(parser: argparse.ArgumentParser) -> None:
    """The options of commands that create an object and follow what comes of it."""
    parser.add_argument("--no-wait", action="store_true", help="return at once; the controller goes on")
    parser.add_argument("--request-timeout", type=seconds, default=SECONDS, metavar="SECONDS", help=argparse.SUPPRESS)
    add_cluster(parser)


def run_with_client(
    options: argparse.Namespace, work: Callable[[KubeClient, Cluster], Awaitable[int]], goes_on: Callable[[], str]
) -> int:
    """Run ``work`` with a client that may write. ``goes_on`` says after Ctrl-C what goes on without the command."""
    try:
        return interruption.run(_work(options, work))
    except ExplainError as error:
        return say(str(error), error.status)
    except ConfigurationError as error:
        return say(str(error), UsageError.status)
    except KoordinatorError as error:
        return say(str(error), NOT_REACHED)
    except KeyboardInterrupt:
        return say(goes_on(), INTERRUPTED)
    except Exception as error:
        return ended(error, sys.stdout)


async def _work(options: argparse.Namespace, work: Callable[[KubeClient, Cluster], Awaitable[Any]]) -> int:
    cluster, reading = needed_cluster(options)
    writing = replace(reading, read_only=None)
    try:
        async with open_session() as session:
            status: int = await work(await session.client(writing), cluster)
            return status
    except KubeError as error:
        raise explain_error(error, cluster.name, writing.timeout_seconds) from error


async def pause(duration: float) -> None:
    """Between two looks."""
    await asyncio.sleep(duration)
