"""``koord manifests``: everything that a real cluster needs, for ``kubectl apply``."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path
from typing import Final

from koordinator.api.installation import NAMESPACE
from koordinator.api.manifests.definitions import DEFINITIONS
from koordinator.api.manifests.installation import (
    KUSTOMIZATION,
    OPTIONAL_PARTS,
    PARTS,
    PROGRAM,
    Installation,
    deletion_order,
    kustomization,
    manifest_files,
)
from koordinator.api.names import dns_label
from koordinator.base.errors import KoordinatorError
from koordinator.base.spelling import did_you_mean

_DESCRIPTION: Final = f"""\
Print what a real cluster needs before the programs run in it, and the Deployments and DaemonSets that run them, in an
order that `kubectl apply -f -` takes at once on an empty cluster, and again at any time; or write the same into a
folder, for `kubectl apply -k DIR` and overlays of your own.

parts, in their order:
  namespace         {NAMESPACE}, or that of --namespace
  crd               CustomResourceDefinitions of the {len(DEFINITIONS)} kinds
  priority-classes  koord-prod, koord-mid, koord-batch, koord-free
  rbac              service accounts, and what the programs may do
  config-maps       slo-controller-config (what nodes lend) and koord-scheduler-config
  webhook           the Service and the webhook configurations; koord-manager switches them on when it serves them
  scheduler         Deployment and PodDisruptionBudget of koord-scheduler
  manager           Deployment and PodDisruptionBudget of koord-manager
  descheduler       Deployment and PodDisruptionBudget of koord-descheduler
  koordlet          DaemonSet of koordlet: privileged, on every node
  device-daemon     DaemonSet of koord-device-daemon, for accelerators other than NVIDIA's; privileged, on every node

parts that are only printed when --only names them:
  recommender       what koord-manager needs for the feature gate Recommender: among other things, it may write
                    ConfigMaps in every namespace
  feature-gates     what koord-manager needs for the gate ColocationProfileController and for
                    --quota-update-conflict-fresh-get: to write pods in every namespace
  koordlet-confinement  a policy by which each koordlet writes of its own node alone; Kubernetes 1.30 or newer
  network-policies  who may connect to the programs, and to whom these may; only where the ports of API servers are
                    443 and 6443, and for networks that enforce it
"""
EXAMPLES: Final = """\
examples:
  koord manifests | kubectl apply -f -
      Install everything; --image says where the nodes find the programs.
  koord manifests --without scheduler,manager,descheduler,koordlet,device-daemon | kubectl apply -f -
      All but Deployments and DaemonSets: the programs run elsewhere, with a kubeconfig.
  koord manifests --only recommender | kubectl apply -f -
      Permit koord-manager to run the recommender (docs/manager.md).
  koord manifests --only network-policies | kubectl apply -f -
      Refuse all connections that the programs do not need (docs/helm.md).
  koord manifests --only crd,rbac | kubectl diff -f -
      What an upgrade would change in two of the parts.
  koord manifests --namespace colocation --image registry.example/{program}:0.2.0 --replicas 3
      Elsewhere, from a registry of your own, with three replicas of each Deployment.
  koord manifests deploy && kubectl apply -k deploy
      By way of a folder that you can keep and change.
  koord manifests --without namespace,crd --for-deletion | kubectl delete --ignore-not-found -f -
      Uninstall, but keep the custom resources. docs/install.md says what to do before.
"""
_IMAGE: Final = re.compile(rf"([A-Za-z0-9]|{PROGRAM})([A-Za-z0-9._/:@-]|{PROGRAM})*")
_MOST_REPLICAS: Final = 100


class FolderError(KoordinatorError):
    """The folder cannot be written, or writing would replace files that the user may have changed."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "manifests",
        help="print what a real cluster needs, for kubectl apply",
        description=_DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "directory", type=Path, nargs="?", metavar="DIR", help=f"write files and {KUSTOMIZATION} here instead"
    )
    parser.add_argument("--force", action="store_true", help="with DIR: replace files that differ")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--only", type=_parts, metavar="PART,…", default=PARTS, help="these parts and no others")
    chosen.add_argument("--without", type=_parts, metavar="PART,…", default=(), help="all parts but these")
    default = Installation()
    parser.add_argument(
        "--namespace", type=_namespace, metavar="NAME", default=default.namespace, help="default: %(default)s"
    )
    parser.add_argument(
        "--image",
        type=_image,
        default=default.image,
        help=f"the images of the programs, with {PROGRAM} for the name of each, or one image for all of them; none is "
        "published, the default is what `make images` builds (%(default)s)",
    )
    parser.add_argument(
        "--replicas", type=_replicas, metavar="N", default=default.replicas, help="of each Deployment (%(default)s)"
    )
    parser.add_argument(
        "--webhook-failure-policy",
        choices=("Ignore", "Fail"),
        default=default.failure_policy,
        help="while no koord-manager serves them, create pods and quotas as they are (Ignore, the default), or refuse "
        "them (Fail)",
    )
    parser.add_argument(
        "--for-deletion", action="store_true", help="print in the order of `kubectl delete`: webhooks first"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print or write. Raises FolderError."""
    installation = Installation(
        namespace=options.namespace,
        image=options.image,
        replicas=options.replicas,
        failure_policy=options.webhook_failure_policy,
    )
    files = manifest_files(installation, [part for part in options.only if part not in options.without])
    if options.directory is not None:
        _write(options.directory, {**files, KUSTOMIZATION: kustomization(files)}, options.force)
        return 0
    if options.for_deletion:
        files = deletion_order(files)
    sys.stdout.write("---\n".join(files.values()))
    return 0


def _write(folder: Path, files: dict[str, str], force: bool) -> None:
    try:
        changed = [name for name, text in files.items() if _differs(folder / name, text)]
        if changed and not force:
            raise FolderError(
                f"{folder / changed[0]} is there already and differs ({len(changed)} such files): "
                "--force replaces them, or name another folder"
            )
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    except OSError as error:
        raise FolderError(f"cannot write to {folder}: {error}") from error
    print(f"wrote {len(files)} files; apply them with: kubectl apply -k {shlex.quote(str(folder))}", file=sys.stderr)


def _differs(path: Path, text: str) -> bool:
    return path.exists() and path.read_bytes() != text.encode()


def _parts(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    allowed = (*PARTS, *OPTIONAL_PARTS)
    unknown = [name for name in names if name not in allowed]
    if not names or unknown:
        hint = did_you_mean(unknown[0], allowed) if unknown else ""
        raise argparse.ArgumentTypeError(f"{text!r}: a list of {', '.join(allowed)} is allowed{hint}")
    return names


def _namespace(text: str) -> str:
    for error in dns_label(text):
        raise argparse.ArgumentTypeError(f"{text!r}: {error}")
    return text


def _image(text: str) -> str:
    if not _IMAGE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: [REGISTRY/]NAME[:TAG][@DIGEST] is allowed, with {PROGRAM} in NAME")
    return text


def _replicas(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_REPLICAS):
        raise argparse.ArgumentTypeError(f"{text!r}: a number from 1 to {_MOST_REPLICAS} is allowed")
    return int(text)
