"""Validates pods against required labels, which the cluster administrator lists in a ConfigMap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from koordinator.api.codec import DecodeError, convert, decode_any
from koordinator.api.labels import SKIP_ENHANCED_VALIDATION
from koordinator.api.meta import WireStruct
from koordinator.api.pod import Pod
from koordinator.base.errors import ConfigurationError
from koordinator.manager.webhook.pod.rules import PodReview, new_problems

_ENABLE: Final = "enable"
_RULES: Final = "rules"


class EnhancedRule(WireStruct):
    """An entry of the JSON array in the ConfigMap."""

    name: str = ""
    required_labels: list[str] = []
    namespace_whitelist: list[str] = []
    """Namespaces that the rule does not apply to."""


def parse_enhanced_rules(data: Mapping[str, str]) -> tuple[EnhancedRule, ...]:
    """The rules in force, none when they are disabled. Raises ConfigurationError."""
    text = data.get(_RULES)
    try:
        parsed = decode_any(text) if text is not None else []
        rules = convert(parsed if parsed is not None else [], list[EnhancedRule])
    except DecodeError as error:
        allowed = f'must be a JSON array of {{"name","requiredLabels","namespaceWhitelist"}}: {error}'
        raise ConfigurationError(f"data.{_RULES}", text, allowed) from error
    return tuple(rules) if data.get(_ENABLE, "").strip().lower() == "true" else ()


class EnhancedRules:
    """The rules that were read last."""

    def __init__(self) -> None:
        self.in_force: tuple[EnhancedRule, ...] = ()

    def load(self, data: Mapping[str, str] | None) -> None:
        """Load the rules from the ConfigMap's data; None when it does not exist, which disables the rules.

        Raises ConfigurationError, and keeps the previous rules.
        """
        self.in_force = parse_enhanced_rules(data) if data is not None else ()


def no_rules() -> tuple[EnhancedRule, ...]:
    return ()


class EnhancedValidation:
    """``rules`` returns the rules in force, and is called for every pod."""

    plugin = "EnhancedValidation"

    def __init__(self, rules: Callable[[], tuple[EnhancedRule, ...]] = no_rules) -> None:
        self._rules = rules

    def problems(self, review: PodReview) -> list[str]:
        """The problem of the first rule that the pod violates; empty without one."""
        rules = self._rules()
        found = _broken(rules, review.pod, review.namespace)
        before = _broken(rules, review.old, review.namespace) if review.old is not None else []
        return new_problems(found, before)[:1]


def _broken(rules: Iterable[EnhancedRule], pod: Pod, namespace: str) -> list[str]:
    own = pod.metadata.labels
    if own.get(SKIP_ENHANCED_VALIDATION) == "true":
        return []
    missing = (
        [key for key in rule.required_labels if key not in own]
        for rule in rules
        if not namespace or namespace not in rule.namespace_whitelist
    )
    return [_text(keys) for keys in missing if keys]


def _text(missing: list[str]) -> str:
    if len(missing) == 1:
        return f"required label '{missing[0]}' is missing"
    return f"required labels are missing: [{' '.join(missing)}]"
