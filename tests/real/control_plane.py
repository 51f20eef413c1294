"""A real control plane on loopback: etcd and kube-apiserver as child processes, for tests to talk to and to break."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, Self

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.free_ports import free_ports
from tests.real.administrator import Administrator, unverified

TOKEN = "admintoken"
_READY_SECONDS = 90.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.1
GARBAGE_PERCENT = "KOORDINATOR_CONTROL_PLANE_GOGC"
"""Names the variable with the GOGC of control planes, where that shall be another one than Go's own."""
_DEATH_SIGNAL_OPTION = 1
_LIBC = ctypes.CDLL(None)


SERVES_WORKLOADS: Final = (
    "--feature-gates=GenericWorkload=true",
    "--runtime-config=scheduling.k8s.io/v1alpha1=true",
)
"""Arguments with which kube-apiserver serves the Workloads of scheduling.k8s.io."""


class ControlPlaneError(RuntimeError):
    """A program of the control plane did not come up; the text ends with the last lines of its log."""


class ControlPlane:
    """etcd and kube-apiserver below one folder, on ports of their own; they run in a ``with`` block.

    ``tokens`` adds users: token -> (user, groups). ``extra_arguments`` go to kube-apiserver as they are and win over
    the ones given here.
    """

    def __init__(
        self,
        programs: Path,
        directory: Path,
        *,
        authorization_mode: str = "AlwaysAllow",
        tokens: Mapping[str, tuple[str, Sequence[str]]] | None = None,
        disabled_admission: Sequence[str] = ("ServiceAccount", "TaintNodesByCondition"),
        extra_arguments: Sequence[str] = (),
        ready_seconds: float = _READY_SECONDS,
    ) -> None:
        self._programs = programs
        self._directory = directory
        self._authorization_mode = authorization_mode
        self._tokens = {TOKEN: ("admin", ("system:masters",)), **(tokens or {})}
        self._disabled_admission = disabled_admission
        self._extra_arguments = extra_arguments
        self._ready_seconds = ready_seconds
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._port, self._etcd_port, self._peer_port = free_ports(3)
        self._administrator = Administrator(self._port, TOKEN)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def kubeconfig(self) -> Path:
        return self._directory / "kubeconfig"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Path:
        """Start both programs and wait until the API server is ready. Returns the kubeconfig of an administrator."""
        try:
            self.begin()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self.kubeconfig

    def begin(self) -> None:
        """Start both programs, which ``wait_ready`` waits for. They end with the thread that has called this."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._write_credentials()
        self._spawn("etcd", self._etcd_arguments())
        self._spawn("kube-apiserver", self._api_server_arguments())

    def start_api_server(self) -> None:
        """Start kube-apiserver alone, after ``kill_api_server``."""
        self._spawn("kube-apiserver", self._api_server_arguments())
        self.wait_ready()

    def kill_api_server(self) -> None:
        """End kube-apiserver with SIGKILL; etcd keeps what it has stored."""
        self._end("kube-apiserver", signal.SIGKILL)

    @property
    def api_server_process(self) -> int:
        """The process id of kube-apiserver, which runs."""
        return self._processes["kube-apiserver"].pid

    @property
    def etcd_url(self) -> str:
        """Where etcd is, for what would take an API server too long to write."""
        return f"http://127.0.0.1:{self._etcd_port}"

    @property
    def etcd_process(self) -> int:
        """The process id of etcd, which runs."""
        return self._processes["etcd"].pid

    def pause_api_server(self) -> None:
        """Stop kube-apiserver in its tracks: connections stay open and nothing is answered."""
        self._processes["kube-apiserver"].send_signal(signal.SIGSTOP)

    def resume_api_server(self) -> None:
        self._processes["kube-apiserver"].send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill kube-apiserver and start it again on the same port and data."""
        self.kill_api_server()
        self.start_api_server()

    def stop(self) -> None:
        self._administrator.close()
        self._end("kube-apiserver", signal.SIGTERM)
        self._end("etcd", signal.SIGTERM)

    def request(self, method: str, path: str, document: Any = None) -> tuple[int, dict[str, Any]]:
        """One request of an administrator: see ``Administrator``."""
        return self._administrator.request(method, path, document)

    def kubeconfig_for(self, token: str) -> Path:
        """A kubeconfig for one of ``tokens``."""
        path = self._directory / f"kubeconfig-{self._tokens[token][0].replace(':', '-')}"
        path.write_text(self._kubeconfig_text(token))
        return path

    def _write_credentials(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self._directory / "service-account.key").write_bytes(pem)
        lines = [f'{token},{user},{user},"{",".join(groups)}"' for token, (user, groups) in self._tokens.items()]
        (self._directory / "tokens.csv").write_text("\n".join(lines) + "\n")
        self.kubeconfig.write_text(self._kubeconfig_text(TOKEN))

    def _kubeconfig_text(self, token: str) -> str:
        # kube-apiserver makes the certificate that it serves itself; its file holds the authority too.
        cluster = {"server": self.url, "certificate-authority": str(self._directory / "certificates/apiserver.crt")}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "real", "cluster": cluster}],
                "users": [{"name": "user", "user": {"token": token}}],
                "contexts": [{"name": "real", "context": {"cluster": "real", "user": "user"}}],
                "current-context": "real",
            },
            indent=1,
        )

    def _etcd_arguments(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        return [
            f"--data-dir={self._directory / 'etcd-data'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=error",
        ]

    def _api_server_arguments(self) -> list[str]:
        key = self._directory / "service-account.key"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._directory / 'certificates'}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={self._directory / 'tokens.csv'}",
            f"--authorization-mode={self._authorization_mode}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--disable-admission-plugins={','.join(self._disabled_admission)}",
            "--max-requests-inflight=3000",
            "--max-mutating-requests-inflight=2000",
            "--enable-priority-and-fairness=false",
            "--allow-privileged=true",
            *self._extra_arguments,
        ]

    def _spawn(self, program: str, arguments: list[str]) -> None:
        with self._log(program).open("ab") as log:
            self._processes[program] = _spawn(self._programs / program, arguments, log)

    def _end(self, program: str, number: signal.Signals) -> None:
        process = self._processes.pop(program, None)
        if process is None:
            return
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _log(self, program: str) -> Path:
        return self._directory / f"{program}.log"

    def wait_ready(self) -> None:
        """Raises ControlPlaneError where a program has ended, or takes too long."""
        deadline = time.monotonic() + self._ready_seconds
        while not self._is_ready():
            for program, process in self._processes.items():
                if process.poll() is not None:
                    raise ControlPlaneError(f"{program} ended with {process.returncode}: {self._log_tail(program)}")
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"not ready in {self._ready_seconds:.0f} s: {self._log_tail('kube-apiserver')}")
            time.sleep(_POLL_SECONDS)

    def _is_ready(self) -> bool:
        request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            with urllib.request.urlopen(request, timeout=5, context=unverified()) as response:
                return int(response.status) == 200
        except (OSError, urllib.error.URLError):
            return False

    def _log_tail(self, program: str) -> str:
        return "\n".join(self._log(program).read_text(errors="replace").splitlines()[-5:])


def _spawn(program: Path, arguments: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(program), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=_environment(),
        preexec_fn=end_with_parent,
    )


def _environment() -> dict[str, str]:
    percent = os.environ.get(GARBAGE_PERCENT)
    return {**os.environ, **({"GOGC": percent} if percent else {})}


def end_with_parent() -> None:
    """In the child, on Linux: be killed when the test process dies, however it dies."""
    _LIBC.prctl(_DEATH_SIGNAL_OPTION, signal.SIGKILL)
