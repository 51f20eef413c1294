"""The way to a webhook: its address, the certificates it is trusted by, and what a failed connection means."""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import ipaddress
import os
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from koordinator.api.document import Document
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.admission_webhooks.configuration import ServiceReference
from koordinator.cluster.admission_webhooks.review import quoted
from koordinator.cluster.resource import Registry
from koordinator.cluster.storage.interface import Storage
from koordinator.cluster.verbs.target import Target, decode

# From a Service reference to an address.
#
# No network of Services exists in an embedded cluster: nothing routes a cluster IP. What the objects say is enough,
# though: the first ready address of an EndpointSlice or of the Endpoints object, which for a webhook on this machine is
# a loopback one.


_SERVICE_NAME: Final = "kubernetes.io/service-name"
_ROUTED: Final = ("ClusterIP", "NodePort", "LoadBalancer")


class ServiceError(KoordinatorError):
    """A Service that leads nowhere; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int


class ServiceResolver:
    """Reads Services and their endpoints anew for each call: a webhook that moves is found at once."""

    def __init__(self, storage: Storage, registry: Registry) -> None:
        self._storage = storage
        self._registry = registry

    def resolve(self, reference: ServiceReference) -> Address:
        """Raises ServiceError."""
        service = self._get("", "services", reference)
        if service is None:
            raise ServiceError(f"service {quoted(reference.name)} not found")
        spec = service["spec"]
        if spec.get("type") not in _ROUTED:
            raise ServiceError(f"unsupported service type {quoted(spec.get('type') or '')}")
        port_name = _port_name(spec, reference)
        for address in (*self._in_slices(reference, port_name), *self._in_endpoints(reference, port_name)):
            return address
        place = f"{reference.namespace}/{reference.name}"
        raise ServiceError(
            f"no endpoints available for service {quoted(reference.name)}: an embedded cluster routes no cluster IPs; "
            f"create Endpoints or an EndpointSlice for {place} with a loopback address"
        )

    def _get(self, group: str, plural: str, reference: ServiceReference) -> Document | None:
        resource = self._registry.stored[group, plural]
        assert resource is not None
        stored = self._storage.get(Target(resource, reference.namespace, reference.name).key)
        return None if stored is None else decode(resource, stored)

    def _in_slices(self, reference: ServiceReference, port_name: str) -> Iterator[Address]:
        resource = self._registry.stored["discovery.k8s.io", "endpointslices"]
        assert resource is not None
        for stored in self._storage.list(Target(resource, reference.namespace).prefix).items:
            found = decode(resource, stored)
            if (found["metadata"].get("labels") or {}).get(_SERVICE_NAME) != reference.name:
                continue
            endpoints = found.get("endpoints") or []
            ready = [e for e in endpoints if (e.get("conditions") or {}).get("ready") is not False]
            hosts = [endpoint["addresses"][0] for endpoint in ready if endpoint.get("addresses")]
            yield from _addresses(hosts, found.get("ports") or [], port_name)

    def _in_endpoints(self, reference: ServiceReference, port_name: str) -> Iterator[Address]:
        found = self._get("", "endpoints", reference) or {}
        for subset in found.get("subsets") or []:
            hosts = [address["ip"] for address in subset.get("addresses") or []]
            yield from _addresses(hosts, subset.get("ports") or [], port_name)


def _port_name(spec: Document, reference: ServiceReference) -> str:
    for port in spec.get("ports") or []:
        if port.get("port") == reference.port:
            return port.get("name") or ""
    raise ServiceError(f"no service port {reference.port} found for service {quoted(reference.name)}")


def _addresses(hosts: list[str], ports: list[dict[str, Any]], port_name: str) -> Iterator[Address]:
    numbers = [port["port"] for port in ports if (port.get("name") or "") == port_name and port.get("port")]
    return (Address(host, number) for number in numbers for host in hosts)


# TLS towards webhook servers: whom to trust, and whose certificate it was when a name does not fit.


_LOOK_SECONDS: Final = 2.0


class BundleError(KoordinatorError):
    """A ``caBundle`` that holds no certificates."""


@dataclass(frozen=True, slots=True)
class CertifiedNames:
    """What the certificate of a server is valid for."""

    addresses: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def client_context(authorities: str) -> ssl.SSLContext:
    """``authorities`` is base64 of PEM; without any those of this machine are trusted. Raises BundleError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not authorities:
        context.load_default_certs()
        return context
    # Like the real server: a certificate of the bundle is trusted for itself, whether it is an authority or not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=base64.b64decode(authorities).decode())
    except (ssl.SSLError, binascii.Error, UnicodeDecodeError) as error:
        raise BundleError("unable to load root certificates: unable to parse bytes as PEM block") from error
    return context


async def certified_names(host: str, port: int, authorities: str) -> CertifiedNames:
    """Of a server whose certificate did not fit: looks once more, for the message alone, and sends nothing."""
    context = client_context(authorities)
    context.check_hostname = False
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except OSError:
        return CertifiedNames()
    try:
        found = (writer.get_extra_info("peercert") or {}).get("subjectAltName", ())
    finally:
        writer.close()
    addresses = tuple(value for kind, value in found if kind == "IP Address")
    return CertifiedNames(addresses, tuple(value for kind, value in found if kind == "DNS"))


# Why a connection or a response failed, in the words of the real server's HTTP client.
#
# They are what a person searches the web for, and what the real server prints for the same fault.


_CERTIFICATE_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_NAME_MISMATCHES: Final = (62, 64)
"""Numbers of OpenSSL's verification errors (X509_V_ERR_…)."""
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_UNVERIFIED: Final = "tls: failed to verify certificate: x509"
DEADLINE: Final = "context deadline exceeded"


def explain(error: Exception) -> str:
    """One line for an exception of aiohttp, asyncio or ssl."""
    if isinstance(error, TimeoutError):
        return DEADLINE
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate(error.certificate_error)
    if isinstance(error, aiohttp.ClientSSLError):
        return _tls(error.os_error)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {error.host}: no such host"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"dial tcp {_joined(error.host, error.port or 0)}: connect: {_system(error.os_error)}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    if isinstance(error, OSError):
        return _system(error)
    return str(error) or type(error).__name__


def status_line(code: int, message: str) -> str:
    """What an HTTP status other than success means; ``message`` is the body where that is text."""
    if code >= 500 and code not in (503, 504):
        return f'an error on the server ("{message}") has prevented the request from succeeding'
    unknown = f"the server responded with the status code {code} but did not return more information"
    return _STATUS.get(code, message if code in (403, 406, 415) else unknown)


_STATUS: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


def wrong_name(server_name: str, addresses: Sequence[str], names: Sequence[str]) -> str:
    """A valid certificate of another server: the names that it is valid for, of the kind that was requested."""
    if _is_address(server_name):
        if not addresses:
            why = f"cannot validate certificate for {server_name} because it doesn't contain any IP SANs"
            return f"{_UNVERIFIED}: {why}"
        valid = addresses
    elif not names:
        return f"{_UNVERIFIED}: certificate is not valid for any names, but wanted to match {server_name}"
    else:
        valid = names
    return f"{_UNVERIFIED}: certificate is valid for {', '.join(valid)}, not {server_name}"


def is_wrong_name(error: Exception) -> bool:
    """Whether the certificate is good but for the name in it."""
    if not isinstance(error, aiohttp.ClientConnectorCertificateError):
        return False
    cause = error.certificate_error
    return isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_code in _NAME_MISMATCHES


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _certificate(error: Exception) -> str:
    code = error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else 0
    if code in (_CERTIFICATE_EXPIRED, _NOT_YET_VALID):
        why = "certificate has expired or is not yet valid"
    else:
        why = "certificate signed by unknown authority"
    return f"{_UNVERIFIED}: {why}"


def _tls(error: OSError) -> str:
    reason = getattr(error, "reason", None) or str(error)
    if any(mark in str(reason) for mark in _NO_TLS):
        return "http: server gave HTTP response to HTTPS client"
    return f"tls: {reason}"


def _system(error: OSError) -> str:
    if error.errno == errno.ECONNRESET:
        return "read: connection reset by peer"
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
