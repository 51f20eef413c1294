"""What a cluster lacks for a program to do its work: said in one sentence with what puts it right, once, until it is
there.

A kind that is not installed, a namespace that does not exist, a role that is not granted: the server returns the same
failure for each request until an administrator acts. It is logged with the remedy when it begins, and again when it is
over; not for every retry in between.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from koordinator.api.kinds import Kind
from koordinator.kube.errors import ApiStatusError

logger = logging.getLogger(__name__)

INSTALL: Final = "koord manifests | kubectl apply -f -"
"""The command that installs everything that the programs need in a cluster."""
_REMEDY: Final = re.compile(r": (install|create|grant) it with: .*$")
_BY_ROLES: Final = re.compile('User ".*" cannot ')
_INSTALLED_GROUPS: Final = ("scheduling.sigs.k8s.io", "topology.node.k8s.io")
_INSTALLED_NAMESPACE: Final = "koordinator-system"


class Lack:
    """What is lacking for one thing that is tried again and again; the empty text is nothing."""

    def __init__(self, for_what: str) -> None:
        self._for_what = for_what
        self.text = ""
        self._verb = ""

    def found(self, text: str, verb: str = "") -> None:
        """An attempt (to do ``verb``) failed for what ``text`` says: logged if that is news."""
        self._verb = verb
        if text != self.text:
            self.text = text
            logger.warning("%s", text)

    def is_over(self, verb: str = "") -> None:
        """The same attempt has succeeded: logged if something was lacking."""
        if self.text and verb == self._verb:
            self.text = ""
            logger.info("%s: nothing is lacking any more", self._for_what)


def lack_for_kind(error: ApiStatusError, kind: Kind[Any], verb: str) -> str:
    """What a response to a list or watch of all objects of ``kind`` says to be lacking; empty for another failure."""
    name = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    if error.is_not_found:
        if not _is_ours(kind.group):
            return f"the cluster does not serve {name} ({kind.api_version})"
        return f"the cluster has no CustomResourceDefinition {name}: install it with: {INSTALL}"
    if error.is_forbidden:
        return _forbidden(error, f"{verb} {name}")
    return ""


def without_remedy(lack: str) -> str:
    """What is lacking, for those who can do nothing about it."""
    return _REMEDY.sub("", lack)


def lack_for_lease(error: ApiStatusError, namespace: str, name: str) -> str:
    """What a response to a request for a Lease says to be lacking; empty for another failure."""
    if error.is_not_found and (error.details.kind == "namespaces" or error.message.startswith("namespaces ")):
        remedy = INSTALL if namespace == _INSTALLED_NAMESPACE else f"kubectl create namespace {namespace}"
        return f"namespace {namespace}, in which lease {name} is to be kept, does not exist: create it with: {remedy}"
    if error.is_forbidden:
        return _forbidden(error, f"use lease {namespace}/{name}")
    return ""


def lack_for_write(error: ApiStatusError, what: str) -> str:
    """What a response to the attempt to do ``what`` says to be lacking; empty for another failure. Admission says no
    with the same code, but to one object."""
    return _forbidden(error, what) if error.is_forbidden and _BY_ROLES.search(error.message) else ""


def _forbidden(error: ApiStatusError, what: str) -> str:
    """The server says who may not do what, and what for."""
    reason = error.message.rstrip(".") or f"this program is not allowed to {what}"
    return f"{reason}: grant it with: {INSTALL}"


def _is_ours(group: str) -> bool:
    return group.endswith(".koordinator.sh") or group in _INSTALLED_GROUPS
