"""Where a webhook is reached, as its configuration says: exactly one of a URL and a Service."""

from __future__ import annotations

from urllib.parse import urlsplit

from koordinator.api.document import Document
from koordinator.api.names import dns_subdomain
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid, required

_FORM = "; desired format: https://host[/path]"


def validate_client(client: Document, field: str) -> list[Cause]:
    """What is wrong with a ``clientConfig``."""
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [required(field, "exactly one of url or service is required")]
    if url is not None:
        return _validate_url(url, f"{field}.url")
    return _validate_service(service or {}, f"{field}.service")


def _validate_url(url: str, field: str) -> list[Cause]:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - only asked for its error
    except ValueError as error:
        return [required(field, f'url must be a valid URL: parse "{url}": {error}{_FORM}')]
    user, at, host = parts.netloc.rpartition("@")
    causes = []
    if parts.scheme != "https":
        causes.append(invalid(field, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    if not host:
        causes.append(invalid(field, "", f"host must be specified{_FORM}"))
    if at:
        causes.append(invalid(field, user, "user information is not permitted in the URL"))
    if parts.fragment:
        causes.append(invalid(field, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        causes.append(invalid(field, parts.query, "query parameters are not permitted in the URL"))
    return causes


def _validate_service(service: Document, field: str) -> list[Cause]:
    # The real server takes these two for each other, and clients that look at the field have to be told the same.
    swapped = (("namespace", "name"), ("name", "namespace"))
    causes = [required(f"{field}.{named}") for empty, named in swapped if not service.get(empty)]
    port = service.get("port")
    if port is not None and not 1 <= port <= 65535:
        detail = "port is not valid: must be between 1 and 65535, inclusive"
        causes.append(invalid(f"{field}.port", port, detail))
    path = service.get("path")
    return causes + (_validate_path(path, f"{field}.path") if path not in (None, "", "/") else [])


def _validate_path(path: str, field: str) -> list[Cause]:
    if path == "//":
        return [invalid(field, path, "segment[0] may not be empty")]
    causes = [] if path.startswith("/") else [invalid(field, path, "must start with a '/'")]
    for index, segment in enumerate(path[1:].removesuffix("/").split("/")):
        complaints = dns_subdomain(segment) if segment else []
        causes += [invalid(field, path, f"segment[{index}]: {complaint}") for complaint in complaints]
        if not segment:
            causes.append(invalid(field, path, f"segment[{index}] may not be empty"))
    return causes
