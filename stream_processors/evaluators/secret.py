"""An API key that leaves the process in one header and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

from agentworld.contract.errors import InvalidInput

_HIDDEN = "***"


class Secret:
    """Shows as `***`. `hide` takes it out of texts that others wrote, e.g. an endpoint's error."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return _HIDDEN if self._value else "(none)"

    @property
    def headers(self) -> dict[str, str]:
        """The header that carries it; none without a key."""
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def hide(self, text: str) -> str:
        """`text` without the key."""
        return text.replace(self._value, _HIDDEN) if self._value else text


def read_secret(variable: str, environment: Mapping[str, str], *, whose: str) -> Secret:
    """The key in `variable`; an empty one where no variable is named. Raises `InvalidInput` naming it."""
    if not variable:
        return Secret("")
    value = environment.get(variable, "").strip()
    if not value:
        raise InvalidInput(
            f"evaluator {whose}: the environment variable {variable} is not set. Set it to the API key, or "
            "leave api_key_env out",
            code="no_api_key",
        )
    if not (value.isascii() and value.isprintable()):
        raise InvalidInput(
            f"evaluator {whose}: what {variable} holds cannot stand in a header", code="no_api_key"
        )
    return Secret(value)
