"""The Pod Security Standards: what ``baseline`` and ``restricted`` pods may not do, by the version of Kubernetes.

Each check finds all that is wrong of its kind, in the words of k8s.io/pod-security-admission.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache, partial
from typing import Final, NamedTuple

from koordinator.api.document import Document
from koordinator.cluster.strategy.causes import go_quoted

PRIVILEGED: Final = "privileged"
BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
LEVELS: Final = (PRIVILEGED, BASELINE, RESTRICTED)
"""From what permits all to what permits least."""


class Finding(NamedTuple):
    """What is wrong: ``reason`` is the same for all pods, ``detail`` names containers and values."""

    reason: str
    detail: str


Check = Callable[[Document, Document], Finding | None]
"""From annotations and spec of a pod, or of a template, to what is wrong."""


def findings(level: str, minor: int, annotations: Document, spec: Document) -> list[Finding]:
    """``minor`` is that of the version; newer ones than the newest that changed something are this one."""
    found = (check(annotations, spec) for check in _checks(level, min(minor, NEWEST)))
    return [each for each in found if each is not None]


# What the checks share.


def _containers(spec: Document) -> Iterator[Document]:
    for group in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(group) or ()


def _security(container: Document) -> Document:
    context: Document = container.get("securityContext") or {}
    return context


def _plural(word: str, things: Collection[str], plural: str = "") -> str:
    return word if len(things) == 1 else plural or f"{word}s"


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)


def _listed(names: Collection[str], word: str = "container") -> str:
    """``containers "a", "b"``"""
    return f"{_plural(word, names)} {_quoted(names)}"


def _names(spec: Document, is_bad: Callable[[Document], object]) -> list[str]:
    return [container["name"] for container in _containers(spec) if is_bad(container)]


def _setters(spec: Document, is_bad: Callable[[Document], object]) -> list[str]:
    """Who has a bad security context: the pod, and containers."""
    setters = ["pod"] if is_bad(_security(spec)) else []
    names = _names(spec, lambda container: is_bad(_security(container)))
    return [*setters, _listed(names)] if names else setters


def _used(spec: Document, values: Callable[[Document], Iterable[str]]) -> tuple[list[str], list[str]]:
    """The containers that have some of the values, and these."""
    found = {container["name"]: {*values(container)} for container in _containers(spec)}
    return [name for name, some in found.items() if some], sorted(set().union(*found.values()))


def _in_user_namespace(spec: Document) -> bool:
    return spec.get("hostUsers") is False


def _on_windows(spec: Document) -> bool:
    return bool((spec.get("os") or {}).get("name") == "windows")


def _unless(excused: Callable[[Document], bool], check: Check) -> Check:
    return lambda annotations, spec: None if excused(spec) else check(annotations, spec)


# Baseline.


_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"


def _app_armor(annotations: Document, spec: Document) -> Finding | None:
    values: set[str] = set()

    def is_bad(context: Document) -> bool:
        profile = context.get("appArmorProfile")
        if profile is None or profile.get("type") in ("RuntimeDefault", "Localhost"):
            return False
        values.add(profile.get("type") or "")
        return True

    setters = _setters(spec, is_bad)
    noted = sorted(
        f"{key}={go_quoted(value)}"
        for key, value in annotations.items()
        if key.startswith(_APP_ARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    )
    if noted:
        setters.append(_plural("annotation", noted))
    if not setters:
        return None
    bad = [*sorted(values), *noted]
    detail = f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(bad)}"
    return Finding(_plural("forbidden AppArmor profile", bad), detail)


_CAPABILITIES: Final = frozenset(
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
        "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip


def _added(spec: Document, allowed: Collection[str]) -> tuple[list[str], list[str]]:
    """The containers that add other capabilities, and these."""
    return _used(spec, lambda each: {*((_security(each).get("capabilities") or {}).get("add") or ())} - {*allowed})


def _capabilities(annotations: Document, spec: Document) -> Finding | None:
    names, bad = _added(spec, _CAPABILITIES)
    if not names:
        return None
    detail = f"{_listed(names)} must not include {_quoted(bad)} in securityContext.capabilities.add"
    return Finding("non-default capabilities", detail)


def _host_namespaces(annotations: Document, spec: Document) -> Finding | None:
    used = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    return Finding("host namespaces", ", ".join(used)) if used else None


def _host_paths(annotations: Document, spec: Document) -> Finding | None:
    names = [volume["name"] for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Finding("hostPath volumes", _listed(names, "volume")) if names else None


def _host_ports(annotations: Document, spec: Document) -> Finding | None:
    names, ports = _used(
        spec, lambda each: (str(port["hostPort"]) for port in each.get("ports") or () if port.get("hostPort"))
    )
    uses = f"{_plural('uses', names, 'use')} {_plural('hostPort', ports)} {', '.join(ports)}"
    return Finding("hostPort", f"{_listed(names)} {uses}") if names else None


def _hosts(container: Document) -> Iterator[str]:
    handlers = [container.get(name) or {} for name in ("livenessProbe", "readinessProbe", "startupProbe")]
    handlers += [(container.get("lifecycle") or {}).get(name) or {} for name in ("postStart", "preStop")]
    for handler in handlers:
        for action in ("httpGet", "tcpSocket"):
            if host := (handler.get(action) or {}).get("host"):
                yield host


def _probed_hosts(annotations: Document, spec: Document) -> Finding | None:
    found, hosts = _used(spec, _hosts)
    names = sorted(found)
    uses = f"{_plural('uses', names, 'use')} {_plural('probe or lifecycle host', hosts)} {_quoted(hosts)}"
    return Finding("probe or lifecycle host", f"{_listed(names)} {uses}") if names else None


def _privileged(annotations: Document, spec: Document) -> Finding | None:
    names = _names(spec, lambda container: _security(container).get("privileged"))
    detail = f"{_listed(names)} must not set securityContext.privileged=true"
    return Finding("privileged", detail) if names else None


def _proc_mount(annotations: Document, spec: Document) -> Finding | None:
    names, kinds = _used(spec, lambda each: {_security(each).get("procMount") or "Default"} - {"Default"})
    detail = f"{_listed(names)} must not set securityContext.procMount to {_quoted(kinds)}"
    return Finding("procMount", detail) if names else None


_SELINUX_TYPES: Final = ("", "container_t", "container_init_t", "container_kvm_t")


def _selinux(annotations: Document, spec: Document, *, types: Collection[str]) -> Finding | None:
    bad: set[str] = set()
    personal: set[str] = set()

    def is_bad(context: Document) -> bool:
        options = context.get("seLinuxOptions") or {}
        kind = options.get("type") or ""
        named = {name for name in ("user", "role") if options.get(name)}
        bad.update({kind} - {*types})
        personal.update(named)
        return bool(named) or kind not in types

    setters = _setters(spec, is_bad)
    if not setters:
        return None
    data = [_listed(sorted(bad), "type")] if bad else []
    data += [f"{name} may not be set" for name in ("user", "role") if name in personal]
    detail = f"{' and '.join(setters)} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}"
    return Finding("seLinuxOptions", detail)


_SECCOMP_OF_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_OF_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"


def _seccomp_annotations(annotations: Document, spec: Document) -> Finding | None:
    keys = (_SECCOMP_OF_POD, *(f"{_SECCOMP_OF_CONTAINER}{container['name']}" for container in _containers(spec)))
    bad = {
        f"{key}={go_quoted(value)}"
        for key in keys
        if (value := annotations.get(key)) is not None
        and value not in ("runtime/default", "docker/default")
        and not value.startswith("localhost/")
    }
    detail = f"forbidden {_plural('annotation', bad)} {', '.join(sorted(bad))}"
    return Finding("seccompProfile", detail) if bad else None


def _seccomp(annotations: Document, spec: Document) -> Finding | None:
    bad: set[str] = set()

    def is_bad(context: Document) -> bool:
        profile = context.get("seccompProfile")
        if profile is None or _is_confined(profile):
            return False
        bad.add(profile.get("type") or "")
        return True

    setters = _setters(spec, is_bad)
    if not setters:
        return None
    detail = f"{' and '.join(setters)} must not set securityContext.seccompProfile.type to {_quoted(sorted(bad))}"
    return Finding("seccompProfile", detail)


def _is_confined(profile: Document | None) -> bool:
    return profile is not None and profile.get("type") in ("RuntimeDefault", "Localhost")


_SINCE: Final = {
    0: (
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start",
    ),
    27: ("net.ipv4.ip_local_reserved_ports",),
    29: (
        "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
    ),
    32: ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
}  # fmt: skip
_SYSCTLS: Final = {
    minor: frozenset(name for since, names in _SINCE.items() if since <= minor for name in names) for minor in _SINCE
}
"""Minor version -> what is safe from that version on."""


def _sysctls(annotations: Document, spec: Document, *, safe: Collection[str]) -> Finding | None:
    names = [each["name"] for each in _security(spec).get("sysctls") or () if each["name"] not in safe]
    return Finding("forbidden sysctls", ", ".join(names)) if names else None


def _windows_host(annotations: Document, spec: Document) -> Finding | None:
    setters = _setters(spec, lambda context: (context.get("windowsOptions") or {}).get("hostProcess"))
    detail = f"{' and '.join(setters)} must not set securityContext.windowsOptions.hostProcess=true"
    return Finding("hostProcess", detail) if setters else None


# Restricted.


def _escalation(annotations: Document, spec: Document) -> Finding | None:
    names = _names(spec, lambda container: _security(container).get("allowPrivilegeEscalation") is not False)
    detail = f"{_listed(names)} must set securityContext.allowPrivilegeEscalation=false"
    return Finding("allowPrivilegeEscalation != false", detail) if names else None


def _few_capabilities(annotations: Document, spec: Document) -> Finding | None:
    def keeps(container: Document) -> bool:
        return "ALL" not in ((_security(container).get("capabilities") or {}).get("drop") or ())

    keeping, (adding, bad) = _names(spec, keeps), _added(spec, ("NET_BIND_SERVICE",))
    details = [f'{_listed(keeping)} must set securityContext.capabilities.drop=["ALL"]'] if keeping else []
    if adding:
        details.append(f"{_listed(adding)} must not include {_quoted(bad)} in securityContext.capabilities.add")
    return Finding("unrestricted capabilities", "; ".join(details)) if details else None


_VOLUMES: Final = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
)  # fmt: skip
_OTHER_VOLUMES: Final = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd",
    "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk",
    "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos",
)  # fmt: skip


def _volumes(annotations: Document, spec: Document) -> Finding | None:
    bad = {
        volume["name"]: next((kind for kind in _OTHER_VOLUMES if volume.get(kind) is not None), "unknown")
        for volume in spec.get("volumes") or ()
        if not any(volume.get(kind) is not None for kind in _VOLUMES)
    }
    kinds = sorted(set(bad.values()))
    uses = f"{_plural('uses', bad, 'use')} {_plural('restricted volume type', kinds)} {_quoted(kinds)}"
    return Finding("restricted volume types", f"{_listed(bad, 'volume')} {uses}") if bad else None


def _non_root(annotations: Document, spec: Document) -> Finding | None:
    reason = "runAsNonRoot != true"
    if setters := _setters(spec, lambda context: context.get("runAsNonRoot") is False):
        return Finding(reason, f"{' and '.join(setters)} must not set securityContext.runAsNonRoot=false")
    if _security(spec).get("runAsNonRoot"):
        return None
    names = _names(spec, lambda container: _security(container).get("runAsNonRoot") is None)
    detail = f"pod or {_listed(names)} must set securityContext.runAsNonRoot=true"
    return Finding(reason, detail) if names else None


def _user(annotations: Document, spec: Document) -> Finding | None:
    setters = _setters(spec, lambda context: context.get("runAsUser") == 0)
    return Finding("runAsUser=0", f"{' and '.join(setters)} must not set runAsUser=0") if setters else None


def _must_confine(annotations: Document, spec: Document) -> Finding | None:
    if (found := _seccomp(annotations, spec)) is not None or _is_confined(_security(spec).get("seccompProfile")):
        return found
    names = _names(spec, lambda container: _security(container).get("seccompProfile") is None)
    wanted = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Finding("seccompProfile", f"pod or {_listed(names)} {wanted}") if names else None


# Which checks make up a standard.


_BASELINE: Final[dict[str, dict[int, Check]]] = {
    "appArmorProfile": {0: _app_armor},
    "capabilities": {0: _capabilities},
    "hostNamespaces": {0: _host_namespaces},
    "hostPathVolumes": {0: _host_paths},
    "hostPorts": {0: _host_ports},
    "hostProbesAndHostLifecycle": {34: _probed_hosts},
    "privileged": {0: _privileged},
    "procMount": {0: _proc_mount, 35: _unless(_in_user_namespace, _proc_mount)},
    "seLinuxOptions": {
        0: partial(_selinux, types=_SELINUX_TYPES),
        31: partial(_selinux, types=(*_SELINUX_TYPES, "container_engine_t")),
    },
    "seccompProfile": {0: _seccomp_annotations, 19: _seccomp},
    "sysctls": {minor: partial(_sysctls, safe=safe) for minor, safe in _SYSCTLS.items()},
    "windowsHostProcess": {0: _windows_host},
}
"""Name of a check -> minor version -> the check from that version on."""
_RESTRICTED: Final[dict[str, dict[int, Check]]] = {
    "allowPrivilegeEscalation": {8: _escalation, 25: _unless(_on_windows, _escalation)},
    "capabilities": {22: _few_capabilities, 25: _unless(_on_windows, _few_capabilities)},
    "procMount": {35: _proc_mount},
    "hostPathVolumes": {0: _volumes},
    "runAsNonRoot": {0: _non_root, 35: _unless(_in_user_namespace, _non_root)},
    "runAsUser": {23: _user, 35: _unless(_in_user_namespace, _user)},
    "seccompProfile": {19: _must_confine, 25: _unless(_on_windows, _must_confine)},
}
"""The same; one takes the place of the baseline check of its name."""
NEWEST: Final = max(minor for checks in (_BASELINE, _RESTRICTED) for versions in checks.values() for minor in versions)


@lru_cache(maxsize=128)
def _checks(level: str, minor: int) -> tuple[Check, ...]:
    """In the order in which violations are listed."""
    if level == PRIVILEGED:
        return ()
    baseline, restricted = _current(_BASELINE, minor), _current(_RESTRICTED, minor)
    if level == BASELINE:
        return tuple(baseline.values())
    return (*(check for name, check in baseline.items() if name not in restricted), *restricted.values())


def _current(checks: dict[str, dict[int, Check]], minor: int) -> dict[str, Check]:
    known = {name: [check for since, check in versions.items() if since <= minor] for name, versions in checks.items()}
    return {name: versions[-1] for name, versions in known.items() if versions}
