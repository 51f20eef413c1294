"""Takes secrets out of what a bundle contains. Decided on documents and texts; nothing is read here.

No Secret is ever asked for. What is left are the places into which people put one all the same: environment variables,
arguments, annotations, ConfigMaps, and what programs print. A rule that removes too much costs a question; one that
removes too little costs a password.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import yaml

REMOVED: Final = "[removed]"
_NAME: Final = (
    r"pass(?:word|wd|phrase)|(?<![a-z])pass(?![a-z])|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|"
    r"client[-_]?key|signing[-_]?key|encryption[-_]?key|credential|authorization|cookie|session[-_]?id|"
    r"connection[-_]?string|(?<![a-z])dsn(?![a-z])|dockerconfig|certificate-data|authority-data|cabundle"
)
_SECRET_NAME: Final = re.compile(_NAME, re.IGNORECASE)
_REFERENCE: Final = re.compile(
    r"(?:name|namespace|file|path|dir|ttl|seconds|expiry|kind|ref|mode|burst|qps|count|total|size|limit)s?$|^key$",
    re.IGNORECASE,
)
"""How names end whose value is not the secret itself but says where it is, or how long it lives."""
_HARMLESS: Final = re.compile(r"(?:true|false|null|none|[0-9]+(?:\.[0-9]+)?(?:ns|us|ms|s|m|h)|)", re.IGNORECASE)
_KEY_BLOCK: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*(?:PRIVATE KEY|CERTIFICATE)-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL
)
_END_OF_KEY: Final = re.compile(r"\A(?:(?!-----BEGIN).)*?-----END [A-Z0-9 ]*PRIVATE KEY-----", re.DOTALL)
"""Where a log begins in the middle of one."""
_QUOTE: Final = r"\\{0,7}[\"']?"
_VALUE: Final = (
    r"(?:\\{0,7}\"(?:[^\"\\\n]|\\+[^\"\\\n]){0,4096}\\{0,7}\"|'[^'\n]{0,4096}'|\[[^\]\n]{0,4096}\]?|\{[^}\n]{0,4096}\}?|"
    r"[^\s,;&}\])\"'\\]+|\\*[\"'][^\n]*)"
)
"""In quotes, in brackets, or a word."""
_BLOCK: Final = r"[|>][-+0-9]{0,2}[ \t]*\n(?:[ \t]+[^\n]*(?:\n|\Z)){1,64}"
"""Of YAML: a value in the lines below."""
_PATTERNS: Final = (
    ("a key or certificate", _END_OF_KEY, REMOVED),
    ("a key or certificate", _KEY_BLOCK, REMOVED),
    (
        "a bearer or basic credential",
        re.compile(r"(?i)\b(bearer|basic)(\s+|%20)[A-Za-z0-9._~+/=-]{6,}"),
        rf"\1 {REMOVED}",
    ),
    (
        "a header",
        re.compile(r"(?i)\b((?:set-)?cookie|(?:proxy-)?authorization)(:[ \t]*)[^\r\n\"']+"),
        rf"\1\2{REMOVED}",
    ),
    ("a JSON web token", re.compile(r"\beyJ[\w-]{6,}\.[\w-]+(?:\.[\w-]*)?"), REMOVED),
    ("credentials in a URL", re.compile(r"(?<=://)[^/\s@\"']+@"), f"{REMOVED}@"),
    (
        "a named secret",
        # Of the name, from the word that gives it away on: a line of a million such words takes no longer than others.
        re.compile(
            rf"((?:{_NAME})[\w.-]{{0,64}}{_QUOTE}[ \t]{{0,9}}(?:=>|[:=])[ \t]{{0,9}})(?:{_BLOCK}|{_VALUE})",
            re.IGNORECASE,
        ),
        None,
    ),
    (
        "a named secret",
        # As a flag and its value: --token X, also in a list.
        re.compile(
            rf"((?<![\w.-])-{{1,2}}[\w.-]{{0,64}}?(?:{_NAME})[\w.-]{{0,64}}"
            rf"(?:[ \t]{{1,9}}(?![-|>]|=>)|\\{{0,7}}[\"'],[ \t]{{0,9}}(?=\\{{0,7}}[\"'](?!-)))){_VALUE}",
            re.IGNORECASE,
        ),
        None,
    ),
    (
        "a named secret",
        # As a variable and its value: name: DB_PASSWORD, value: X.
        re.compile(
            rf"((?<![a-z])(?:name|key){_QUOTE}[ \t]{{0,9}}[:=][ \t]{{0,9}}{_QUOTE}"
            rf"[\w.-]{{0,64}}?(?:{_NAME})[\w.-]{{0,64}}{_QUOTE},?\s{{0,64}}"
            rf"{_QUOTE}(?<![a-z])value{_QUOTE}[ \t]{{0,9}}[:=][ \t]{{0,9}})"
            rf"(?:{_BLOCK}|{_VALUE})",
            re.IGNORECASE,
        ),
        None,
    ),
    (
        "the address of a webhook",
        # Whoever knows it may post.
        re.compile(
            r"(?i)\b(hooks\.slack\.com|discord(?:app)?\.com/api/webhooks|[\w-]{1,64}\.webhook\.office\.com|"
            r"open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot|qyapi\.weixin\.qq\.com/cgi-bin/webhook|"
            r"api\.telegram\.org)/[^\s\"'<>\\]+"
        ),
        rf"\1/{REMOVED}",
    ),
    (
        "a token of a known form",
        re.compile(
            r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|"
            r"\bxox[abeoprs]-[\w-]{10,}|\bAIza[\w-]{30,}|\bsk-[\w-]{20,}|\bhv[sb]\.[\w-]{20,}|\b[a-z0-9]{6}\.[a-z0-9]{16}\b"
        ),
        REMOVED,
    ),
)
_LEAST_DENSE: Final = 40
_DENSE: Final = re.compile(rf"(?<![\w+/=-])[\w+/-]{{{_LEAST_DENSE},}}={{0,2}}(?![\w+/=-])")
"""What may be a key in base64: uppercase, lowercase and digits without a break."""
_LONG: Final = 60
"""A line of base64, which a path without a dot hardly reaches."""
_DEEPEST: Final = 100
_OPENING: Final = (
    *(yaml.BlockMappingStartToken, yaml.BlockSequenceStartToken),
    *(yaml.FlowMappingStartToken, yaml.FlowSequenceStartToken),
)
_CLOSING: Final = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)
_UNREADABLE: Final = "a text that cannot be looked through: nested too deep, or with aliases or tags"
_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LEAST_LEARNED: Final = 8
_MOST_LEARNED: Final = 200
_CONTAINERS: Final = frozenset({"containers", "initContainers", "ephemeralContainers"})
_OF_A_STRANGER: Final = (
    "command",
    "args",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "workingDir",
)
"""Of containers that are not ours: what they run, and with what, is nobody's business here."""
_APPLIED: Final = "last-applied-configuration"
_NOISE: Final = frozenset({"managedFields", "images", "continue"})
"""Of no use to a reader: who has set which field; the images that a node has."""


class Redactor:
    """``counts`` says how often which rule has removed something."""

    def __init__(self, home: Path | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._home = str(home) if home is not None else ""
        self._learned: set[str] = set()

    def document(self, document: Any, *, ours: bool = False) -> Any:
        """A copy without secrets. ``ours`` are objects of the installation, whose command lines stay."""
        return self._value("", document, ours)

    def text(self, text: str) -> str:
        """The same of what a program has printed."""
        if self._home and self._home != "/":
            text = text.replace(self._home, "~")
        for what, pattern, replacement in _PATTERNS:
            by = replacement if replacement is not None else self._named
            text = pattern.sub(self._counted(what, by), text)
        text = _DENSE.sub(self._dense, text)
        for secret in sorted(self._learned, key=len, reverse=True):
            if secret in text:
                self.counts["a value that was removed elsewhere"] += text.count(secret)
                text = text.replace(secret, REMOVED)
        return text

    def _counted(self, what: str, by: str | Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
        def replaced(found: re.Match[str]) -> str:
            after = found.expand(by) if isinstance(by, str) else by(found)
            self.counts[what] += after != found[0]
            return after

        return replaced

    def _named(self, found: re.Match[str]) -> str:
        name, said = found[1].rstrip(" \t:=>\"'\\"), found[0][len(found[1]) :]
        if not _is_secret(name, said.strip("\"'\\")) or said.strip("\"'\\").startswith(REMOVED[:-1]):
            return found[0]
        return f"{found[1]}{REMOVED}"

    def _dense(self, found: re.Match[str]) -> str:
        longest = max(re.split(r"[/_-]", found[0]), key=len)
        kinds = (str.isupper, str.islower, str.isdigit)
        if (len(found[0]) < _LONG and len(longest) < 20) or not all(
            any(kind(each) for each in longest) for kind in kinds
        ):
            return found[0]
        self.counts["what may be a key"] += 1
        return REMOVED

    def _value(self, name: str, value: Any, ours: bool) -> Any:
        """``name`` is its key, or that of the named secret which it is a part of."""
        match value:
            case Mapping():
                return self._mapping(name, value, ours)
            case list():
                if name in _CONTAINERS:
                    return [self._container(each, ours) for each in value]
                return self._list(name, value, ours)
            case str():
                return self._string(name, value, ours)
            case None | bool():
                return value
        return self._removed("a named secret", value) if _is_secret(name, str(value)) else value

    def _mapping(self, within: str, value: Mapping[Any, Any], ours: bool) -> dict[Any, Any]:
        cleaned: dict[Any, Any] = {}
        secret = within if _is_secret(within, within) else ""
        # {"name": "DB_PASSWORD", "value": "X"}, as variables and headers are written.
        called = next((each for key, each in value.items() if _is(key, "name", "key") and isinstance(each, str)), "")
        if value.get("kind") == "Secret":
            value = {key: each for key, each in value.items() if key not in ("data", "stringData")}
        of_config_map = value.get("kind") == "ConfigMap"
        for written, each in value.items():
            if not isinstance(written, str):
                cleaned[written] = self._value(secret, each, ours)
                continue
            key = written if written.isalpha() and len(written) < _LEAST_DENSE else self.text(written)
            if key in _NOISE and isinstance(each, list | str):
                continue
            if key.endswith(_APPLIED):
                cleaned[key] = self._removed("last-applied-configuration", each, learns=False)
            elif key == "binaryData":
                cleaned[key] = self._removed("binary data", each, learns=False)
            elif of_config_map and key == "data" and isinstance(each, Mapping):
                cleaned[key] = {
                    name: self._string(name, text, ours=True, is_file=True) if isinstance(text, str) else REMOVED
                    for name, text in each.items()
                }
            elif key == "env" and isinstance(each, list):
                cleaned[key] = [self._variable(variable) for variable in each]
            elif key == "httpHeaders" and isinstance(each, list):
                cleaned[key] = self._removed("headers of a probe", each, learns=False)
            else:
                name = called if _is(key, "value") and _is_secret(called, called) else key
                cleaned[key] = self._value(name if not secret or _REFERENCE.search(key) else secret, each, ours)
        return cleaned

    def _container(self, container: Any, ours: bool) -> Any:
        if ours or not isinstance(container, Mapping):
            return self._value("", container, ours)
        kept = {key: each for key, each in container.items() if key not in _OF_A_STRANGER}
        self.counts["the command line of a container"] += len(kept) != len(container)
        return self._value("", kept, ours)

    def _variable(self, variable: Any) -> Any:
        if not isinstance(variable, Mapping) or "value" not in variable:
            return self._value("", variable, ours=True)
        learns = _is_secret(str(variable.get("name", "")), str(variable["value"]))
        return {**variable, "value": self._removed("a variable of the environment", variable["value"], learns=learns)}

    def _list(self, name: str, values: list[Any], ours: bool) -> list[Any]:
        """``--token X`` is two of them."""
        cleaned: list[Any] = []
        flag = ""
        for each in values:
            is_text = isinstance(each, str)
            follows = is_text and flag and not each.startswith("-")
            cleaned.append(self._value(flag if follows and _is_secret(flag, each) else name, each, ours))
            flag = each if is_text and each.startswith("-") and "=" not in each else ""
        return cleaned

    def _string(self, name: str, text: str, ours: bool, *, is_file: bool = False) -> str:
        """JSON and YAML, of which a ``is_file`` of a ConfigMap mostly is, are looked through as objects are."""
        if name and _is_secret(name, text):
            return self._removed("a named secret", text)
        try:
            if text.lstrip()[:1] in ("{", "["):
                with suppress(ValueError):
                    parsed = json.loads(text, object_pairs_hook=_pairs)
                    cleaned = self._value("", parsed, ours)
                    return self.text(text if cleaned == parsed else json.dumps(cleaned, ensure_ascii=False))
            if is_file or ("\n" in text and _SECRET_NAME.search(text)):
                return self.text(self._yaml(text, ours))
        except RecursionError:
            return self._removed(_UNREADABLE, text, learns=False)
        return self.text(text)

    def _yaml(self, text: str, ours: bool) -> str:
        """Itself where there is nothing in it, since comments, too, may say something."""
        try:
            if not _is_plain(text):
                return self._removed(_UNREADABLE, text, learns=False)
            parsed = list(yaml.load_all(text, _Loader))
        except (yaml.YAMLError, ValueError):
            return text
        if not any(isinstance(each, dict | list) for each in parsed):
            return text
        cleaned = [self._value("", each, ours) for each in parsed]
        dumped: str = yaml.safe_dump_all(cleaned, sort_keys=False, allow_unicode=True)
        return text if cleaned == parsed else dumped

    def _removed(self, what: str, value: Any, *, learns: bool = True) -> str:
        if learns and isinstance(value, str | int):
            self._learn(str(value).strip())
        self.counts[what] += 1
        return REMOVED

    def _learn(self, secret: str) -> None:
        """It is removed wherever else it stands, such as in a log."""
        if len(secret) >= _LEAST_LEARNED and len(self._learned) < _MOST_LEARNED and secret != REMOVED:
            self._learned.add(secret)


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _REFERENCE.search(name) and not _HARMLESS.fullmatch(value)


def _is(key: Any, *names: str) -> bool:
    return isinstance(key, str) and key.lower() in names


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a key that is repeated all values, since each stands in the text."""
    found: dict[str, list[Any]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: values if len(values) > 1 else values[0] for key, values in found.items()}


def _is_plain(text: str) -> bool:
    """Whether YAML may be read: a few aliases are enough for a document without end. Raises YAMLError."""
    depth = 0
    for token in yaml.scan(text, _Loader):
        if isinstance(token, yaml.AliasToken | yaml.TagToken):
            return False
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > _DEEPEST:
            return False
    return True
