# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection as a user gets it: built, installed, and without what only developers need."""

from __future__ import annotations

from functools import partial

import steps
from environments import AnsibleEnvironment, ansible_environments


def run() -> bool:
    results = steps.run_all([partial(_packaging, ansible) for ansible in ansible_environments()])
    return all(result.passed for result in results)


def _packaging(ansible: AnsibleEnvironment) -> steps.Result:
    environment = ansible.environment
    name = f"tests/packaging, {ansible.label}"
    return steps.pytest(name, environment.python, ["tests/packaging"], environment.local_variables())
