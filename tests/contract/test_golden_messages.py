"""What is on topics today stays readable: golden messages and schemas, per type and version."""

from __future__ import annotations

import copy
import json

import pytest

from agentworld.contract.codec import decode, encode
from agentworld.contract.schema import breaking_changes, schema_of
from agentworld.contract.topics import ALL_TOPICS, TOPICS_BY_NAME
from tests.contract.freeze import HERE, golden_path, schema_path

GOLDEN = sorted((HERE / "golden").glob("*/*.json"))
TYPES = [(spec, kind) for spec in ALL_TOPICS for kind in spec.event_types]


def _contains(new: object, old: object) -> bool:
    """Everything `old` says, `new` says too; fields added since may stand beside it."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(key in new and _contains(new[key], value) for key, value in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_contains, new, old))
    return new == old


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_golden_message_is_read_and_written_unchanged(path):
    golden = path.read_bytes()
    event = decode(TOPICS_BY_NAME[path.parent.name], golden)
    assert _contains(json.loads(encode(event)), json.loads(golden))


@pytest.mark.parametrize(("spec", "kind"), TYPES, ids=lambda v: getattr(v, "name", None) or v.__name__)
def test_every_event_type_has_a_golden_message_and_a_schema(spec, kind):
    tag = str(kind.__struct_config__.tag)
    assert golden_path(spec.name, tag, 1).exists(), "run python -m tests.contract.freeze"
    assert schema_path(tag, 1).exists(), "run python -m tests.contract.freeze"


@pytest.mark.parametrize(("spec", "kind"), TYPES, ids=lambda v: getattr(v, "name", None) or v.__name__)
def test_schema_is_compatible_with_what_was_promised(spec, kind):
    promised = json.loads(schema_path(str(kind.__struct_config__.tag), 1).read_bytes())
    assert breaking_changes(promised, schema_of(kind)) == []


def _promised() -> dict:
    return json.loads(schema_path("step_captured", 1).read_bytes())


def _drop_field(schema):
    del schema["$defs"]["StepCaptured"]["properties"]["response_ids"]


def _retype_nested(schema):
    schema["$defs"]["PromptDelta"]["properties"]["keep_tokens"]["type"] = "string"


def _require_new(schema):
    schema["$defs"]["StepRequest"]["required"].append("client")


def _remove_enum_value(schema):
    schema["$defs"]["StepCaptured"]["properties"]["status"]["enum"].remove("cancelled")


def _lose_null(schema):
    schema["$defs"]["StepCaptured"]["properties"]["error"] = {"$ref": "#/$defs/StepError"}


def _retype_items(schema):
    schema["$defs"]["StepCaptured"]["properties"]["response_logprobs"]["items"]["type"] = "string"


@pytest.mark.parametrize(
    "change", [_drop_field, _retype_nested, _require_new, _remove_enum_value, _lose_null, _retype_items]
)
def test_breaking_change_is_found(change):
    changed = copy.deepcopy(_promised())
    change(changed)
    assert breaking_changes(_promised(), changed)


def test_new_optional_field_is_compatible():
    changed = copy.deepcopy(_promised())
    changed["$defs"]["StepCaptured"]["properties"]["new"] = {"type": "string", "default": ""}
    assert breaking_changes(_promised(), changed) == []
