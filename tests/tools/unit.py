# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests: all of them with ansible-core, those of the plain Python parts on every CPython without it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import interpreters
import steps
from environments import AnsibleEnvironment, ansible_environments, plain_environment
from interpreters import Interpreter
from project import ROOT

# What runs on a VM with no Ansible around.
PLAIN = ("tests/unit/plugins/module_utils", "tests/unit/simulator", "tests/unit/watcher")


def run() -> bool:
    print(f"   {interpreters.describe()}", flush=True)
    jobs: list[Callable[[], steps.Result]] = [partial(_with_ansible, ansible) for ansible in ansible_environments()]
    jobs += [partial(_without_ansible, interpreter) for interpreter in interpreters.find_all()]
    results = steps.run_all(jobs, per_processor=2)
    return all(result.passed for result in results)


def _with_ansible(ansible: AnsibleEnvironment) -> steps.Result:
    environment = ansible.environment
    return steps.pytest(f"tests/unit, {ansible.label}", environment.python, ["tests/unit"], environment.variables())


def _without_ansible(interpreter: Interpreter) -> steps.Result:
    environment = plain_environment(interpreter)
    name = f"core, simulator and watcher, Python {interpreter.name}, no ansible"
    folders = [folder for folder in PLAIN if (ROOT / folder).is_dir()]
    return steps.pytest(name, environment.python, folders, environment.variables())
