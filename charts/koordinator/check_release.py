"""`helm test`: every program that is to lead does, the custom resources are served, and a koordlet has reported.

It runs in a pod with the rights to read just that, and needs nothing but Python: whatever image the release has.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_API: Final = os.environ["API"]
_ACCOUNT: Final = Path(os.environ["ACCOUNT"])
"""With the token and the authority, as a pod has them."""
_LEASES: Final = os.environ["LEASES"].split()
_RESOURCES: Final = os.environ["RESOURCES"].split()
"""As GROUP/VERSION/PLURAL."""
_DAEMON_SET: Final = os.environ["DAEMON_SET"]
"""NAMESPACE/NAME of koordlet, or nothing."""
_SECONDS: Final = float(os.environ["SECONDS"])
_PAUSE: Final = float(os.environ["PAUSE"])


def problems(seen: dict[str, str]) -> Iterator[str]:
    """What is not as it should be. ``seen`` has when each Lease was renewed, as it was first read: a Lease is held if
    that changes, which compares no clocks."""
    for lease in _LEASES:
        namespace, _, name = lease.partition("/")
        spec = read(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}").get("spec", {})
        if not spec.get("holderIdentity"):
            yield f"no replica holds the Lease {lease}"
        elif seen.setdefault(lease, spec.get("renewTime", "")) == spec.get("renewTime", ""):
            yield f"{spec['holderIdentity']} does not renew the Lease {lease}"
    for resource in _RESOURCES:
        version, _, plural = resource.rpartition("/")
        if plural not in {each["name"] for each in read(f"/apis/{version}").get("resources", [])}:
            yield f"{resource} is not served"
    if _DAEMON_SET and not has_reported():
        yield "koordlet runs, and no NodeMetric has a report"


def has_reported() -> bool:
    """Whether koordlet has, unless no pod of it is ready: where there is no node for it, or not yet."""
    namespace, _, name = _DAEMON_SET.partition("/")
    daemon_set = read(f"/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}")
    if not daemon_set.get("status", {}).get("numberReady"):
        return True
    metrics = read("/apis/slo.koordinator.sh/v1alpha1/nodemetrics?limit=500").get("items", [])
    return any(each.get("status", {}).get("updateTime") for each in metrics)


def read(path: str) -> dict[str, Any]:
    """The document, or an empty one where there is none."""
    headers = {"Authorization": f"Bearer {(_ACCOUNT / 'token').read_text().strip()}"}
    tls = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt")) if _API.startswith("https:") else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    try:
        request = urllib.request.Request(_API + path, headers=headers)  # noqa: S310 - the chart says where it is
        with opener.open(request, timeout=10) as response:
            document: dict[str, Any] = json.load(response)
            return document
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return {}


def main() -> int:
    """Until all is well, or for as long as it may take: a koordlet reports once a minute."""
    seen: dict[str, str] = {}
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            found = list(problems(seen))
        except OSError as error:
            found = [f"{_API}: {error}"]
        if not found or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE)
    print("\n".join(found) or "the release works")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
