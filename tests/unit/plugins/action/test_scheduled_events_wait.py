# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""scheduled_events_wait, the part on the controller: a VM may go away and come back in the middle."""

import signal
import subprocess
import time
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.azops.maintenance.plugins.action import scheduled_events_wait as plugin

STILL_THERE = {
    "met": False,
    "reads": 20,
    "last_error": None,
    "events": [{"event_type": "Reboot", "event_status": "Started"}],
}
MET = {"met": True, "reads": 6, "last_error": None, "events": []}
KILLED = {"failed": True, "msg": "MODULE FAILURE", "module_stdout": "", "module_stderr": "Killed"}
AWAY = AnsibleConnectionFailure("ssh: connect to host web port 22: No route to host")


class FakeTime:
    """Time that passes only in slices and pauses."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Wait:
    """The action plugin on a VM whose answers are given beforehand, the last one again and again."""

    def __init__(self, monkeypatch, answers, **arguments):
        self.time = FakeTime()
        self.slices = []
        self.lines = []
        self._answers = list(answers)
        monkeypatch.setattr(plugin, "time", self.time)
        monkeypatch.setattr(plugin.display, "display", lambda line, stderr=False: self.lines.append((line, stderr)))
        arguments = dict({"until": "gone", "event_ids": ["E1"]}, **arguments)
        task = MagicMock(args=arguments, check_mode=False, delegate_to=None, async_val=0, timeout=0)
        self.connection = MagicMock()
        self.action = plugin.ActionModule(task, self.connection, MagicMock(check_mode=False), None, None, None)
        self.task = task
        monkeypatch.setattr(self.action, "_execute_module", self._answer)

    def _answer(self, module_args=None, task_vars=None):
        self.slices.append(module_args["slice_seconds"])
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, BaseException):
            self.time.sleep(10)
            raise answer
        self.time.sleep(module_args["slice_seconds"])
        return dict(answer)

    def run(self):
        return self.action.run(task_vars={"inventory_hostname": "web"})


def test_it_ends_when_the_condition_is_met(monkeypatch):
    result = Wait(monkeypatch, [STILL_THERE, STILL_THERE, MET]).run()
    assert result["met"]
    assert not result.get("failed")
    assert (result["changed"], result["elapsed"], result["times_away"]) == (False, 60, 0)


def test_a_vm_that_goes_away_and_comes_back_is_waited_for(monkeypatch):
    wait = Wait(monkeypatch, [STILL_THERE, AWAY, KILLED, plugin.SliceTimeout(), MET])
    result = wait.run()
    assert result["met"]
    assert result["times_away"] == 3
    assert wait.connection.reset.call_count == 2


def test_a_vm_that_is_away_from_the_start_is_waited_for(monkeypatch):
    assert Wait(monkeypatch, [AWAY, MET]).run()["met"]


def test_a_vm_that_never_comes_back_fails_with_host_event_and_remedy(monkeypatch):
    result = Wait(monkeypatch, [STILL_THERE, AWAY], timeout=300).run()
    assert result["failed"]
    assert result["elapsed"] >= 300
    for words in ("web", "E1", "not within 300 s", "not reachable for", "Reboot Started", "running this again"):
        assert words in result["msg"]


def test_an_event_that_stays_fails_after_the_timeout(monkeypatch):
    wait = Wait(monkeypatch, [STILL_THERE], timeout=50)
    result = wait.run()
    assert result["failed"]
    assert "Reboot Started" in result["msg"]
    assert sum(wait.slices) == pytest.approx(50, abs=plugin.SHORTEST_SLICE)


def test_no_slice_is_longer_than_twenty_seconds(monkeypatch):
    wait = Wait(monkeypatch, [STILL_THERE], timeout=200)
    wait.run()
    assert max(wait.slices) == 20


def test_the_last_slice_is_long_enough_to_see_an_event_gone(monkeypatch):
    wait = Wait(monkeypatch, [STILL_THERE], timeout=21)
    wait.run()
    assert min(wait.slices) > plugin.GONE_FOR


def test_each_slice_leaves_one_line_of_progress_on_stderr(monkeypatch):
    wait = Wait(monkeypatch, [STILL_THERE, AWAY, MET], timeout=600)
    wait.run()
    assert len(wait.lines) == 2
    assert all(stderr for _line, stderr in wait.lines)
    assert wait.lines[0][0] == "web: waiting until event E1 is gone, 20 s of at most 600 s: Reboot Started"
    assert "No route to host" in wait.lines[1][0]


def test_an_error_of_the_module_itself_ends_the_wait(monkeypatch):
    wait = Wait(monkeypatch, [{"failed": True, "msg": "value of until must be one of"}])
    assert wait.run()["failed"]
    assert len(wait.slices) == 1


def test_an_error_that_is_not_about_the_connection_is_not_waited_out(monkeypatch):
    with pytest.raises(AnsibleError):
        Wait(monkeypatch, [AnsibleError("no such module")]).run()


def test_a_timeout_of_nothing_looks_once(monkeypatch):
    wait = Wait(monkeypatch, [STILL_THERE], timeout=0)
    assert wait.run()["failed"]
    assert len(wait.slices) == 1


def test_a_wait_whose_ansible_was_killed_does_not_go_on_alone(monkeypatch):
    wait = Wait(monkeypatch, [STILL_THERE])
    parents = iter([100, 100, 1])
    monkeypatch.setattr(plugin.os, "getppid", lambda: next(parents))
    assert wait.run()["failed"]
    assert len(wait.slices) == 2


def test_check_mode_asks_once(monkeypatch):
    wait = Wait(monkeypatch, [STILL_THERE])
    wait.task.check_mode = True
    assert not wait.run().get("failed")
    assert len(wait.slices) == 1


def test_a_call_that_hangs_is_ended_by_the_alarm():
    with pytest.raises(plugin.SliceTimeout), plugin.alarm(0.05):
        signal.pause()


def test_a_call_that_ends_in_time_leaves_no_alarm_behind():
    with plugin.alarm(30):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_alarm_of_the_task_itself_still_rings_after_a_slice():
    class TaskTimeout(BaseException):
        pass

    def ring(_signal, _frame):
        raise TaskTimeout

    before = signal.signal(signal.SIGALRM, ring)
    try:
        slices = 0
        with pytest.raises(TaskTimeout):
            signal.setitimer(signal.ITIMER_REAL, 1.5)
            with plugin.alarm(0.05), pytest.raises(plugin.SliceTimeout):
                signal.pause()
            slices += 1
            signal.pause()
        assert slices == 1
        with pytest.raises(TaskTimeout):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with plugin.alarm(30):
                signal.pause()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_what_a_hanging_call_started_is_ended_with_it(monkeypatch):
    wait = Wait(monkeypatch, [MET])
    child = subprocess.Popen(["sleep", "60"])
    started = time.monotonic()
    wait.action._drop_connection()
    assert child.wait(timeout=10) == -signal.SIGKILL
    assert time.monotonic() - started < 10
