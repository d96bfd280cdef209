# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The system test: a real fleet under load, through real reboots.

The environment variable CASES selects those whose name has one of its words, separated by commas.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from environments import newest_ansible_environment
from hosts import CANNOT_RUN_HERE, TESTBED
from project import ROOT

PAGE = ROOT / "docs" / "what-we-tested.md"


def run() -> bool:
    return _run([])


def run_full() -> bool:
    return _run(["--full"] if _parts() else ["--full", "--page", str(PAGE)])


def _parts() -> list[str]:
    return [part.strip() for part in os.environ.get("CASES", "").split(",") if part.strip()]


def _run(options: list[str]) -> bool:
    check = subprocess.run([sys.executable, TESTBED, "check"], check=False).returncode
    if check == CANNOT_RUN_HERE:
        return True
    environment = newest_ansible_environment().environment
    command: list[str | Path] = [environment.python, "-B", ROOT / "tests" / "system" / "run.py", *options, *_parts()]
    return check == 0 and subprocess.run(command, env=environment.variables(), check=False).returncode == 0
