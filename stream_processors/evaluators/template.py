"""Rubrics with places for a trajectory's texts: `{{answer}}`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

PLACES = ("messages", "answer", "ground_truth")
"""Beside `metadata.NAME`."""

_PLACE = re.compile(r"\{\{\s*([\w.\-]*)\s*\}\}")
_METADATA = "metadata."


def check_template(template: str) -> None:
    """Raise `ValueError` where the template names what there is not, or nothing of the trajectory."""
    named = places(template)
    for name in named:
        if not _known(name):
            raise ValueError(
                f"the rubric names {{{{{name}}}}}: there are {', '.join(f'{{{{{n}}}}}' for n in PLACES)} "
                "and {{metadata.NAME}}"
            )
    if not named:
        raise ValueError("the rubric names nothing of the trajectory: write {{messages}} or {{answer}}")


def places(template: str) -> set[str]:
    """The names in the template."""
    return set(_PLACE.findall(template))


def filled(template: str, values: Mapping[str, Callable[[], str]]) -> str:
    """The template with each place replaced by its value, once: what is filled in is never a template.

    `metadata.NAME` is looked up under its full name.
    """
    made: dict[str, str] = {}

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in made:
            made[name] = values[name]()
        return made[name]

    return _PLACE.sub(value, template)


def _known(name: str) -> bool:
    return name in PLACES or (name.startswith(_METADATA) and len(name) > len(_METADATA))
