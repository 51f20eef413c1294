"""Who reads what pages show as YAML and JSON: an API server, or the program or part of one that it is written for.

A block is read by the first reader that knows its form; a form that no reader knows is an error, so that a new one gets
its reader here. What belongs to an object, such as ``metadata`` or ``spec`` alone, is read as a part of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec
import yaml

from koordinator.api import annotations as annotation_keys
from koordinator.api.component_configuration import plain_document
from koordinator.api.device_share import read_allocated_devices
from koordinator.api.generic_workload import GenericWorkload
from koordinator.api.manifests.chart import values_schema
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.strict_decoding import decode_strictly
from koordinator.api.xpu_device_info import decode_devices
from koordinator.cli.lint_rules import findings
from koordinator.cli.what_if_input import read_objects
from koordinator.cluster.nodes.scenario import default_scenario, parse_scenario
from koordinator.koordlet.command_line import parse_options
from koordinator.koordlet.configuration import read_configuration
from koordinator.model.slo_configuration.configuration_keys import ALL_KEYS
from koordinator.runtime_proxy.hook_servers import parse_hook_file
from koordinator.simulate.change_file import read_changes
from tests.docs.k9s_plugins import FIELDS, REQUIRED
from tests.docs.pages import ROOT, Block
from tests.yaml_documents import yaml_documents

Document = dict[str, Any]
_SCHEDULER: Final = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
_DESCHEDULER: Final = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration"}
_OF_DESCHEDULER: Final = frozenset({"LowNodeLoad", "MigrationController", "DefaultEvictor", "FragmentationAware"})
_SPEC_OF_NODE_SLO: Final = frozenset(field.encode_name for field in msgspec.structs.fields(NodeSLOSpec))
GENERIC_WORKLOADS: Final = "scheduling.k8s.io/v1alpha1"
"""Of Kubernetes itself, which the embedded API does not serve."""
_RESOURCE_CONTROL: Final = frozenset({"llc", "mb"})
_SCENARIO: Final = frozenset({"faults", "nodeGroups"})
_ANNOTATION: Final = re.compile(r'"((?:[\w-]+\.)*koordinator\.sh/[\w-]+)"')
_KEY: Final = re.compile(r"[\w./-]+")


class UnreadableError(Exception):
    """What a reader says that is wrong."""


@dataclass(frozen=True, slots=True)
class Written:
    """A document of a block, with the text and the folder that its paths start at."""

    value: Any
    text: str

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.value) if isinstance(self.value, dict) else frozenset()


def documents(block: Block) -> list[Written]:
    """Those that the block is made of; none where it is something else. A block without a language is YAML if it is a
    mapping whose keys are names."""
    if block.language not in ("yaml", "yml", "json", ""):
        return []
    if block.language:
        return [Written(value, block.text) for value in yaml_documents(block.text)]
    try:
        values = yaml_documents(block.text)
    except yaml.YAMLError:
        return []
    are_mappings = all(isinstance(value, dict) and all(_is_key(key) for key in value) for value in values)
    # "koord: there is no pod" is a sentence.
    is_sentence = len(values) == 1 and isinstance(values[0], dict) and set(values[0]) <= {"koord", "Error"}
    return [Written(value, block.text) for value in values] if are_mappings and not is_sentence else []


def _is_key(key: object) -> bool:
    return isinstance(key, str) and _KEY.fullmatch(key) is not None


def objects(written: Written) -> list[Document]:
    """What an API server gets of it: the object itself, or what may be meant by a part of one; any of them will do."""
    value = written.value
    if written.keys >= {"apiVersion", "kind"}:
        is_of_program = value["kind"].endswith(("Configuration", "Args"))
        return [] if is_of_program or value["apiVersion"] == GENERIC_WORKLOADS else [value]
    if written.keys == {"spec"}:
        return [_with_spec("NodeSLO", value["spec"]), _with_spec("Reservation", value["spec"])]
    if written.keys and written.keys <= _SPEC_OF_NODE_SLO:
        return [_with_spec("NodeSLO", value)]
    return []


def _with_spec(kind: str, spec: Document) -> Document:
    samples = (yaml_documents(path.read_text())[0] for path in (ROOT / "tests/api/samples").glob("*.yaml"))
    sample = next(each for each in samples if each["kind"] == kind)
    return {**sample, "spec": {**sample.get("spec", {}), **spec}}


def problems(written: Written) -> Iterator[str]:
    """What the reader of the document says; nothing when it takes it. UnreadableError where there is no reader."""
    reader = next((read for knows, read in _READERS if knows(written)), None)
    if reader is None:
        raise UnreadableError(f"no reader in tests/docs/documents.py knows this form: {sorted(written.keys)}")
    yield from reader(written)


def _lint(document: Document) -> Iterator[str]:
    yield from (f"{found.full_path}: {found.message}" for found in findings(document, None))


def _object(written: Written) -> Iterator[str]:
    if written.value["apiVersion"] == GENERIC_WORKLOADS:
        decode_strictly(written.value, GenericWorkload, "")
    if written.value["kind"] == "ConfigMap" and written.value["metadata"]["name"] == "koordlet-config":
        read_configuration(_flags_of_koordlet, written.value["data"])
    yield from _lint(written.value)


def _flags_of_koordlet(flags: Mapping[str, str]) -> Any:
    return parse_options([f"--{name}={text}" for name, text in flags.items()], {"NODE_NAME": "node"})


def _profile(written: Written) -> Iterator[str]:
    """A part of a profile, of whichever program has its plugins."""
    named = re.findall(r"name: (\w+)", written.text)
    if _OF_DESCHEDULER & set(named):
        yield from _lint({**_DESCHEDULER, "profiles": [{"name": "shown", **written.value}]})
    else:
        yield from _lint({**_SCHEDULER, "profiles": [{"schedulerName": "shown", **written.value}]})


def _is_of_k9s(written: Written) -> bool:
    return written.keys == {"plugins"} and all("shortCut" in each for each in written.value["plugins"].values())


def _k9s_plugins(written: Written) -> Iterator[str]:
    for name, plugin in written.value["plugins"].items():
        yield from (f"{name} has no {field}" for field in REQUIRED - plugin.keys())
        yield from (
            f"{name}.{field} is none that k9s reads"
            for field, value in plugin.items()
            if not isinstance(value, FIELDS.get(field, ()))
        )


def _arguments_of_fit(written: Written) -> Iterator[str]:
    arguments = [{"name": "NodeResourcesFitPlus", "args": written.value}]
    yield from _lint({**_SCHEDULER, "profiles": [{"schedulerName": "shown", "pluginConfig": arguments}]})


def _colocation(written: Written) -> Iterator[str]:
    """A strategy, in the ConfigMap where it is written."""
    yield from _slo_configuration(
        {"colocation-config": msgspec.json.encode({"enable": True, **written.value}).decode()}
    )


def _slo_configuration(data: Mapping[str, str]) -> Iterator[str]:
    metadata = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    yield from _lint({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)})


def _metadata(written: Written) -> Iterator[str]:
    """Labels and annotations: those that pods have, and those of other kinds."""
    yield from _annotations(written.value["metadata"].get("annotations", {}))
    labels = {"labels": written.value["metadata"].get("labels", {})}
    yield from _lint({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shown", **labels}})


def _annotations(given: Mapping[str, str]) -> Iterator[str]:
    for key, text in given.items():
        if key not in _known_annotations():
            yield f"no program reads the annotation {key}"
        if text.startswith(("{", "[")):
            msgspec.json.decode(text)


@cache
def _known_annotations() -> frozenset[str]:
    """Those of the project, and those that only simulated nodes read."""
    declared = {value for value in vars(annotation_keys).values() if isinstance(value, str)}
    sources = (path.read_text() for path in (ROOT / "src/koordinator").rglob("*.py"))
    return frozenset(declared.union(*(_ANNOTATION.findall(text) for text in sources)))


def _values(written: Written) -> Iterator[str]:
    """Values of the chart, by the names that its schema has."""
    schema = values_schema(msgspec.json.decode((ROOT / "charts/koordinator/values.schema.json").read_bytes()))
    yield from _unknown_values(written.value, schema, schema["$defs"], "")


def _unknown_values(given: Any, schema: Document, definitions: Document, path: str) -> Iterator[str]:
    schema = definitions[schema["$ref"].removeprefix("#/$defs/")] if "$ref" in schema else schema
    properties = schema.get("properties", {})
    for name, value in given.items() if isinstance(given, dict) and properties else ():
        if name in properties:
            yield from _unknown_values(value, properties[name], definitions, f"{path}{name}.")
        elif not schema.get("additionalProperties"):
            yield f"the chart has no value {path}{name}"


def _changes(written: Written) -> Iterator[str]:
    read_changes(written.text, "shown", ROOT / "docs/examples", "default", read_objects)
    yield from ()


def _taken(read: Callable[[Written], object]) -> Callable[[Written], Iterator[str]]:
    """A reader that raises what is wrong."""

    def reader(written: Written) -> Iterator[str]:
        read(written)
        yield from ()

    return reader


def _scenario(written: Written) -> Iterator[str]:
    """Of simulated nodes; what is left out is that of the default."""
    parse_scenario(yaml.safe_dump({**plain_document(default_scenario()), **written.value}), "shown")
    yield from ()


def _resource_control(written: Written) -> Iterator[str]:
    for kind, parts in written.value.items():
        yield from (f"{kind} has no {name}" for name in parts.keys() - {"schemata", "schemataPerCache"})


def _has(*keys: str) -> Callable[[Written], bool]:
    return lambda written: set(keys) <= written.keys


def _only(*keys: str) -> Callable[[Written], bool]:
    return lambda written: bool(written.keys) and written.keys <= set(keys)


def _default_values() -> frozenset[str]:
    return frozenset(yaml.safe_load((ROOT / "charts/koordinator/values.yaml").read_text()))


_SLO_KEYS: Final = frozenset(key.name for key in ALL_KEYS)
_READERS: Final[tuple[tuple[Callable[[Written], bool], Callable[[Written], Iterator[str]]], ...]] = (
    (_has("apiVersion", "kind"), _object),
    (_has("profiles"), lambda written: _lint({**_SCHEDULER, **written.value})),
    (_is_of_k9s, _k9s_plugins),
    (_only("plugins", "pluginConfig"), _profile),
    (_only("resources"), _arguments_of_fit),
    # An API server reads these: see ``objects``.
    (_only("spec"), _taken(objects)),
    (lambda written: bool(written.keys) and written.keys <= _SPEC_OF_NODE_SLO, _taken(objects)),
    (
        lambda written: bool(written.keys) and written.keys <= _SLO_KEYS,
        lambda written: _slo_configuration(written.value),
    ),
    (_only("metadata"), _metadata),
    (lambda written: all("/" in key for key in written.keys or ("",)), lambda written: _annotations(written.value)),
    (lambda written: bool(written.keys & _SCENARIO), _scenario),
    (_only("changes"), _changes),
    (_only("gpu", "rdma", "fpga"), _taken(lambda written: read_allocated_devices(written.text))),
    (lambda written: isinstance(written.value, list), _taken(lambda written: decode_devices(written.text.encode()))),
    (lambda written: bool(written.keys) and written.keys <= _RESOURCE_CONTROL, _resource_control),
    (_has("remote-endpoint"), _taken(lambda written: parse_hook_file("shown", written.text.encode()))),
    (_only("nodeNames", "preferredNodeNames"), _taken(lambda written: msgspec.json.decode(written.text))),
    (_only("extensions"), _colocation),
    (lambda written: bool(written.keys) and written.keys <= _default_values(), _values),
)
"""By what they know, the most particular first."""
