# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""maintenance_journal, the part on the controller: who wants the lease, and who has left it behind."""

import os
import signal
import subprocess
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from ansible_collections.azops.maintenance.plugins.action import maintenance_journal as plugin
from ansible_collections.azops.maintenance.plugins.module_utils._lease import Holder, LeaseBox

US = plugin.run_id(os.getppid())


class Vm:
    """A VM with a real lease box, asked through the action plugin."""

    def __init__(self, monkeypatch, directory):
        self.calls = []
        self._box = LeaseBox(str(directory / "journal"))
        self._monkeypatch = monkeypatch

    def call(self, **arguments):
        task = MagicMock(args=arguments, check_mode=False, delegate_to=None, async_val=0, timeout=0)
        action = plugin.ActionModule(task, MagicMock(), MagicMock(check_mode=False), None, None, None)
        self._monkeypatch.setattr(action, "_execute_module", self._execute)
        return action.run(task_vars={"inventory_hostname": "web"})

    def acquire(self, **more):
        return self.call(action="acquire_lease", scope="web", **more)

    def _execute(self, module_args=None, task_vars=None):
        self.calls.append(dict(module_args))
        if module_args["action"] == "read":
            return {"entries": []}
        if module_args["action"] == "release_lease":
            lease = self._box.release(module_args["run_id"])
        else:
            holder = Holder(module_args["run_id"], module_args["controller"], module_args["pid"])
            lease = self._box.acquire("web", holder, 300, module_args.get("takeover_from"))
        held = lease is not None and lease.holder.run_id == module_args["run_id"]
        return {"lease": lease and lease.as_dict(), "lease_held": held}

    def give_to(self, run_id, controller=None, pid=1):
        self._box.acquire("web", Holder(run_id, controller or plugin.platform.node(), pid), 300)


@pytest.fixture
def vm(monkeypatch, tmp_path):
    return Vm(monkeypatch, tmp_path)


@pytest.fixture
def process():
    """A process that lives until the test ends it."""
    child = subprocess.Popen(["sleep", "600"])
    yield child
    child.kill()
    child.wait()


def end(process):
    process.kill()
    process.wait()


def test_a_lease_is_asked_for_in_the_name_of_the_running_ansible_playbook(vm):
    assert vm.acquire()["lease_held"]
    (call,) = vm.calls
    assert (call["run_id"], call["pid"], call["controller"]) == (US, os.getppid(), plugin.platform.node())


def test_two_tasks_of_one_run_have_the_same_name(vm):
    assert vm.acquire()["lease"]["run_id"] == vm.acquire()["lease"]["run_id"]


def test_a_lease_is_given_back_in_the_same_name(vm):
    vm.acquire()
    assert vm.call(action="release_lease") == {"lease": None, "lease_held": False}
    assert vm.calls[-1] == {"action": "release_lease", "run_id": US}


def test_a_name_that_the_user_gives_stays(vm):
    vm.acquire(run_id="mine", controller="here", pid=3)
    assert (vm.calls[0]["run_id"], vm.calls[0]["controller"], vm.calls[0]["pid"]) == ("mine", "here", 3)


def test_other_actions_go_to_the_module_as_they_are(vm):
    vm.call(action="read", vm="web_0")
    assert vm.calls == [{"action": "read", "vm": "web_0"}]


def test_the_arguments_of_the_task_are_not_changed(vm):
    arguments = {"action": "acquire_lease", "scope": "web"}
    vm.call(**arguments)
    assert arguments == {"action": "acquire_lease", "scope": "web"}


def test_a_lease_of_a_process_that_has_ended_is_taken_over_at_once(vm, process):
    dead = plugin.run_id(process.pid)
    vm.give_to(dead, pid=process.pid)
    end(process)
    result = vm.acquire()
    assert (result["lease_held"], result["lease"]["run_id"]) == (True, US)
    assert [call.get("takeover_from") for call in vm.calls] == [None, dead]


def test_a_lease_of_a_process_that_was_killed_but_not_yet_collected_is_taken_over(vm, process):
    vm.give_to(plugin.run_id(process.pid), pid=process.pid)
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert vm.acquire()["lease_held"]


def test_a_lease_of_a_process_that_lives_is_never_taken_over(vm, process):
    vm.give_to(plugin.run_id(process.pid), pid=process.pid)
    result = vm.acquire()
    assert (result["lease_held"], len(vm.calls)) == (False, 1)
    assert result["lease"]["pid"] == process.pid


def test_a_lease_is_taken_over_if_its_process_id_is_now_that_of_another_process(vm, process):
    earlier = "{0}1".format(plugin.run_id_prefix(process.pid))
    vm.give_to(earlier, pid=process.pid)
    assert vm.acquire()["lease_held"]


def test_a_lease_of_another_controller_is_never_taken_over(vm, process):
    vm.give_to(plugin.run_id(process.pid), controller="elsewhere", pid=process.pid)
    end(process)
    assert not vm.acquire()["lease_held"]
    assert len(vm.calls) == 1


@pytest.mark.parametrize("place", ["11111111-4026531836", ""])
def test_a_lease_from_another_container_or_machine_of_the_same_name_is_never_taken_over(
    vm, monkeypatch, process, place
):
    here = plugin.where_processes_are()
    monkeypatch.setattr(plugin, "where_processes_are", lambda: place)
    there = plugin.run_id(process.pid)
    monkeypatch.setattr(plugin, "where_processes_are", lambda: here)
    vm.give_to(there, pid=process.pid)
    end(process)
    assert not vm.acquire()["lease_held"]


def test_where_the_system_does_not_tell_what_runs_nothing_is_taken_over(vm, monkeypatch, process):
    monkeypatch.setattr(plugin, "where_processes_are", lambda: "")
    monkeypatch.setattr(plugin, "started_at", lambda pid: None)
    vm.give_to(plugin.run_id_prefix(process.pid) + "77", pid=process.pid)
    assert not vm.acquire()["lease_held"]


def test_a_lease_whose_holder_chose_its_own_name_is_never_taken_over(vm, process):
    vm.give_to("nightly", pid=process.pid)
    end(process)
    assert not vm.acquire()["lease_held"]


def test_a_lease_that_a_third_run_got_in_between_stays_with_it(vm, monkeypatch, process):
    dead = plugin.run_id(process.pid)
    vm.give_to(dead, pid=process.pid)
    end(process)
    execute = vm._execute

    def overtaken(module_args=None, task_vars=None):
        if "takeover_from" in module_args:
            vm._box.release(dead)
            vm.give_to("third", controller="elsewhere")
        return execute(module_args, task_vars)

    monkeypatch.setattr(vm, "_execute", overtaken)
    result = vm.acquire()
    assert (result["lease_held"], result["lease"]["run_id"]) == (False, "third")


@pytest.mark.parametrize("result", [{"failed": True, "msg": "no"}, {"unreachable": True}, {"lease": None}])
def test_an_answer_without_a_lease_is_given_back_as_it_is(vm, monkeypatch, result):
    monkeypatch.setattr(vm, "_execute", lambda module_args=None, task_vars=None: dict(result))
    assert vm.acquire() == result


def test_a_task_whose_ansible_playbook_was_killed_takes_no_lease(vm, monkeypatch):
    monkeypatch.setattr(plugin.multiprocessing, "parent_process", lambda: SimpleNamespace(pid=os.getppid() + 1))
    result = vm.acquire()
    assert result["failed"]
    assert vm.calls == []


def test_a_task_whose_ansible_playbook_lives_takes_it(vm, monkeypatch):
    monkeypatch.setattr(plugin.multiprocessing, "parent_process", lambda: SimpleNamespace(pid=os.getppid()))
    assert vm.acquire()["lease_held"]
