# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the CPython interpreters of this machine: on the PATH and in pyenv."""

from __future__ import annotations

import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

OLDEST = (3, 6)

# Run by every candidate. The base executable is what a virtual environment or a pyenv shim stands for.
PROBE = """
import json, platform, sys
try:
    import ensurepip, venv
    usable = True
except ImportError:
    usable = False
base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps([platform.python_implementation(), sys.version_info[:3], base, usable]))
"""


class Interpreter(NamedTuple):
    release: tuple[int, int, int]
    path: Path

    @property
    def version(self) -> tuple[int, int]:
        return self.release[:2]

    @property
    def name(self) -> str:
        return name_of(self.version)


def name_of(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


@cache
def find_all() -> tuple[Interpreter, ...]:
    """The newest usable CPython of each minor version from 3.6 on, oldest version first."""
    found: dict[tuple[int, int], Interpreter] = {}
    for candidate in _candidates():
        interpreter = _probe(candidate)
        if interpreter is None or interpreter.version < OLDEST:
            continue
        known = found.get(interpreter.version)
        if known is None or interpreter.release > known.release:
            found[interpreter.version] = interpreter
    return tuple(found[version] for version in sorted(found))


def find(*versions: tuple[int, int]) -> Interpreter | None:
    """The first of these versions that the machine has."""
    by_version = {interpreter.version: interpreter for interpreter in find_all()}
    return next((by_version[version] for version in versions if version in by_version), None)


def describe() -> str:
    """One line: which Pythons are used, and which are not there."""
    have = {interpreter.version for interpreter in find_all()}
    newest = max(have, default=OLDEST)
    missing = [name_of((3, minor)) for minor in range(OLDEST[1], newest[1]) if (3, minor) not in have]
    used = ", ".join(".".join(map(str, interpreter.release)) for interpreter in find_all())
    return f"CPython on this machine: {used}; not here: {', '.join(missing) or 'none'}"


def _candidates() -> list[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    directories = [Path(entry).absolute() for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    directories = [directory for directory in directories if directory != pyenv / "shims"]
    directories.extend(sorted(pyenv.glob("versions/*/bin")))
    candidates: dict[Path, Path] = {}
    for directory in directories:
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in names:
            if re.fullmatch(r"python3(\.\d+)?", name):
                path = directory / name
                real = path.resolve()
                # A version manager may serve all names from one program: those stay apart.
                candidates.setdefault(real if real.name.startswith("python") else path, path)
    return list(candidates.values())


def _probe(candidate: Path) -> Interpreter | None:
    try:
        answer = subprocess.run(
            [candidate, "-I", "-c", PROBE], capture_output=True, text=True, timeout=20, check=False, cwd="/"
        )
        implementation, release, base, usable = json.loads(answer.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    if implementation != "CPython" or not usable:
        return None
    return Interpreter(tuple(release), Path(base))
