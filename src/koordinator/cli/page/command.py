"""``koord page``: what the other commands say, in a browser, for as long as the command runs."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final, NoReturn

from koordinator.base.clock import Clock, SystemClock
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.base.said_once import SaidOnce
from koordinator.cli import interruption
from koordinator.cli.arguments import whole_number
from koordinator.cli.explain import add_sources, needed_cluster, sources_of
from koordinator.cli.explain_failure import NOT_REACHED, ExplainError, UsageError
from koordinator.cli.explain_terminal import ended, output, say
from koordinator.cli.page.board import Board, sees_all
from koordinator.cli.page.broadcast import Broadcast
from koordinator.cli.page.feed import Feed
from koordinator.cli.page.history import SAMPLE_SECONDS, History, HistoryError, sample_of
from koordinator.cli.page.local_access import LocalAccess, named
from koordinator.cli.page.pod_list import PodList
from koordinator.cli.page.prometheus_history import PrometheusHistory
from koordinator.cli.page.questions import questions_of
from koordinator.cli.page.site import Site
from koordinator.cli.page.state_folder import StateFolder
from koordinator.cli.page.token_access import TokenAccess
from koordinator.cli.page.viewers import Viewer
from koordinator.cli.page.what_if_runs import WhatIfRuns
from koordinator.cli.session import open_session
from koordinator.kube.prometheus import PrometheusServer, check_server
from koordinator.kube.secure_options import SecureOptions
from koordinator.kube.secure_serving import certificate_files
from koordinator.kube.serving import HealthServer
from koordinator.kube.serving_certificate import ServingCertificate, ServingCertificateError

logger = logging.getLogger(__name__)

_CERTIFICATE_SECONDS: Final = 60.0
_DESCRIPTION = """\
Show a cluster in the browser, kept current: whether co-location is safe, what it earns, nodes and their classes, why
pods are pending, quotas, gangs, interference, migrations and devices. It reads what your kubeconfig may read, and
writes nothing.

Without --sign-in the page is for you alone: it is served on this machine, and the link that is printed is good once.
Ctrl-C ends it; the page of a koord up, which is opened where one runs, goes on.
"""
_EPILOG = """\
examples:
  koord page                            of the cluster of kubectl, or of koord up
  koord page --no-browser               print the link, and open nothing
  koord page --page-port 6480 --kubeconfig prod.yaml
  koord page --sign-in --bind-address ::
                                        for everybody who has a token of the cluster, over HTTPS

exit status: 0 after Ctrl-C; 1 when the cluster cannot be reached or the port is taken; 2 for what cannot be used
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "page",
        help="show the cluster in a browser, kept current",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--page-port",
        type=whole_number(0, 65535),
        default=0,
        metavar="N",
        help="of 127.0.0.1 (default: one that is free)",
    )
    parser.add_argument(
        "--bind-address", default="127.0.0.1", metavar="ADDRESS", help="of this machine (default: %(default)s)"
    )
    parser.add_argument(
        "--sign-in",
        action="store_true",
        help="serve everybody over HTTPS: each shows a token of the cluster, and sees what its roles let it see",
    )
    parser.add_argument("--tls-cert-file", type=Path, metavar="FILE", help="of --sign-in (default: one is made)")
    parser.add_argument("--tls-private-key-file", type=Path, metavar="FILE", help="the key of --tls-cert-file")
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="keep the history of the last week there, and let koord page of the same cluster open this page",
    )
    parser.add_argument(
        "--prometheus", default="", metavar="URL", help="read the history there (default: what this page has seen)"
    )
    parser.add_argument("--prometheus-token-file", default="", metavar="FILE", help="a bearer token for it")
    parser.add_argument(
        "--prometheus-ca-file", default="", metavar="FILE", help="its authority (default: those of the machine)"
    )
    parser.add_argument("--no-browser", action="store_true", help="print the link alone")
    add_sources(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    stream, _ = output()
    try:
        _check(options)
        return interruption.run(_until_interrupted(options))
    except interruption.Interrupted:
        return 0
    except ExplainError as error:
        return say(str(error), error.status)
    except ConfigurationError as error:
        return say(str(error), UsageError.status)
    except (KoordinatorError, OSError) as error:
        return say(str(error), NOT_REACHED)
    except BaseExceptionGroup as group:
        return ended(_first(group), stream)
    except (KeyboardInterrupt, Exception) as error:
        return ended(error, stream)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What has ended the tasks of a page."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _until_interrupted(options: argparse.Namespace) -> int:
    """The page that runs already, where one does; else one of this command's own."""
    cluster, _ = needed_cluster(options)
    if cluster.data is not None and not (options.state or options.sign_in or options.page_port or options.prometheus):
        link = await StateFolder(cluster.data).link()
        if link is not None:
            await _announce(link, options, "The page of koord up, for one browser")
            return 0
    return await interruption.until_interrupted(
        serve(options, SystemClock()), kill=lambda: None, on_interrupt=lambda: None
    )


async def serve(options: argparse.Namespace, clock: Clock) -> int:
    """Read the cluster and serve the page until cancelled. Raises ExplainError, KubeError and OSError."""
    cluster, reached_by = needed_cluster(options)
    sources = sources_of(options)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(open_session())
        client = await session.client(reached_by)
        await client.raw("GET", "/version")
        state = StateFolder(options.state) if options.state else None
        feed = Feed(client, clock, is_for_administrator=not options.sign_in)
        history = History(state.history if state is not None else None)
        stack.callback(history.close)
        questions = questions_of(cluster, client, sources, session, clock)
        broadcast = Broadcast(Board([*feed.tables.values(), *(each.table for each in questions)]), feed.turn, clock)
        person = Viewer(sees_all, sources, session, lambda folder: _cluster_options(options))
        access = (
            TokenAccess(reached_by, sources, feed.namespaces(), clock)
            if options.sign_in
            else LocalAccess(person, clock)
        )
        tls = stack.enter_context(_certificate(options, clock)) if options.sign_in else None
        server = HealthServer(
            Metrics(),
            # As with other programs, this is every address of both families.
            host="" if options.bind_address == "::" else options.bind_address,
            port=options.page_port,
            field="--page-port",
            tls=tls.context if tls is not None else None,
            access=access if isinstance(access, TokenAccess) else None,
        )
        past = PrometheusHistory(_prometheus(options, clock)) if options.prometheus else history
        Site(access, broadcast, PodList(feed), past, WhatIfRuns(), clock).add_to(server)
        await server.start()
        stack.push_async_callback(server.stop)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(feed.informers.run(), name="informers")
            tasks.create_task(broadcast.run(), name="turns")
            tasks.create_task(_record(feed, history, clock), name="history")
            for question in questions:
                tasks.create_task(question.repeat(clock), name=f"question {question.table.name}")
            if isinstance(access, LocalAccess):
                access.serve_as(options.bind_address, server.bound_port)
                if state is not None:
                    state.publish(server.bound_port, access.key)
                    stack.callback(state.withdraw)
                link = f"http://{named(options.bind_address)}:{server.bound_port}/open?ticket={access.ticket()}"
                await _announce(link, options, "The page, for one browser (Ctrl-C ends it)")
            else:
                assert tls is not None
                tasks.create_task(access.run(), name="rights")
                tasks.create_task(rotate(tls, clock), name="certificate")
                where = f"https://{named(options.bind_address)}:{server.bound_port}/"
                print(f"The page, for whoever shows a token: {where}", flush=True)
    return 0


def _prometheus(options: argparse.Namespace, clock: Clock) -> PrometheusServer:
    return PrometheusServer(options.prometheus, clock, options.prometheus_token_file, options.prometheus_ca_file)


@contextmanager
def _certificate(options: argparse.Namespace, clock: Clock) -> Iterator[ServingCertificate]:
    """That of the flags, else one that is made for this run. Raises ServingCertificateError."""
    secure = SecureOptions(certificate=str(options.tls_cert_file or ""), key=str(options.tls_private_key_file or ""))
    with certificate_files(secure, clock.now()) as files:
        certificate = ServingCertificate(*files)
        certificate.reload()
        yield certificate


async def rotate(certificate: ServingCertificate, clock: Clock) -> NoReturn:
    """Serve the files as they are now: those of a mounted Secret change."""
    said = SaidOnce(logger)
    while True:
        await clock.sleep(_CERTIFICATE_SECONDS)
        with said.round():
            try:
                await certificate.reload_if_changed()
            except ServingCertificateError as error:
                said.say(f"the certificate of before is served on: {error}", about="certificate")


def _check(options: argparse.Namespace) -> None:
    """Raises UsageError for what does not go together."""
    if bool(options.tls_cert_file) != bool(options.tls_private_key_file):
        raise UsageError("--tls-cert-file and --tls-private-key-file come together")
    check_server("--prometheus", options.prometheus, "--prometheus-token-file", options.prometheus_token_file)
    named = [flag for flag in ("scheduler", "manager", "descheduler") if getattr(options, flag)]
    if options.sign_in and named:
        raise UsageError(
            f"--{named[0]}: a program that is asked at its address does not know who asks; with --sign-in, programs "
            "are found by their Leases"
        )
    if options.sign_in and options.state:
        raise UsageError("--state: a page with --sign-in gives no links")
    if not options.sign_in and options.bind_address not in ("127.0.0.1", "::1", "localhost"):
        raise UsageError(
            f"--bind-address: {options.bind_address!r} lets others reach this page, which shows what you may see; with "
            "--sign-in everybody shows a token of their own"
        )


def _cluster_options(options: argparse.Namespace) -> list[str]:
    """Those by which another command finds the same cluster."""
    named = {"--kubeconfig": options.kubeconfig, "--data": options.data, "--context": options.context}
    return [word for flag, value in named.items() if value for word in (flag, str(value))]


async def _record(feed: Feed, history: History, clock: Clock) -> NoReturn:
    """A sample every ten seconds, once the cluster has been read."""
    await feed.informers.wait_synced()
    said = SaidOnce(logger)
    while True:
        await clock.sleep(SAMPLE_SECONDS)
        with said.round():
            try:
                history.add(clock.now().timestamp(), sample_of(feed.classes()))
            except HistoryError as error:
                # A full disk takes the history, not the page.
                said.say(str(error))


async def _announce(link: str, options: argparse.Namespace, what: str) -> None:
    print(f"{what}: {link}", flush=True)
    # A browser for the terminal is waited for until it ends, and waits for the page.
    if not options.no_browser and not await asyncio.to_thread(webbrowser.open, link):
        print("No browser could be started here: open the link yourself.", file=sys.stderr, flush=True)
