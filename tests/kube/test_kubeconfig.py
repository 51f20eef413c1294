"""kubeconfig files: what is read, how files merge, and that every mistake is named without quoting a secret."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.kube.connection import Connection, resolve
from koordinator.kube.errors import KubeconfigError

CA = b64encode(b"authority").decode()


def document(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "https://one:6443", "certificate-authority-data": CA}}],
        "users": [{"name": "u", "user": {"token": "s3cret"}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        **changes,
    }


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def from_file(tmp_path: Path, content: Any, **options: Any) -> Connection:
    return resolve(str(write(tmp_path / "config", content)), environment={}, **options)


def with_user(**user: Any) -> dict[str, Any]:
    return document(users=[{"name": "u", "user": user}])


def with_cluster(**cluster: Any) -> dict[str, Any]:
    return document(clusters=[{"name": "c", "cluster": cluster}])


def test_the_current_context_is_used(tmp_path: Path) -> None:
    found = from_file(tmp_path, document())
    assert found.endpoint.url == "https://one:6443"
    assert found.tls is not None
    assert found.tls.authority == b"authority"
    assert (found.user.token, found.namespace) == ("s3cret", "team")


def test_another_context_may_be_named(tmp_path: Path) -> None:
    content = document(
        clusters=[
            {"name": "c", "cluster": {"server": "https://one"}},
            {"name": "d", "cluster": {"server": "https://two"}},
        ],
        contexts=[{"name": "one", "context": {"cluster": "c"}}, {"name": "two", "context": {"cluster": "d"}}],
    )
    assert from_file(tmp_path, content, context="two").endpoint.url == "https://two"


def test_master_replaces_the_server(tmp_path: Path) -> None:
    found = from_file(tmp_path, document(), master="https://elsewhere:1")
    assert (found.endpoint.url, found.user.token) == ("https://elsewhere:1", "s3cret")


@pytest.mark.parametrize(
    ("master", "url"), [("localhost:8080", "http://localhost:8080"), ("https://h:1/base/", "https://h:1/base")]
)
def test_master_is_enough_by_itself(master: str, url: str) -> None:
    assert resolve(master=master, environment={}).endpoint.url == url


def test_no_credentials_over_plain_http(tmp_path: Path) -> None:
    found = from_file(tmp_path, document(), master="http://elsewhere:1")
    assert (found.tls, found.user.token) == (None, "")


def test_relative_paths_are_those_of_the_file(tmp_path: Path) -> None:
    content = document(
        clusters=[{"name": "c", "cluster": {"server": "https://one", "certificate-authority": "pki/ca.crt"}}],
        users=[
            {
                "name": "u",
                "user": {
                    "client-certificate": "a.crt",
                    "client-key": "/b.key",
                    "exec": {"command": "./get", "apiVersion": "client.authentication.k8s.io/v1"},
                },
            }
        ],
    )
    found = from_file(tmp_path, content)
    assert found.tls is not None
    assert found.tls.key_pair is not None
    assert found.user.exec is not None
    assert found.tls.files == (str(tmp_path / "pki/ca.crt"), str(tmp_path / "a.crt"), "/b.key")
    assert found.user.exec.command == str(tmp_path / "get")


def test_a_bare_command_is_left_to_the_path(tmp_path: Path) -> None:
    found = from_file(tmp_path, with_user(exec={"command": "aws", "apiVersion": "v1"}))
    assert found.user.exec is not None
    assert found.user.exec.command == "aws"


def test_data_wins_over_a_file(tmp_path: Path) -> None:
    cluster = {"server": "https://one", "certificate-authority": "ca.crt", "certificate-authority-data": CA}
    found = from_file(tmp_path, with_cluster(**cluster))
    assert found.tls is not None
    assert (found.tls.authority, found.tls.authority_file) == (b"authority", "")


def test_server_name_proxy_and_insecure(tmp_path: Path) -> None:
    cluster = {
        "server": "https://one",
        "insecure-skip-tls-verify": True,
        "tls-server-name": "api",
        "proxy-url": "http://proxy:3128",
    }
    found = from_file(tmp_path, with_cluster(**cluster))
    assert found.tls is not None
    assert found.tls.insecure
    assert (found.endpoint.server_name, found.endpoint.proxy) == ("api", "http://proxy:3128")


def test_null_sections_count_as_empty(tmp_path: Path) -> None:
    found = from_file(
        tmp_path,
        document(
            users=None,
            preferences={},
            extensions=None,
            contexts=[{"name": "one", "context": {"cluster": "c", "namespace": None}}],
        ),
    )
    assert found.namespace == "default"


def test_the_first_file_wins_whole_entries(tmp_path: Path) -> None:
    first = write(tmp_path / "first", with_user(username="first") | {"current-context": ""})
    second = write(
        tmp_path / "second",
        document(
            users=[{"name": "u", "user": {"token": "second"}}],
            clusters=[{"name": "c", "cluster": {"server": "https://two"}}],
        ),
    )
    found = resolve(environment={"KUBECONFIG": f"{tmp_path}/absent:{first}::{second}:{first}"})
    assert (found.user.username, found.user.token) == ("first", "")
    assert found.endpoint.url == "https://one:6443"
    assert found.source == f"kubeconfig {first}, {second}, context 'one'"


def test_the_first_current_context_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "first", {"current-context": "two"})
    second = write(
        tmp_path / "second",
        document(
            contexts=[
                {"name": "one", "context": {"cluster": "c"}},
                {"name": "two", "context": {"cluster": "c", "namespace": "second"}},
            ]
        ),
    )
    assert resolve(environment={"KUBECONFIG": f"{first}:{second}"}).namespace == "second"


def test_the_home_directory_is_looked_in(tmp_path: Path) -> None:
    write(tmp_path / ".kube/config", document())
    assert resolve(environment={"HOME": str(tmp_path)}).namespace == "team"


def in_cluster(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    write(folder / "token", "abc")
    write(folder / "namespace", "koordinator-system\n")
    return {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "HOME": str(tmp_path)}


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    write(tmp_path / ".kube/config", document())
    found = resolve(environment=in_cluster(tmp_path), root=tmp_path)
    folder = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    assert found.endpoint.url == "https://[fd00::1]:443"
    assert found.user.token_file == str(folder / "token")
    assert found.namespace == "koordinator-system"
    assert found.tls is not None
    assert found.tls.authority_file == str(folder / "ca.crt")


def test_a_named_kubeconfig_wins_over_the_service_account(tmp_path: Path) -> None:
    environment = in_cluster(tmp_path) | {"KUBECONFIG": str(write(tmp_path / "config", document()))}
    assert resolve(environment=environment, root=tmp_path).endpoint.url == "https://one:6443"


USER = "context 'one': user 'u': "
MISTAKES: dict[str, tuple[Any, str]] = {
    "no yaml": ("clusters: [s3cret", "line 2, column 1: not YAML"),
    "no mapping": ("[]", r"Expected `object`, got `array`"),
    "wrong type": (with_cluster(server=7), r"Expected `str`, got `int` - at `\$\.clusters\[0\]\.cluster\.server`"),
    "other kind": (document(kind="Pod"), "kind 'Pod'"),
    "no current context": (document(**{"current-context": ""}), "current-context is not set"),
    "no such context": (document(**{"current-context": "x"}), r"no context 'x' among \['one'\]"),
    "no such cluster": (document(clusters=[]), "context 'one': cluster: there is no cluster 'c'"),
    "no such user": (document(users=[]), "context 'one': user: there is no user 'u'"),
    "no server": (with_cluster(), "cluster 'c': server is not set"),
    "no usable server": (with_cluster(server="ftp://x"), "server 'ftp://x' is not usable"),
    "a name twice": (document(users=[{"name": "u"}, {"name": "u"}]), "users: the name 'u' is given more than once"),
    "no base64": (with_cluster(server="https://x", **{"certificate-authority-data": "%"}), "-data: not base64"),
    "insecure with ca": (
        with_cluster(server="https://x", **{"certificate-authority": "x", "insecure-skip-tls-verify": True}),
        "insecure-skip-tls-verify",
    ),
    "proxy": (with_cluster(server="https://x", **{"proxy-url": "socks4://u:s3cret@p"}), "proxy-url: 'socks4://p'"),
    "certificate without key": (
        with_user(**{"client-certificate": "a"}),
        USER + "client-certificate without client-key",
    ),
    "key without certificate": (with_user(**{"client-key": "a"}), USER + "client-key without client-certificate"),
    "auth provider": (with_user(**{"auth-provider": {"name": "gcp"}}), USER + "auth-provider is no longer supported"),
    "two ways": (with_user(token="s3cret", username="a", password="s3cret"), USER + "both token and username"),
}


@pytest.mark.parametrize(("content", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_named(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(KubeconfigError, match=message) as caught:
        from_file(tmp_path, content)
    assert str(tmp_path / "config") in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_named_file_has_to_exist(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="absent: no such file"):
        resolve(str(tmp_path / "absent"), environment={})


def test_nothing_to_go_by_says_what_would_be() -> None:
    with pytest.raises(KubeconfigError, match="give --kubeconfig or --master"):
        resolve(environment={})


def test_secrets_are_not_in_any_repr(tmp_path: Path) -> None:
    pair = {"client-certificate-data": CA, "client-key-data": b64encode(b"s3cret-key").decode()}
    plugin = {"command": "x", "apiVersion": "v1", "env": [{"name": "KEY", "value": "s3cret-value"}]}
    text = repr(from_file(tmp_path, with_user(token="s3cret", exec=plugin, **pair)))
    assert "User(" in text
    assert "s3cret" not in text
    assert pair["client-key-data"] not in text


PROXIES = {
    "plain": ("https://api:6443", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
    "without scheme": ("https://api", {"https_proxy": "p:1"}, "http://p:1"),
    "other scheme": ("https://api", {"HTTP_PROXY": "http://p:1"}, ""),
    "loopback": ("https://127.0.0.1:1", {"HTTPS_PROXY": "http://p:1"}, ""),
    "everything": ("https://api", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, ""),
    "range": ("https://10.96.0.1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "x, 10.0.0.0/8"}, ""),
    "outside the range": ("https://11.0.0.1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
    "domain": ("https://api.svc", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".svc"}, ""),
    "host and below": ("https://a.b.c", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "b.c"}, ""),
    "not below": ("https://ab.c", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "b.c"}, "http://p:1"),
    "other port": ("https://b.c:1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "b.c:2"}, "http://p:1"),
    "same port": ("https://b.c", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "b.c:443"}, ""),
}


@pytest.mark.parametrize(("server", "environment", "proxy"), PROXIES.values(), ids=PROXIES.keys())
def test_proxies_of_the_environment(server: str, environment: dict[str, str], proxy: str) -> None:
    assert resolve(master=server, environment=environment).endpoint.proxy == proxy
