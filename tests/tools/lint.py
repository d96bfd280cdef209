# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that reads the sources without running them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import steps
from environments import Environment, lint_environment
from project import CACHE, COLLECTIONS, IN_COLLECTIONS, ROOT, copy_collection

TYPED = (
    "plugins",
    "roles/simulator/files",
    "tests/bench",
    "tests/matrix",
    "tests/packaging",
    "tests/system",
    "tests/testbed",
    "tests/tools",
)


def run() -> bool:
    environment = lint_environment()
    results = steps.run_all([*_tools(environment), *_types(environment)])
    return all(result.passed for result in results)


def _tools(environment: Environment) -> list[Callable[[], steps.Result]]:
    """The longest first."""
    env = environment.variables()
    commands: dict[str, list[str | Path]] = {
        "ansible-lint, profile production": ["ansible-lint", "--offline", "--strict", "--nocolor", "-q"],
        "antsibull-docs lint-collection-docs": [
            "antsibull-docs",
            "lint-collection-docs",
            "--plugin-docs",
            "--skip-rstcheck",
            "--disallow-unknown-collection-refs",
            COLLECTIONS / IN_COLLECTIONS,
        ],
        "antsibull-changelog lint": ["antsibull-changelog", "lint"],
        "ruff check": ["ruff", "check", "--no-cache"],
        "ruff format": ["ruff", "format", "--no-cache", "--check", "--diff"],
    }
    return [
        *(
            partial(steps.capture, name, [environment.program(str(program)), *arguments], env)
            for name, (program, *arguments) in commands.items()
        ),
        partial(_reuse, environment),
    ]


def _types(environment: Environment) -> list[Callable[[], steps.Result]]:
    folders = [folder for folder in TYPED if any((ROOT / folder).rglob("*.py"))]
    return [*(partial(_mypy, environment, folder) for folder in folders), partial(_mypy_watcher, environment)]


def _mypy(environment: Environment, folder: str) -> steps.Result:
    """Modules are checked under the names by which they import each other, programs as they lie there."""
    if folder == "plugins":
        modules: list[str | Path] = ["-p", "ansible_collections.azops.maintenance.plugins"]
        return _run_mypy(environment, folder, str(COLLECTIONS), modules)
    parts = (folder, "roles/simulator/files", "tests/testbed", "tests/matrix")
    path = os.pathsep.join(str(ROOT / part) for part in parts)
    return _run_mypy(environment, folder, path, [ROOT / folder])


def _mypy_watcher(environment: Environment) -> steps.Result:
    """With the core beside it, as the role installs it."""
    with tempfile.TemporaryDirectory(prefix="azops-mypy-") as place:
        Path(place, "azops_core").symlink_to(ROOT / "plugins" / "module_utils")
        Path(place, "azops_watcher").symlink_to(ROOT / "roles" / "watcher" / "files" / "azops_watcher")
        return _run_mypy(environment, "roles/watcher/files", place, ["-p", "azops_watcher"])


def _run_mypy(environment: Environment, folder: str, path: str, what: Sequence[str | Path]) -> steps.Result:
    """With a cache of its own, because several run at once."""
    command: list[str | Path] = [environment.program("mypy"), "--config-file", ROOT / "pyproject.toml"]
    command += ["--cache-dir", CACHE / "mypy" / folder.replace("/", "-"), *what]
    return steps.capture(f"mypy {folder}", command, environment.variables() | {"MYPYPATH": path})


def _reuse(environment: Environment) -> steps.Result:
    """On a copy: what is there must not depend on git, nor on what other targets have left."""
    with tempfile.TemporaryDirectory(prefix="azops-reuse-") as collections:
        copy = copy_collection(Path(collections))
        command: list[str | Path] = [environment.program("reuse"), "--root", copy, "lint", "--lines"]
        return steps.capture("reuse lint", command, environment.variables(), cwd=copy)
