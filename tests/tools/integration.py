# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Integration targets: tests/integration/targets/NAME/playbook.yml, run by ansible-playbook.

Each runs on the oldest and the newest ansible-core, and under each with the oldest Python that it manages and with its
own. A playbook finds one host, localhost, and two variables: integration_tmp, an empty directory of its own, and
integration_python, the target's Python. A target may bring an inventory.yml, which is read after ours.
The environment variable TARGETS, names separated by spaces, selects some of them.
"""

from __future__ import annotations

import json
import os
import tempfile
from functools import partial
from pathlib import Path

import steps
from environments import AnsibleEnvironment, ansible_environments
from interpreters import Interpreter
from project import OUTPUT, ROOT

TARGETS = ROOT / "tests" / "integration" / "targets"
# Waits for true time-outs most of the time, so it starts first and the others run beside it.
LONGEST = "scheduled_events_wait"


def run() -> bool:
    playbooks = _selected_playbooks()
    results = steps.run_all(
        [
            partial(_run_target, playbook, ansible, python)
            for ansible in ansible_environments()
            for python in ansible.target_pythons()
            for playbook in playbooks
        ],
        per_processor=2,
    )
    failed = [result.name for result in results if not result.passed]
    for name in failed:
        print(f"   failed: {name}")
    print(f"   {len(results) - len(failed)} passed, {len(failed)} failed", flush=True)
    return not failed


def _selected_playbooks() -> list[Path]:
    playbooks = sorted(TARGETS.glob("*/playbook.yml"), key=lambda found: (found.parent.name != LONGEST, found))
    if not playbooks:
        raise steps.SetupError(f"no integration target: {TARGETS.relative_to(ROOT)}/NAME/playbook.yml is not there")
    wanted = os.environ.get("TARGETS", "").split()
    unknown = set(wanted) - {playbook.parent.name for playbook in playbooks}
    if unknown:
        raise steps.SetupError(f"no such integration target: {', '.join(sorted(unknown))}")
    return [playbook for playbook in playbooks if not wanted or playbook.parent.name in wanted]


def _run_target(playbook: Path, ansible: AnsibleEnvironment, python: Interpreter) -> steps.Result:
    target = playbook.parent
    # A short path: sockets may be made below it.
    with tempfile.TemporaryDirectory(prefix="azops-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        (scratch / "tmp").mkdir()
        inventory = scratch / "inventory.json"
        host = {"ansible_connection": "local", "ansible_python_interpreter": str(python.path)}
        inventory.write_text(json.dumps({"all": {"hosts": {"localhost": host}}}), encoding="utf-8")
        variables = {"integration_tmp": str(scratch / "tmp"), "integration_python": str(python.path)}
        command: list[str | Path] = [ansible.environment.program("ansible-playbook"), "-i", inventory]
        if (target / "inventory.yml").is_file():
            command += ["-i", target / "inventory.yml"]
        command += ["-e", json.dumps(variables), playbook]
        return steps.capture(
            f"{target.name}, ansible-core {ansible.core.series}, target Python {python.name}",
            command,
            ansible.environment.local_variables(),
            cwd=target,
            log=OUTPUT / "integration" / f"{target.name}-{ansible.core.series}-py{python.name}.log",
        )
