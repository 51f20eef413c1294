"""Finds the program to query, and queries it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from yarl import URL

from koordinator.api.codec import DecodeError, decode_any, encode
from koordinator.api.kinds import LEASES, SERVICE_ACCOUNTS
from koordinator.api.reviews import AUDIENCE, TOKEN_HEADER
from koordinator.base.errors import ConfigurationError
from koordinator.cli.data_folder import DESCHEDULER, MANAGER, SCHEDULER, address_of
from koordinator.cli.explain_failure import ExplainError, UnknownToProgramError, connection_reason, explain_error
from koordinator.cli.session import Session
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions
from koordinator.kube.errors import ApiStatusError, KubeError

SECONDS: Final = 15.0
ACCOUNT: Final = "koord-explain"
"""The ServiceAccount in whose name programs of a cluster are queried: who may have its token may query them."""
_TOKEN_SECONDS: Final = 600
"""The shortest life that the API server gives a token."""
_PLAIN_PORTS: Final = {SCHEDULER: 10251, MANAGER: 8080, DESCHEDULER: 10251}
"""Where programs serve whoever is on their machine, or in their pod."""
_NOT_ADMITTED: Final = (401, 403, 429, 503)
"""How a secure port refuses, in plain text."""
_LEASE_FLAGS: Final = {SCHEDULER: "lease", MANAGER: "manager-lease", DESCHEDULER: "descheduler-lease"}


@dataclass(frozen=True, slots=True)
class ProgramEndpoint:
    """Where to look for a program: at ``url``, by the Lease of a cluster, or in the data folder of a koord up."""

    url: str | None
    client: ClientOptions | None
    """How the API server of the cluster is reached; None for a koord up."""
    lease: tuple[str, str]
    port: int
    data: Path
    program: str = SCHEDULER
    """``scheduler``, ``manager`` or ``descheduler``: also the flag that takes its URL."""
    cluster: str = "the cluster"
    """What messages call it."""
    seconds: float = SECONDS
    """How long to wait for a response."""


def endpoint_of(
    program: str, scheduler: ProgramEndpoint, url: str | None, lease: tuple[str, str], port: int
) -> ProgramEndpoint:
    """Where another program is looked for: as the scheduler is, unless its URL is given."""
    return replace(
        scheduler,
        url=url,
        client=None if url else scheduler.client,
        lease=lease,
        port=port,
        program=program,
    )


async def fetch(session: Session, endpoint: ProgramEndpoint, path: str, query: Mapping[str, str] | None = None) -> Any:
    """The JSON document at ``path`` of the program. Raises ExplainError; UnknownToProgramError when the program has
    responded that it does not know the object."""
    body = await fetch_body(session, endpoint, path, query)
    try:
        return decode_any(body)
    except DecodeError as error:
        raise ExplainError(
            f"what the {endpoint.program} answers to {path} is not JSON; is that a koord-{endpoint.program}?"
        ) from error


async def fetch_body(
    session: Session, endpoint: ProgramEndpoint, path: str, query: Mapping[str, str] | None = None
) -> bytes:
    """The same as it was sent, for pages that are no JSON."""
    target = quote(path) + (f"?{urlencode(query)}" if query else "")
    if endpoint.url is not None:
        return await _get(session, endpoint, _checked(endpoint), target)
    if endpoint.client is not None:
        return await _fetch_from_leader(session, endpoint, endpoint.client, target)
    address = address_of(endpoint.data, endpoint.program)
    if address is None:
        raise ExplainError(
            f"no {endpoint.program} found: no koord up runs on the folder {endpoint.data} (koord up --data "
            f"{endpoint.data} starts one); --data names another folder, --{endpoint.program} a {endpoint.program}, "
            "--kubeconfig a cluster"
        )
    return await _get(session, endpoint, address, target)


async def _fetch_from_leader(session: Session, endpoint: ProgramEndpoint, options: ClientOptions, target: str) -> bytes:
    try:
        client = await session.client(options)
        host = session.leaders.get(endpoint.lease) or await _leading_host(client, endpoint)
        session.leaders[endpoint.lease] = host
        namespace = endpoint.lease[0]
        asked_by = await _with_token(session, client, options, namespace)
        proxied = f"/api/v1/namespaces/{namespace}/pods/https:{quote(host)}:{endpoint.port}/proxy{target}"
        try:
            return await (await session.client(asked_by)).raw("GET", proxied)
        except ApiStatusError as error:
            if not error.reason:
                # Passed on by the API server, whose own refusals all have one.
                raise _refusal(error.code, _in_words(error.message)) from error
            if host == socket.gethostname():
                # Not in a pod, but on this very machine.
                return await _get(
                    session, endpoint, f"https://127.0.0.1:{endpoint.port}", target, dict(asked_by.headers)
                )
            if error.is_forbidden:
                raise
            raise ExplainError(
                f"{host} leads, but could not be queried through the API server as a pod of {namespace}: {error}; "
                f"let it serve with --secure-port={endpoint.port} --bind-address=::, or name it with "
                f"--{endpoint.program}=http://127.0.0.1:{_PLAIN_PORTS[endpoint.program]} after kubectl port-forward -n "
                f"{namespace} pod/{host} {_PLAIN_PORTS[endpoint.program]}"
            ) from error
    except KubeError as error:
        raise explain_error(error, endpoint.cluster, options.timeout_seconds) from error


async def _with_token(session: Session, client: KubeClient, options: ClientOptions, namespace: str) -> ClientOptions:
    """To query programs by: with a token that is good for them alone. The user's own stays with the API server."""
    found, until = session.tokens.get(namespace, (options, 0.0))
    if monotonic() >= until:
        body = encode({"spec": {"audiences": [AUDIENCE], "expirationSeconds": _TOKEN_SECONDS}})
        try:
            document = decode_any(await client.raw("POST", SERVICE_ACCOUNTS.path(namespace, ACCOUNT, "token"), body))
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            raise ExplainError(
                f"there is no ServiceAccount {namespace}/{ACCOUNT}, in whose name the programs are queried: koord "
                "manifests has it"
            ) from error
        found = replace(options, headers=((TOKEN_HEADER, document["status"]["token"]),))
        session.tokens[namespace] = found, monotonic() + _TOKEN_SECONDS / 2
    return found


async def _leading_host(client: KubeClient, endpoint: ProgramEndpoint) -> str:
    namespace, name = endpoint.lease
    try:
        found = await client.get(LEASES, name, namespace)
    except ApiStatusError as error:
        if not error.is_not_found:
            raise
        raise ExplainError(
            f"there is no Lease {namespace}/{name} in {endpoint.cluster}: no {endpoint.program} runs there, or its "
            f"Lease has another name (--{_LEASE_FLAGS[endpoint.program]})"
        ) from error
    if not found.spec.holder_identity:
        raise ExplainError(
            f"no replica holds the Lease {namespace}/{name} of {endpoint.cluster}: no {endpoint.program} runs there"
        )
    # As client-go's, ours is HOSTNAME_UUID, and a pod's host name is its name.
    return found.spec.holder_identity.rpartition("_")[0] or found.spec.holder_identity


async def _get(
    session: Session, endpoint: ProgramEndpoint, address: str, target: str, headers: Mapping[str, str] | None = None
) -> bytes:
    """``headers`` are for a program on this very machine, which makes its certificate for itself."""
    timeout = aiohttp.ClientTimeout(total=endpoint.seconds)
    try:
        http = await session.http()
        url, verified = URL(address + target, encoded=True), headers is None
        async with http.get(url, timeout=timeout, headers=headers, ssl=verified) as response:
            status, body = response.status, await response.read()
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
        # ValueError: an address that only turns out to be none when it is used, such as a port above 65535.
        reason = connection_reason(error) or str(error) or f"no response within {endpoint.seconds:g} s"
        raise ExplainError(f"the {endpoint.program} at {address} cannot be queried: {reason}") from error
    if status == 200:
        return body
    try:
        document = decode_any(body)
    except DecodeError as error:
        if status in _NOT_ADMITTED:
            raise _refusal(status, body.decode("utf-8", "replace").strip()) from error
        raise ExplainError(
            f"{address} answers {target} with status {status}; is that a koord-{endpoint.program}?"
        ) from error
    raise _refusal(status, str(document.get("message", status)) if isinstance(document, dict) else str(status))


def _refusal(status: int, message: str) -> ExplainError:
    return UnknownToProgramError(message) if status == 404 else ExplainError(message)


def _in_words(response: str) -> str:
    """What a scheduler says instead of an explanation."""
    try:
        document = decode_any(response.encode())
    except DecodeError:
        return response
    return str(document.get("message", response)) if isinstance(document, dict) else response


def _checked(endpoint: ProgramEndpoint) -> str:
    url = endpoint.url or ""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(f"--{endpoint.program}", url, "http://HOST:PORT is needed")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
