# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is shown on real systemd hosts: the test bed's own test, then every molecule scenario."""

from __future__ import annotations

import os
import subprocess
import sys

import steps
from environments import molecule_environment
from project import OUTPUT, ROOT

TESTBED = ROOT / "tests" / "testbed" / "testbed.py"
CANNOT_RUN_HERE = 77


def run() -> bool:
    check = subprocess.run([sys.executable, TESTBED, "check"], check=False).returncode
    if check == CANNOT_RUN_HERE:
        return True
    if check != 0:
        return False
    environment = molecule_environment()
    env = environment.variables() | {"ANSIBLE": environment.program("ansible")}
    # Scenarios have hosts of their own and wait most of the time.
    workers = str(2 * (os.cpu_count() or 1))
    testbed = [sys.executable, str(TESTBED)]
    stages = [
        ("install what the test bed needs", [*testbed, "install"]),
        ("make the images", [*testbed, "image", "bookworm,bullseye,trixie"]),
        (
            "test bed: three releases, a real reboot, nothing left behind",
            [str(ROOT / "tests" / "testbed" / "selftest.sh")],
        ),
        ("molecule: every scenario", [environment.program("molecule"), "test", "--all", "--workers", workers]),
    ]
    return all(
        steps.run(name, command, env, log=OUTPUT / "hosts" / f"{number}.log", longest=1500).passed
        for number, (name, command) in enumerate(stages, 1)
    )
