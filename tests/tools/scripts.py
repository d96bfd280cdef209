# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of the project that talk to the user themselves: they only get the environment they need."""

from __future__ import annotations

import subprocess
import sys

from environments import newest_ansible_environment
from project import ROOT


def run(script: str, local: bool) -> int:
    """Run a script of the project with the newest ansible-core on its PATH; return its exit status.

    Local scripts only ever reach this machine. For others a temporary directory of this machine would be wrong.
    """
    if not (ROOT / script).is_file():
        print(f"{script} is not there", file=sys.stderr)
        return 1
    environment = newest_ansible_environment().environment
    variables = environment.local_variables() if local else environment.variables()
    return subprocess.run([ROOT / script], cwd=ROOT, env=variables, check=False).returncode
