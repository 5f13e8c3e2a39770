"""Rules by flat names, as settings write them: `rules(grace_ms=0, batch_groups=2)`."""

from __future__ import annotations

from typing import Any

import msgspec

from stream_processors.rules import Rules, SealRules

SECTIONS = ("group", "reward", "batch")


def rules(**limits: Any) -> Rules:
    """`seal`'s fields by their names, the other sections' as `<section>_<field>`, the rest as they are."""
    values: dict[str, Any] = {"seal": {}, "group": {}, "reward": {}, "batch": {}}
    for name, value in limits.items():
        section, _, field = name.partition("_")
        if name in SealRules.__struct_fields__:
            values["seal"][name] = value
        elif section in SECTIONS:
            values[section][field] = value
        else:
            values[name] = value
    return msgspec.convert(values, Rules)
