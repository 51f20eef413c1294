"""What is said about documents that cannot be: the path, the value, and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration import load_configuration, parse_configuration

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def _plugins(text: str) -> str:
    return f"{HEAD}profiles: [{{plugins: {{{text}}}}}]"


REFUSED = [
    ("apiVersion: v1\nkind: KubeSchedulerConfiguration", r"file: apiVersion: 'v1' is not usable"),
    ("apiVersion: kubescheduler.config.k8s.io/v1\nkind: Pod", r"file: kind: 'Pod' is not usable: KubeScheduler"),
    ("a: 1\na: 2", r"file: line 2: 'a' is not usable: a key may stand only once"),
    ("? [a]\n: 1", r"(?s)file: .*unhashable key"),
    ("- a", r"file: \['a'\] is not usable: a KubeSchedulerConfiguration"),
    ("a: 1\n---\nb: 1", r"file: '2 documents' .*one KubeSchedulerConfiguration"),
    ("{", r"file: .*YAML"),
    ("kind: ConfigMap\ndata: []", r"file: data\[koord-scheduler-config\]: None"),
    ("kind: ConfigMap\ndata: {koord-scheduler-config: 'a: {'}", r"file: data\[koord-scheduler-config\]: .*YAML"),
    (HEAD + "profilez: []", r"file: profilez: \[\] is not usable: no such field; there are .*profiles"),
    (HEAD + "healthzBindAddress: ''", r"file: healthzBindAddress: '' .*no such field"),
    (_plugins("filters: {}"), r"file: profiles\[0\].plugins.filters: {} .*no such field; there are .*filter"),
    (HEAD + "parallelism: many", r"file: parallelism: 'many' .*Expected `int`, got `str`"),
    (HEAD + "parallelism: 0", r"file: parallelism: 0 is not usable: 1 or more"),
    (HEAD + "percentageOfNodesToScore: 101", r"file: percentageOfNodesToScore: 101 .*0 to 100"),
    (HEAD + "profiles: [{percentageOfNodesToScore: -1}]", r"profiles\[0\].percentageOfNodesToScore: -1"),
    (HEAD + "podMaxBackoffSeconds: 0", r"podMaxBackoffSeconds: 0 .*at least podInitialBackoffSeconds \(1\)"),
    (HEAD + "clientConnection: {burst: -1}", r"file: clientConnection.burst: -1 .*0 or more"),
    (HEAD + "extenders: [{urlPrefix: http://a}]", r"file: extenders: .*not supported"),
    (HEAD + "leaderElection: {resourceLock: endpoints}", r"leaderElection.resourceLock: 'endpoints'.*leases"),
    (HEAD + "leaderElection: {leaseDuration: 5s}", r"leaseDuration: .*more than renewDeadline"),
    (HEAD + "leaderElection: {retryPeriod: -5s}", r"retryPeriod: .*more than 0s"),
    (HEAD + "leaderElection: {leaseDuration: soon}", r"file: leaderElection.leaseDuration: 'soon' .*not a duration"),
    (HEAD + "profiles: [{}, {}]", r"profiles\[0\].schedulerName: None .*no other profile"),
    (HEAD + "profiles: [{schedulerName: a}, {schedulerName: a}]", r"profiles\[1\].schedulerName: 'a' .*no other"),
    (_plugins("filter: {enabled: [{name: NodeNam}]}"), r"file: .*filter.enabled\[0\].name: 'NodeNam' .*no such plugin"),
    (_plugins("multiPoint: {enabled: [{name: NodeNam}]}"), r"multiPoint.enabled\[0\].name: 'NodeNam'"),
    (_plugins("score: {enabled: [{name: NodeName}]}"), r"'NodeName' .*not extend score, but filter"),
    (_plugins("filter: {enabled: [{name: NodeName}, {name: NodeName}]}"), r"enabled\[1\].name: .*only once"),
    (_plugins("score: {enabled: [{name: NodeAffinity, weight: -1}]}"), r"enabled\[0\].weight: -1 .*0 or more"),
    (_plugins("queueSort: {disabled: [{name: '*'}]}"), r"queueSort: .*exactly one plugin"),
    (_plugins("bind: {disabled: [{name: '*'}]}"), r"bind: .*at least one plugin must bind"),
    (
        _plugins("score: {enabled: [{name: NodeResourcesFitPlus}]}"),
        r"score: 'NodeResourcesFitPlus' .*both preScore and",
    ),
    (HEAD + "profiles: [{pluginConfig: [{name: Nobody}]}]", r"file: profiles\[0\].pluginConfig\[0\].name: 'Nobody'"),
    (HEAD + "profiles: [{pluginConfig: [{name: NodeAffinity}, {name: NodeAffinity}]}]", r"\[1\].name: .*only once"),
    (
        HEAD + "profiles: [{pluginConfig: [{name: DeviceShare, args: {share: 1}}]}]",
        r"file: profiles\[0\].pluginConfig\[0\].args.share: 1 .*no such field",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_configuration(text, "file")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"--config: '/nowhere/a.yaml'"):
        load_configuration(Path("/nowhere/a.yaml"))
