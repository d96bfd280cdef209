# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment for a person at a shell."""

from __future__ import annotations

import os
import shlex

from environments import newest_ansible_environment
from project import CACHE, ROOT

FILE = CACHE / "environment"


def run() -> bool:
    """Write a file to be sourced, in which the newest ansible-core finds the checkout."""
    ansible = newest_ansible_environment()
    variables = ansible.environment.variables()
    changed = {name: value for name, value in variables.items() if os.environ.get(name) != value}
    changed["PATH"] = f"{ansible.environment.path / 'bin'}"
    lines = [
        f"export {name}={shlex.quote(value)}" + (":$PATH" if name == "PATH" else "")
        for name, value in sorted(changed.items())
    ]
    FILE.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(f"   {ansible.label}: source {FILE.relative_to(ROOT)}")
    return True
