# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of faults of the rolling playbook: tests/matrix. Its short form has every fault once.

The environment variable CASES selects those whose name has one of its words, separated by commas.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from environments import ansible_environments
from project import CACHE, ROOT

CORES = CACHE / "matrix-cores.json"


def run() -> bool:
    return _run([])


def run_all() -> bool:
    return _run(["--all"])


def _run(options: list[str]) -> bool:
    cores = [
        (
            ansible.core.series,
            ansible.environment.program("ansible-playbook"),
            ansible.environment.local_variables(),
        )
        for ansible in ansible_environments()
    ]
    CORES.write_text(json.dumps(cores), encoding="utf-8")
    parts = [part.strip() for part in os.environ.get("CASES", "").split(",") if part.strip()]
    command: list[str | Path] = [
        sys.executable,
        "-B",
        ROOT / "tests" / "matrix" / "run.py",
        "--cores",
        CORES,
        *options,
        *parts,
    ]
    return subprocess.run(command, check=False).returncode == 0
