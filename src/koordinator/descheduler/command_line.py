"""The command line of koord-descheduler: the Go original's flags, with its defaults but for a loopback address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import koordinator
from koordinator.api.component_configuration import ClientConnection
from koordinator.base.flag_types import FlagGroup
from koordinator.base.flags import FlagSet
from koordinator.base.listen_address import ListenAddress
from koordinator.base.option_flags import OptionFlags
from koordinator.base.unused_flags import COMPONENT_SWITCHES, UnusedFlags, component_flags
from koordinator.descheduler.configuration.document import DEFAULT_PORT, DeschedulerLeaderElection
from koordinator.descheduler.features import WORKING, enabled_gates, make_features
from koordinator.kube.component_options import ClientFlags, LeaderElectionFlags
from koordinator.kube.secure_options import TITLE as SECURE
from koordinator.kube.secure_options import SecureOptions

_DESCRIPTION: Final = """\
Moves pods off nodes that use too much, and off nodes where they should not be, in place of the Go koord-descheduler: it
reads the same DeschedulerConfiguration, takes part in the same leader election, and evicts for the same reasons.

Examples:
  koord-descheduler --config=descheduler.yaml --write-config-to=/dev/stdout
      Print what descheduler.yaml means, with all defaults filled in, and exit.
  koord-descheduler --config=descheduler.yaml --kubeconfig=$HOME/.kube/config
      Run a cycle every deschedulingInterval, once the lease that it names is ours.
  koord-descheduler --config=descheduler.yaml --kubeconfig=$HOME/.kube/config --leader-elect=false --dry-run -v=2
      Say what would be evicted and why, and evict nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    """The flags."""

    config: str
    write_config_to: str
    kubeconfig: str
    master: str
    client_connection: dict[str, Any]
    """Fields of the configuration's stanza that the command line sets; so is the next."""
    leader_election: dict[str, Any]
    dry_run: bool
    gates: frozenset[str]
    """The feature gates that are on."""
    address: ListenAddress
    """Where to serve without a configuration file."""
    secure: SecureOptions
    verbosity: int
    remarks: tuple[str, ...]
    """What of the command line will not have the expected effect, in sentences."""


class _Flags:
    """All flags, with the handles of those that are read."""

    def __init__(self) -> None:
        self.set = FlagSet("koord-descheduler", _DESCRIPTION, koordinator.__version__)
        self._configuration(self.set.group("Configuration"))
        self.election = LeaderElectionFlags(
            self.set.group("Leader election"), DeschedulerLeaderElection(), "Deschedule"
        )
        serving = self.set.group("Serving and logging")
        self.address = serving.string(
            "address",
            "127.0.0.1",
            "Where to serve /healthz, /metrics, /configz and /debug without a configuration file; no authentication.",
        )
        self.port = serving.integer("port", DEFAULT_PORT, "Its port; 0 serves nothing.", minimum=0, maximum=65535)
        self.secure = OptionFlags(SecureOptions, self.set.group, SECURE)
        self.verbosity = serving.integer("v", 2, "How much to log; 0 leaves out why nothing is done.", minimum=0)
        self.unused = UnusedFlags(self.set, component_flags(), COMPONENT_SWITCHES)

    def _configuration(self, group: FlagGroup) -> None:
        self.config = group.string(
            "config",
            "",
            "A DeschedulerConfiguration of descheduler/v1alpha2. Without one, only the controller of migration jobs "
            "runs.",
            placeholder="file",
        )
        self.write_config_to = group.string(
            "write-config-to",
            "",
            "Write the configuration with its defaults to this file and exit.",
            placeholder="file",
        )
        self.client = ClientFlags(group, ClientConnection())
        self.dry_run = group.boolean("dry-run", False, "Evict nothing, whatever the configuration says.")
        self.features = make_features()
        remark = "\n".join(f"{name}: {what}." for name, what in sorted(WORKING.items()))
        group.feature_gates(self.features, remark=f"{remark}\nThe original's other gates have no effect here.")


def parse_options(arguments: Sequence[str]) -> Options:
    """Read the command line; ends the process after --help, --version, or with one line about what is wrong."""
    flags = _Flags()
    given = flags.set.parse_or_exit(arguments)
    return Options(
        config=given[flags.config],
        write_config_to=given[flags.write_config_to],
        kubeconfig=given[flags.client.kubeconfig],
        master=given[flags.client.master],
        client_connection=flags.client.overrides(given),
        leader_election=flags.election.overrides(given),
        dry_run=given[flags.dry_run],
        gates=enabled_gates(flags.features),
        address=ListenAddress(given[flags.address], given[flags.port], f"--{flags.port.name}"),
        secure=flags.secure.read(given),
        verbosity=given[flags.verbosity],
        remarks=(
            *flags.unused.remarks(given),
            *flags.features.without_effect(),
        ),
    )
