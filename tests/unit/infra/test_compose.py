"""The compose file and the images agree with the services; checked without a Docker engine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "infra/images/Dockerfile").read_text()


@pytest.fixture
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "infra/compose/compose.yaml").read_text())
    return loaded


def test_every_service_restarts_and_waits_for_what_it_needs(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"kafka", "clickhouse", "gateway", "processors", "sink"}
    assert {service["restart"] for service in services.values()} == {"unless-stopped"}
    for name in ("kafka", "clickhouse"):
        assert services[name]["healthcheck"]["test"]
    for name in ("gateway", "processors", "sink"):
        assert services[name]["depends_on"]["kafka"] == {"condition": "service_healthy"}


def test_images_are_pinned_and_volumes_declared(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        if "image" in service:
            assert re.search(r":\d+\.\d+", service["image"])
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert source in compose["volumes"] or (ROOT / "infra/compose" / source).exists()


def test_every_built_service_has_a_target_with_its_own_extra_alone(compose: dict[str, Any]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    stages = dict(re.findall(r"^FROM base AS (\w+)\n((?:(?!FROM).*\n?)*)", DOCKERFILE, flags=re.M))
    built = {service["build"]["target"] for service in compose["services"].values() if "build" in service}
    assert built == set(stages)
    for stage in stages.values():
        (extra,) = re.findall(r"'\.\[(\w+)\]'", stage)
        (module,) = re.findall(r'"-m", "(\w+)"\]$', stage.strip(), flags=re.M)
        assert extra in extras
        assert (ROOT / module / "__main__.py").exists()


def test_what_the_images_copy_exists() -> None:
    for line in re.findall(r"^COPY (.*)$", DOCKERFILE, flags=re.M):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
