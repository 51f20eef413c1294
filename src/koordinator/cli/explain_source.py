"""Finds the program to ask, and asks it."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import aiohttp

from koordinator.api.codec import DecodeError, decode_any
from koordinator.api.kinds import LEASES
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.cli.data_folder import MANAGER, SCHEDULER, address_of
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import ApiStatusError, KubeError

_SECONDS: Final = 15.0
_LEASE_FLAGS: Final = {SCHEDULER: "lease", MANAGER: "manager-lease"}


class NoAnswerError(KoordinatorError):
    """Nobody could be asked, or had nothing to say."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look for a program: at ``url``, by the Lease of a cluster, or in the data folder of a koord up."""

    url: str | None
    kubeconfig: Path | None
    lease: tuple[str, str]
    port: int
    data: Path
    program: str = SCHEDULER
    """``scheduler`` or ``manager``: also the flag that takes its URL."""
    flags: str = "--address=0.0.0.0 on port {port}"
    """What it has to be told for the API server to reach it."""


async def ask(place: Place, path: str) -> Any:
    """The JSON document at ``path`` of the program. Raises NoAnswerError."""
    if place.url is not None:
        return await _get(place, _checked(place), path)
    if place.kubeconfig is not None:
        return await _ask_leader(place, path)
    address = address_of(place.data, place.program)
    if address is None:
        raise NoAnswerError(
            f"no {place.program} found: {place.data} is not the folder of a running koord up; name its folder with "
            f"--data, a {place.program} with --{place.program}, or a cluster with --kubeconfig"
        )
    return await _get(place, address, path)


async def _ask_leader(place: Place, path: str) -> Any:
    client = await connect(ClientOptions(kubeconfig=str(place.kubeconfig), timeout_seconds=_SECONDS))
    try:
        host = await _leading_host(client, place)
        namespace = place.lease[0]
        proxied = f"/api/v1/namespaces/{namespace}/pods/{quote(host)}:{place.port}/proxy{quote(path)}"
        try:
            return decode_any(await client.raw("GET", proxied))
        except ApiStatusError as error:
            if not error.reason:
                # Passed on by the API server, whose own refusals all have one.
                raise NoAnswerError(_in_words(error.message)) from error
            if host == socket.gethostname():
                # Not in a pod, but on this very machine.
                return await _get(place, f"http://127.0.0.1:{place.port}", path)
            raise NoAnswerError(
                f"{host} leads, but could not be asked through the API server as a pod of {namespace}: {error}; "
                f"does it serve with {place.flags.format(port=place.port)}? Otherwise name it with --{place.program}"
            ) from error
    except KubeError as error:
        raise NoAnswerError(f"the cluster of {place.kubeconfig} cannot be asked: {error}") from error
    finally:
        await client.close()


async def _leading_host(client: KubeClient, place: Place) -> str:
    namespace, name = place.lease
    try:
        found = await client.get(LEASES, name, namespace)
    except ApiStatusError as error:
        if not error.is_not_found:
            raise
        raise NoAnswerError(
            f"there is no Lease {namespace}/{name}; name the {place.program}'s with --{_LEASE_FLAGS[place.program]}"
        ) from error
    if not found.spec.holder_identity:
        raise NoAnswerError(f"nobody holds the Lease {namespace}/{name}: no {place.program} runs")
    # As client-go's, ours is HOSTNAME_UUID, and a pod's host name is its name.
    return found.spec.holder_identity.rpartition("_")[0] or found.spec.holder_identity


async def _get(place: Place, address: str, path: str) -> Any:
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(address + quote(path)) as response:
            status, body = response.status, await response.read()
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        reason = str(error) or f"no answer within {_SECONDS:g} s"
        raise NoAnswerError(f"the {place.program} at {address} cannot be asked: {reason}") from error
    try:
        document = decode_any(body)
    except DecodeError as error:
        raise NoAnswerError(
            f"{address} answers {path} with status {status}; is that a koord-{place.program}?"
        ) from error
    if status != 200:
        raise NoAnswerError(str(document.get("message", status)) if isinstance(document, dict) else str(status))
    return document


def _in_words(answer: str) -> str:
    """What a scheduler says instead of an explanation."""
    try:
        document = decode_any(answer.encode())
    except DecodeError:
        return answer
    return str(document.get("message", answer)) if isinstance(document, dict) else answer


def _checked(place: Place) -> str:
    url = place.url or ""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigurationError(f"--{place.program}", url, "http://HOST:PORT is needed")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
