"""What is on topics today stays readable: golden messages and schemas, per type and version."""

from __future__ import annotations

import copy
import json
from collections import Counter
from typing import get_args

import pytest

from agentworld.contract.codec import decode, encode
from agentworld.contract.events.trajectories import StepRelation
from agentworld.contract.schema import breaking_changes, schema_of
from agentworld.contract.topics import ALL_TOPICS, TOPICS_BY_NAME
from tests.contract.examples import all_examples
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
def test_schema_is_compatible_with_all_that_was_promised(spec, kind):
    promised = sorted((HERE / "schemas").glob(f"{kind.__struct_config__.tag}.v1*.json"))
    assert schema_path(str(kind.__struct_config__.tag), 1) in promised
    for path in promised:
        assert breaking_changes(json.loads(path.read_bytes()), schema_of(kind)) == [], path.name


def test_every_example_is_frozen():
    for topic, examples in all_examples().items():
        editions: Counter[str] = Counter()
        for event in examples:
            tag = str(event.__struct_config__.tag)
            editions[tag] += 1
            golden = golden_path(topic, tag, event.schema_version, editions[tag])
            assert golden.exists(), f"{golden.name}: run python -m tests.contract.freeze"
            assert schema_path(tag, event.schema_version, editions[tag]).exists()


def test_the_frozen_tree_of_a_seal_is_read_as_it_was_sealed():
    (golden,) = [path for path in GOLDEN if path.name == "trajectory_sealed.v1.2.json"]
    event = decode(TOPICS_BY_NAME["trajectories"], golden.read_bytes())
    by_id = {placed.step.step_id: placed for placed in event.steps}
    assert event.trained_branch is not None
    tip = by_id[event.trained_branch.tip_step_id]
    assert by_id[tip.parent_step_id].relation == "root"
    assert {placed.relation for placed in event.steps} == set(get_args(StepRelation))
    assert any(placed.superseded for placed in event.steps)
    assert {branch.tip_step_id for branch in event.branches} <= by_id.keys()


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
