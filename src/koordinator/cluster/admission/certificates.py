"""Plugins of certificate requests: who may approve and sign them, and that nobody becomes a master by one."""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from koordinator.cluster.access.authorizer import Authorizer
from koordinator.cluster.access.identity import MASTERS
from koordinator.cluster.access.rules import AccessRequest
from koordinator.cluster.admission.chain import Plugin, refused
from koordinator.cluster.strategy.causes import go_quoted
from koordinator.cluster.strategy.certificate_request import GROUP, parsed_request
from koordinator.cluster.verbs.environment import Attributes

_REQUESTS: Final = ((GROUP, "certificatesigningrequests"),)
_CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"


class CertificateSubjectRestriction(Plugin):
    """The signer of clients makes no member of the group that may do everything."""

    name = "CertificateSubjectRestriction"
    resources = _REQUESTS

    async def validate(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        spec = attributes.obj["spec"]
        if spec.get("signerName") != _CLIENT_SIGNER:
            return
        request = parsed_request(spec.get("request") or "")
        assert isinstance(request, x509.CertificateSigningRequest), "was validated before"
        if any(each.value == MASTERS for each in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)):
            raise refused(attributes, f"use of {_CLIENT_SIGNER} signer with {MASTERS} group is not allowed")


class _OfSigners(Plugin):
    """Permission to ``verb`` the signer that a request names, or all signers of its domain."""

    resources = _REQUESTS
    operations = ("UPDATE",)
    verb: str

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def validate(self, attributes: Attributes) -> None:
        """Raises ApiError 403. The signer is that of the stored request: an update cannot change it."""
        assert attributes.old is not None
        signer = attributes.old["spec"].get("signerName") or ""
        names = (signer, f"{signer.partition('/')[0]}/*")
        requests = (AccessRequest(self.verb, GROUP, "signers", name=name) for name in names)
        user = attributes.request.user
        if not any(self._authorizer.decide(user, request).allowed for request in requests):
            raise refused(attributes, f"user not permitted to {self.verb} requests with signerName {go_quoted(signer)}")


class CertificateApproval(_OfSigners):
    name = "CertificateApproval"
    subresources = ("approval",)
    verb = "approve"


class CertificateSigning(_OfSigners):
    name = "CertificateSigning"
    subresources = ("status",)
    verb = "sign"

    async def validate(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        assert attributes.old is not None
        new, old = attributes.obj["status"], attributes.old["status"]
        if any(new.get(name) != old.get(name) for name in ("certificate", "conditions")):
            await super().validate(attributes)
