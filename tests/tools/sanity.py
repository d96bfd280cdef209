# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-test sanity, all tests, on a real copy of the collection."""

from __future__ import annotations

import os
import re
import tempfile
from functools import partial
from pathlib import Path

import interpreters
import steps
from environments import AnsibleEnvironment, Environment, ansible_environments
from project import CACHE, OUTPUT, ROOT, copy_collection

# ansible-test keeps its own environments under HOME; these go away with `make clean`.
HOMES = CACHE / "home"

PIP_VERSION = """
import types
from ansible_test._internal.python_requirements import get_venv_packages
print(get_venv_packages(types.SimpleNamespace(version="{version}"))["pip"])
"""

# Stands where ansible-test would put a downloaded bootstrap script: the pip wheel of that version can install itself.
GET_PIP = """\
import os
import runpy
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), {wheel!r}))
sys.argv[1:] = ["install"] + [item for item in sys.argv[1:] if item not in ("--no-setuptools", "--no-wheel")]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def run() -> bool:
    results = steps.run_all([partial(_sanity, ansible) for ansible in ansible_environments()])
    return all(result.passed for result in results)


def _sanity(ansible: AnsibleEnvironment) -> steps.Result:
    environment = ansible.environment
    targets = [interpreter.name for interpreter in ansible.managed_pythons()]
    # One for each ansible-core: two that run at once do not wait for each other, nor mix what they install.
    home = HOMES / ansible.core.series
    _prepare_home(home)
    for name in targets:
        _prepare_pip(environment, name, home / ".ansible" / "test" / "cache")
    command = [environment.program("ansible-test"), "sanity", "--color", "no"]
    command += ["--controller", f"origin:python={environment.interpreter.name}"]
    for name in targets:
        command += ["--target-python", name]
    log = OUTPUT / f"sanity-{ansible.core.series}.log"
    # Not below the checkout: ansible-test would ask its git, which ignores .cache/.
    with tempfile.TemporaryDirectory(prefix="azops-sanity-") as collections:
        result = steps.capture(
            f"ansible-test sanity, {ansible.label}",
            command,
            _variables(environment, home),
            cwd=copy_collection(Path(collections)),
            log=log,
        )
    tests = set(re.findall(r'^Running sanity test "([^"]+)"', result.output, re.MULTILINE))
    return result._replace(
        passed=result.passed and bool(tests),
        output=_findings(result.output, log),
        note=f"{len(tests)} tests, target Pythons {targets[0]} to {targets[-1]}",
    )


def _findings(output: str, log: Path) -> str:
    """The errors without the installation of what the tests need; everything if there are none."""
    lines = [line for line in output.splitlines() if line.startswith(("ERROR: ", "FATAL: "))]
    return "\n".join([*lines, f"All output: {log.relative_to(ROOT)}"]) if lines else output


def _variables(environment: Environment, home: Path) -> dict[str, str]:
    unwanted = ("PYTHONPATH", "VIRTUAL_ENV")
    variables = {
        name: value
        for name, value in environment.variables().items()
        if name not in unwanted and not name.startswith("ANSIBLE_")
    }
    # The real interpreters: a version manager's shim may answer for a version that it does not run.
    own, rest = variables["PATH"].split(os.pathsep, 1)
    path = [own, *(str(interpreter.path.parent) for interpreter in interpreters.find_all()), rest]
    return variables | {"HOME": str(home), "PATH": os.pathsep.join(path)}


def _prepare_home(home: Path) -> None:
    """pip still has to find the user's settings when HOME is another directory."""
    for name in (".config/pip", ".pip"):
        theirs, ours = Path.home() / name, home / name
        ours.parent.mkdir(parents=True, exist_ok=True)
        if theirs.is_dir() and not ours.is_symlink():
            ours.symlink_to(theirs)


def _prepare_pip(environment: Environment, python: str, bootstrap: Path) -> None:
    """Give ansible-test the pip that it wants for this Python from where pip gets all packages."""
    version = _checked(environment, ["-c", PIP_VERSION.format(version=python)]).split()[-1]
    script = bootstrap / f"get_pip_{version.replace('.', '_')}.py"
    if script.exists():
        return
    bootstrap.mkdir(parents=True, exist_ok=True)
    _checked(
        environment,
        ["-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        + ["--dest", str(bootstrap), f"pip=={version}"],
    )
    wheel = next(bootstrap.glob(f"pip-{version}-*.whl"))
    script.write_text(GET_PIP.format(wheel=wheel.name), encoding="utf-8")


def _checked(environment: Environment, arguments: list[str]) -> str:
    result = steps.capture("", [environment.python, *arguments], environment.variables())
    if not result.passed:
        raise steps.SetupError(result.output)
    return result.output
