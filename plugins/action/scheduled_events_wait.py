# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waits on a VM in slices, so that the VM may go away and come back in between."""

import contextlib
import os
import signal
import time
from types import FrameType
from typing import Any, Dict, Iterator, List, Optional

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.azops.maintenance.plugins.module_utils._waiting import GONE_FOR, SLICE_SECONDS

DEFAULT_TIMEOUT = 900
ALARM_MARGIN = 25.0
PAUSE_WHEN_AWAY = 2.0
SHORTEST_SLICE = GONE_FOR + 2.0

display = Display()


class SliceTimeout(BaseException):
    """A slice that did not end. Not an Exception: connection plugins would take that for a reason to try again."""


class Away(Exception):
    """The VM could not be asked."""


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise SliceTimeout after some seconds. An alarm that a task's own timeout has set still rings in its time."""
    started = time.monotonic()

    def ring(_signal: int, _frame: Optional[FrameType]) -> None:
        raise SliceTimeout

    outer_seconds = signal.getitimer(signal.ITIMER_REAL)[0]
    if 0 < outer_seconds <= seconds:
        yield
        return
    outer_handler = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, outer_handler)
        if outer_seconds:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, outer_seconds - (time.monotonic() - started)))


class ActionModule(ActionBase):
    """Runs the module of the same name, one slice after the other."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        try:
            timeout = float(self._task.args.get("timeout", DEFAULT_TIMEOUT))
            longest_slice = min(SLICE_SECONDS, float(self._task.args.get("slice_seconds", SLICE_SECONDS)))
        except (TypeError, ValueError):
            return self._execute_module(task_vars=task_vars)
        host = self._task.delegate_to or task_vars.get("inventory_hostname")
        ansible_process = os.getppid()
        started = time.monotonic()
        away_since: Optional[float] = None
        times_away = 0
        result: Dict[str, Any] = {"met": False, "events": [], "reads": 0, "last_error": None, "started_at": None}
        while True:
            left = timeout - (time.monotonic() - started)
            try:
                started_at = result["started_at"]
                result = self._slice(max(SHORTEST_SLICE, min(longest_slice, left)), task_vars)
                result["started_at"] = started_at or result.get("started_at")
                away_since = None
            except Away as away:
                result = dict(result, last_error=str(away))
                away_since = away_since or time.monotonic()
                times_away += 1
            elapsed = time.monotonic() - started
            result.update(changed=False, elapsed=int(elapsed), times_away=times_away)
            if result.get("failed") or result["met"] or self._task.check_mode:
                return result
            state = describe(result, away_since and time.monotonic() - away_since)
            if os.getppid() != ansible_process:
                return dict(result, failed=True, msg="{0}: Ansible itself was ended.".format(host))
            if elapsed >= timeout:
                return dict(result, failed=True, msg=self._timed_out(host, timeout, state))
            line = "{0}: {1}, {2:.0f} s of at most {3:.0f} s: {4}".format(host, self._goal(), elapsed, timeout, state)
            display.display(line, stderr=True)
            if result["last_error"]:
                time.sleep(min(PAUSE_WHEN_AWAY, max(0.0, timeout - elapsed)))

    def _slice(self, seconds: float, task_vars: Dict[str, Any]) -> Dict[str, Any]:
        arguments = dict(self._task.args, slice_seconds=int(seconds))
        try:
            with alarm(seconds + ALARM_MARGIN):
                result = self._execute_module(module_args=arguments, task_vars=task_vars)
        except SliceTimeout:
            self._drop_connection()
            raise Away("no answer within {0:.0f} s".format(seconds + ALARM_MARGIN)) from None
        except AnsibleConnectionFailure as failure:
            self._drop_connection()
            raise Away(str(failure)) from None
        if "module_stdout" in result:
            self._connection._shell.tmpdir = None
            raise Away(
                "the module was ended ({0})".format(str(result.get("module_stderr") or "no message").strip()[:200])
            )
        return dict(result)

    def _drop_connection(self) -> None:
        """Leave nothing behind that hangs in a dropped link."""
        for child in child_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._connection._shell.tmpdir = None
        with contextlib.suppress(AnsibleError, OSError, SliceTimeout), alarm(ALARM_MARGIN):
            self._connection.reset()

    def _goal(self) -> str:
        ids = self._task.args.get("event_ids")
        events = "event {0}".format(", ".join(ids)) if isinstance(ids, list) and ids else "the selected events"
        goals = {"started": "waiting until {0} has started", "gone": "waiting until {0} is gone"}
        return goals.get(str(self._task.args.get("until")), "waiting for {0}").format(events)

    def _timed_out(self, host: Any, timeout: float, state: str) -> str:
        return (
            "{0}: {1}, but not within {2:.0f} s: {3}. Look at the VM with azops.maintenance.scheduled_events_info and"
            " in the Azure portal; running this again goes on waiting, a longer timeout waits longer.".format(
                host, self._goal(), timeout, state
            )
        )


def describe(result: Dict[str, Any], away_for: Optional[float]) -> str:
    """What is known of the events, and what stands in the way of knowing more."""
    seen = ", ".join("{event_type} {event_status}".format(**event) for event in result["events"]) or "no event"
    if away_for is not None:
        return "not reachable for {0:.0f} s, last seen: {1} ({2})".format(away_for, seen, result["last_error"])
    return "{0} ({1})".format(seen, result["last_error"]) if result["last_error"] else seen


def child_processes() -> List[int]:
    """The processes that this one started, such as an ssh that hangs; none where the system does not tell."""
    try:
        with open("/proc/self/task/{0}/children".format(os.getpid()), encoding="ascii") as children:
            return [int(child) for child in children.read().split()]
    except OSError:
        return []
