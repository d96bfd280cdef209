# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Says to a VM who wants its lease, and takes over what a dead process of this same controller has left."""

import multiprocessing
import os
import platform
from typing import Any, Dict, Mapping, Optional

from ansible.plugins.action import ActionBase

ENDED = ("Z", "X")


class ActionModule(ActionBase):
    """Runs the module of the same name."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        action = arguments.get("action")
        if action in ("acquire_lease", "release_lease") and not arguments.get("run_id"):
            pid = ansible_process()
            if pid is None:
                return {"failed": True, "msg": "ansible-playbook has ended, so nobody needs a lease any more."}
            arguments["run_id"] = run_id(pid)
            if action == "acquire_lease":
                arguments.update(controller=platform.node(), pid=pid)
        result: Dict[str, Any] = self._execute_module(module_args=arguments, task_vars=task_vars)
        if action == "acquire_lease" and is_held_by_the_dead(result):
            arguments["takeover_from"] = result["lease"]["run_id"]
            result = self._execute_module(module_args=arguments, task_vars=task_vars)
        return result


def ansible_process() -> Optional[int]:
    """The process of ansible-playbook; None if it was killed and this one, which it had started, goes on alone."""
    parent = multiprocessing.parent_process()
    return os.getppid() if parent is None or parent.pid == os.getppid() else None


def run_id(pid: int) -> str:
    """Names one run. A process id alone is used again, and means something only where it was given: on this machine
    since it was started, in this container."""
    return "{0}{1}".format(run_id_prefix(pid), started_at(pid))


def run_id_prefix(pid: int) -> str:
    return "{0}:{1}:{2}:".format(platform.node(), where_processes_are(), pid)


def where_processes_are() -> str:
    """What tells this machine and container from others of the same name; empty where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip().partition("-")[0]
        return "{0}-{1}".format(boot, os.stat("/proc/self/ns/pid").st_ino)
    except (OSError, ValueError):
        return ""


def started_at(pid: int) -> Optional[str]:
    """When a process started, None if there is no such process, it has ended, or the system does not tell."""
    try:
        with open("/proc/{0}/stat".format(pid), encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return None if fields[0] in ENDED else fields[19]
    except (OSError, IndexError):
        return None


def is_held_by_the_dead(result: Mapping[str, Any]) -> bool:
    """Whether the lease is with a process that is known to have ended. Only what ran where this process runs can be."""
    lease = result.get("lease")
    if result.get("lease_held") or not lease or lease["controller"] != platform.node() or not where_processes_are():
        return False
    holder = str(lease["run_id"])
    return holder.startswith(run_id_prefix(lease["pid"])) and holder != run_id(lease["pid"])
