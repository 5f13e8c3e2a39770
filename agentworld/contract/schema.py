"""JSON Schemas of the events, and what makes a change to one breaking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agentworld.contract.events import Event

Schema = dict[str, Any]


def schema_of(event_type: type[Event]) -> Schema:
    """JSON Schema (2020-12) of one event type, with its parts under `$defs`."""
    return msgspec.json.schema(event_type)


def breaking_changes(old: Schema, new: Schema) -> list[str]:
    """Why a reader of `old` or a writer of `old` would break under `new`; empty if compatible.

    Allowed: a new optional property, a new definition, a changed description. Not allowed: a
    property removed, retyped or newly required, an enum value removed.
    """
    return list(_compare(old, new, old, new, "$", set()))


def _resolve(schema: Any, root: Schema) -> Any:
    while isinstance(schema, dict) and "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    return schema


def _compare(
    old: Any, new: Any, old_root: Schema, new_root: Schema, path: str, seen: set[str]
) -> Iterator[str]:
    if isinstance(old, dict) and (ref := old.get("$ref")):
        if ref in seen:
            return
        seen = seen | {ref}
    old, new = _resolve(old, old_root), _resolve(new, new_root)
    if not isinstance(old, dict) or not isinstance(new, dict):
        return
    for keyword in ("type", "const"):
        if old.get(keyword) != new.get(keyword):
            yield f"{path}: {keyword} {old.get(keyword)!r} became {new.get(keyword)!r}"
    if missing := set(map(str, old.get("enum", ()))) - set(map(str, new.get("enum", ()))):
        yield f"{path}: values {sorted(missing)} were removed"
    old_props, new_props = old.get("properties", {}), new.get("properties", {})
    for name in old_props.keys() - new_props.keys():
        yield f"{path}.{name}: removed"
    for name in set(new.get("required", ())) - set(old.get("required", ())):
        yield f"{path}.{name}: newly required"
    for name in set(old.get("required", ())) - set(new.get("required", ())):
        yield f"{path}.{name}: no longer always present"
    for name in old_props.keys() & new_props.keys():
        yield from _compare(old_props[name], new_props[name], old_root, new_root, f"{path}.{name}", seen)
    if "items" in old:
        yield from _compare(old["items"], new.get("items"), old_root, new_root, f"{path}[]", seen)
    if "anyOf" in old:
        yield from _alternatives(old["anyOf"], new.get("anyOf", [new]), old_root, new_root, path, seen)


def _alternatives(
    old: list[Any], new: list[Any], old_root: Schema, new_root: Schema, path: str, seen: set[str]
) -> Iterator[str]:
    for option in old:
        if not any(
            not list(_compare(option, candidate, old_root, new_root, path, seen)) for candidate in new
        ):
            yield f"{path}: alternative {option} is gone or changed"
