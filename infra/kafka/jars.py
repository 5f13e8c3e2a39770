"""Apache Kafka's jars, resolved once by Maven from `pom.xml` into `libs/`."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from infra.local.child import LaunchError

HERE = Path(__file__).parent
_MAVEN_TIMEOUT_S = 600
_MAVEN_TRIES = 3
_JAVA_MINIMUM = 17


def java() -> str:
    """The `java` program, version 17 or later. Raises `LaunchError` saying what to install."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin") if home else None
    program = program or shutil.which("java")
    if program is None:
        raise LaunchError(
            "Apache Kafka needs Java 17 and none was found: install a JRE "
            "(Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
        )
    output = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=60)
    version = re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout)
    if version is None or int(version[1]) < _JAVA_MINIMUM:
        found = version[1] if version else "unknown"
        raise LaunchError(f"Apache Kafka needs Java 17 or later; {program} is version {found}: set JAVA_HOME")
    return program


def kafka_jars(libs: Path = HERE / "libs") -> Path:
    """The folder with the jars, resolving them first if `pom.xml` changed or they are not there.

    Safe with several processes at once: one resolves, the others wait. Raises `LaunchError`.
    """
    pom = HERE / "pom.xml"
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()
    complete = libs / ".complete"
    libs.mkdir(parents=True, exist_ok=True)
    with (libs / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists() or complete.read_text() != digest:
            complete.unlink(missing_ok=True)
            for jar in libs.glob("*.jar"):
                jar.unlink()
            _resolve(pom, libs)
            complete.write_text(digest)
    return libs


def _resolve(pom: Path, libs: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise LaunchError(
            "Apache Kafka's jars are resolved with Maven and mvn was not found: install Maven 3.8 or later "
            "(Debian: apt-get install maven)"
        )
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={libs.absolute()}"]
    command = [maven, "-q", "-B", "-f", str(pom), *goal]
    output = ""
    for _ in range(_MAVEN_TRIES):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_MAVEN_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            output = f"no end within {_MAVEN_TIMEOUT_S} s"
            continue
        if done.returncode == 0:
            return
        output = done.stdout + done.stderr
    raise LaunchError(f"Maven could not resolve Apache Kafka's jars ({' '.join(command)}):\n{output[-2000:]}")
