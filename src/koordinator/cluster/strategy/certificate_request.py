"""CertificateSigningRequests: the server says who asks; approval and status change what is theirs alone."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from koordinator.api.document import Document, same
from koordinator.api.names import NameCheck, dns_label, dns_subdomain
from koordinator.api.timestamps import format_time
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy.causes import duplicate, forbidden, go_quoted, invalid, not_supported, required
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.table import AGE, NAME, NONE, computed, human_duration, table, text

_REQUESTER: Final = ("username", "uid", "groups", "extra")
GROUP: Final = "certificates.k8s.io"
_DECIDED: Final = ("Approved", "Denied")
_DECISIONS: Final = (*_DECIDED, "Failed")
_LEAST_SECONDS: Final = 600
_USAGES: Final = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
    "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
    "server auth", "signing", "timestamping",
)  # fmt: skip


def _duration(obj: Document) -> str:
    seconds = obj["spec"].get("expirationSeconds")
    return NONE if seconds is None else human_duration(timedelta(seconds=seconds))


def _condition(obj: Document) -> str:
    status = obj.get("status") or {}
    found = {condition.get("type") for condition in status.get("conditions") or []}
    texts = [decision for decision in _DECISIONS if decision in found] or ["Pending"]
    return ",".join([*texts, "Issued"] if status.get("certificate") else texts)


_TABLE: Final = table(
    NAME,
    AGE,
    text("SignerName", "spec.signerName", absent=NONE),
    text("Requestor", "spec.username"),
    computed("RequestedDuration", _duration),
    computed("Condition", _condition),
)


class CertificateRequestStrategy(ObjectStrategy):
    """The spec never changes after the creation."""

    def __init__(self) -> None:
        super().__init__(
            "certificates.k8s.io/v1",
            "CertificateSigningRequest",
            namespaced=False,
            status=True,
            table=_TABLE,
            field_labels={"spec.signerName": lambda obj: obj["spec"].get("signerName") or ""},
        )

    def initialize(self, obj: Document, context: RequestContext) -> None:
        spec = obj["spec"]
        for name in _REQUESTER:
            spec.pop(name, None)
        spec |= context.user.document()

    def carry_over(self, obj: Document, old: Document, context: RequestContext) -> None:
        obj["spec"] = old["spec"]

    def prepare_status_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        super().prepare_status_update(obj, old, context)
        _set_times(obj, old, context.now)

    def approve(self, obj: Document, old: Document, context: RequestContext) -> None:
        """Takes over the conditions, and nothing else in the status."""
        conditions = obj["status"].get("conditions")
        obj["status"] = {name: value for name, value in old["status"].items() if name != "conditions"}
        if conditions:
            obj["status"]["conditions"] = conditions
        self.prepare_status_update(obj, old, context)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        causes = [] if old is not None else _check_spec(obj["spec"])
        causes += _check_conditions(obj["status"].get("conditions") or ())
        return causes if old is None else causes + _check_removals(obj["status"], old["status"])

    def validate_status(self, obj: Document, old: Document) -> list[Cause]:
        causes, new, before = super().validate_status(obj, old), obj["status"], old["status"]
        for kind in _DECIDED:
            found, known = _of_kind(new, kind), _of_kind(before, kind)
            if len(found) > len(known):
                causes.append(forbidden(_CONDITIONS, f'updates may not add a condition of type "{kind}"'))
            elif len(found) == len(known) and not same(found, known):
                causes.append(forbidden(_CONDITIONS, f'updates may not modify a condition of type "{kind}"'))
        if new.get("certificate") == before.get("certificate"):
            return causes
        if before.get("certificate"):
            causes.append(forbidden("status.certificate", "updates may not modify existing certificate content"))
        return causes + _check_certificate(new.get("certificate") or "")


def parsed_request(encoded: str) -> x509.CertificateSigningRequest | str:
    """The request in a ``spec.request``, else what is wrong with it."""
    try:
        pem = base64.b64decode(encoded, validate=True)
    except ValueError:
        pem = b""
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in pem:
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        request = x509.load_pem_x509_csr(pem)
        # The library parses it only when it is asked for.
        _ = request.subject
    except (ValueError, x509.InvalidVersion) as error:
        return str(error)
    return request


def _check_spec(spec: Document) -> list[Cause]:
    encoded, usages, seconds = spec.get("request") or "", spec.get("usages") or [], spec.get("expirationSeconds")
    request, signer = parsed_request(encoded), spec.get("signerName") or ""
    causes = [invalid("spec.request", encoded, request)] if isinstance(request, str) else []
    causes += [] if usages else [required("spec.usages")]
    causes += [
        not_supported(f"spec.usages[{index}]", usage, _USAGES)
        for index, usage in enumerate(usages)
        if usage not in _USAGES
    ]
    causes += [
        duplicate(f"spec.usages[{index}]", usage) for index, usage in enumerate(usages) if usage in usages[:index]
    ]
    causes += _check_signer(signer)
    if seconds is not None and seconds < _LEAST_SECONDS:
        detail = "may not specify a duration less than 600 seconds (10 minutes)"
        causes.append(invalid("spec.expirationSeconds", seconds, detail))
    return causes


def _check_signer(name: str, field: str = "spec.signerName") -> list[Cause]:
    if not name:
        return [required(field)]
    if name == "kubernetes.io/legacy-unknown":
        return [invalid(field, name, "the legacy signerName is not allowed via this API version")]
    domain, slash, path = name.partition("/")
    if not slash or "/" in path:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid(field, name, detail)]
    labels = domain.split(".")
    causes = _check_labels(labels, dns_label, field, domain)
    if len(labels) < 2:
        causes.append(invalid(field, domain, "should be a domain with at least two segments separated by dots"))
    return causes + _check_labels(path.split("."), dns_subdomain, field, path)


def _check_labels(labels: Sequence[str], check: NameCheck, field: str, whole: str) -> list[Cause]:
    """What is wrong with the first one that is wrong."""
    wrong = ((label, check(label)) for label in labels)
    label, details = next(((label, details) for label, details in wrong if details), ("", []))
    return [invalid(field, whole, f"validating label {go_quoted(label)}: {detail}") for detail in details]


_CONDITIONS: Final = "status.conditions"


def _of_kind(status: Document, kind: str) -> list[Document]:
    return [condition for condition in status.get("conditions") or () if condition.get("type") == kind]


def _check_conditions(conditions: Sequence[Document]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        kind, status, at = condition.get("type") or "", condition.get("status") or "", f"{_CONDITIONS}[{index}]"
        allowed = ("True",) if kind in _DECISIONS else ("False", "True", "Unknown")
        causes += [] if kind else [required(f"{at}.type")]
        if not status:
            causes.append(required(f"{at}.status"))
        elif status not in allowed:
            causes.append(not_supported(f"{at}.status", status, allowed))
        if kind in _DECIDED and seen & {*_DECIDED} - {kind}:
            causes.append(invalid(_CONDITIONS, kind, "Approved and Denied conditions are mutually exclusive"))
        if kind in seen:
            causes.append(duplicate(f"{at}.type", kind))
        seen.add(kind)
    return causes


def _check_removals(status: Document, before: Document) -> list[Cause]:
    return [
        forbidden(_CONDITIONS, f'updates may not remove a condition of type "{kind}"')
        for kind in _DECISIONS
        if len(_of_kind(status, kind)) < len(_of_kind(before, kind))
    ]


def _check_certificate(encoded: str) -> list[Cause]:
    try:
        found = x509.load_pem_x509_certificates(base64.b64decode(encoded))
    except (ValueError, x509.InvalidVersion):
        found = []
    detail = "must contain at least one CERTIFICATE PEM block"
    return [] if found else [invalid("status.certificate", "<certificate data>", detail)]


def _set_times(obj: Document, old: Document, now: datetime) -> None:
    """When a condition was written, and when its status has changed, unless its author says so."""
    before = {each.get("type"): each for each in (old.get("status") or {}).get("conditions") or []}
    for condition in obj["status"].get("conditions") or []:
        known = before.get(condition.get("type")) or {}
        same = known.get("status") == condition.get("status")
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = format_time(now)
        if not condition.get("lastTransitionTime"):
            since = known.get("lastTransitionTime") if same else None
            condition["lastTransitionTime"] = since or format_time(now)
