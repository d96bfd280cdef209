#!/usr/bin/python
# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: drain_command
short_description: Take a VM out of service by your own commands, and put it back
version_added: 0.1.0
description:
  - Runs programs with their arguments, never through a shell.
  - The journal remembers by their names which commands were run, never the commands. What undoes them is what
    O(commands) says at that time.
  - A command that is not over in time is killed, with all that it started in its process group.
extends_documentation_fragment:
  - azops.maintenance.scheduled_events
  - azops.maintenance.drain
  - azops.maintenance.attributes
  - azops.maintenance.attributes.actiongroup_maintenance
attributes:
  check_mode:
    support: full
    details: No command is run, not even one of O(commands[].verify).
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  commands:
    description: The commands, in the order in which they are run. They are undone in the reverse order.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: The name by which the journal remembers that it was run. Each has its own.
        type: str
        required: true
      drain:
        description:
          - What takes the VM out. It is run once; again only if it did not succeed, or if O(commands[].verify) says
            that the VM is not out any more.
        type: list
        elements: str
      verify:
        description: What ends with 0 if the VM is out. Run after O(commands[].drain), and whenever it is asked for.
        type: list
        elements: str
      restore:
        description: What puts the VM back.
        type: list
        elements: str
      chdir:
        description: The directory to run them in.
        type: path
seealso:
  - module: azops.maintenance.maintenance_journal
author:
  - The azops.maintenance contributors (@azops)
"""

EXAMPLES = r"""
- name: Leave the cluster
  azops.maintenance.drain_command:
    event_ids: ["{{ event_id }}"]
    vm: web_0
    commands: &commands
      - name: membership
        drain: [/usr/local/bin/cluster, leave]
        verify: [/usr/local/bin/cluster, is-out]
        restore: [/usr/local/bin/cluster, join]
  become: true

- name: Join it again
  azops.maintenance.drain_command:
    state: restored
    event_ids: ["{{ event_id }}"]
    vm: web_0
    commands: *commands
  become: true
"""

RETURN = r"""
commands:
  description: What was run, or would be, in order.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The command's name.
      type: str
      sample: membership
    ran:
      description: What of it was run.
      type: list
      elements: str
      sample: [drain, verify]
error_kind:
  description: What kind of error it was.
  returned: failure
  type: str
  sample: drain
"""

from typing import Any, Dict, List, Optional

from ansible.module_utils.basic import AnsibleModule, env_fallback

from ansible_collections.azops.maintenance.plugins.module_utils._drain import (
    DRAINED,
    Deadline,
    Record,
    drain_options,
    fact,
)
from ansible_collections.azops.maintenance.plugins.module_utils._errors import DrainError, InputError
from ansible_collections.azops.maintenance.plugins.module_utils._journal import Journal
from ansible_collections.azops.maintenance.plugins.module_utils._module import common_options, run
from ansible_collections.azops.maintenance.plugins.module_utils._processes import run_program

BACKEND = "command"
LONGEST_OUTPUT = 500


class Commands:
    """The user's commands for one VM, and what is run of them."""

    def __init__(self, record: Record, deadline: Deadline, dry_run: bool) -> None:
        self._record = record
        self._deadline = deadline
        self._dry_run = dry_run
        self.changed = False

    def drain(self, commands: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        return [{"name": command["name"], "ran": self._drain(command)} for command in commands]

    def restore(self, commands: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        by_name = {command["name"]: command for command in commands}
        changes = self._record.to_undo()
        results = []
        for name in unique([fact(change.facts, "name", str) for change in changes]):
            if name not in by_name:
                raise InputError(
                    "{0}: the command {1!r} was run at the drain, and nothing says any more how to undo it.".format(
                        self._record.about, name
                    ),
                    "Put it back into drain_commands, then run the playbook again.",
                )
            ran = self._run_all(by_name[name], ["restore"])
            for change in changes:
                if change.facts["name"] == name:
                    self._record.forget(change)
            self.changed = True
            results.append({"name": name, "ran": ran})
        return results

    def _drain(self, command: Dict[str, Any]) -> List[str]:
        known = [change.facts for change in self._record.known() if change.facts.get("name") == command["name"]]
        if any(facts.get("finished") for facts in known) and self._is_still_out(command):
            return ["verify"] if command["verify"] else []
        self._record.remember({"name": command["name"], "finished": False})
        self.changed = True
        ran = self._run_all(command, ["drain", "verify"])
        self._record.remember({"name": command["name"], "finished": True})
        return ran

    def _is_still_out(self, command: Dict[str, Any]) -> bool:
        return not command["verify"] or self._dry_run or self._run(command, "verify") is None

    def _run_all(self, command: Dict[str, Any], verbs: List[str]) -> List[str]:
        wanted = [verb for verb in verbs if command[verb]]
        for verb in [] if self._dry_run else wanted:
            problem = self._run(command, verb)
            if problem is not None:
                raise DrainError(
                    "{0}: the {1} command of {2!r} {3}.".format(self._record.about, verb, command["name"], problem),
                    "Mend that, or correct drain_commands, then run the playbook again.",
                )
        return wanted

    def _run(self, command: Dict[str, Any], verb: str) -> Optional[str]:
        """What was wrong; None if nothing."""
        try:
            outcome = run_program(command[verb], self._deadline.left, directory=command["chdir"])
        except OSError as error:
            return "cannot be run: {0}".format(error.strerror)
        if outcome.timed_out:
            return "was not over within {0:.0f} s and was killed".format(self._deadline.seconds)
        if outcome.status == 0:
            return None
        words = " ".join(outcome.output[-LONGEST_OUTPUT:].split())
        return "ended with {0}: {1}".format(outcome.status, words or "it said nothing")


def unique(names: List[str]) -> List[str]:
    return list(dict.fromkeys(names))


def act(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    names = [command["name"] for command in params["commands"]]
    if len(unique(names)) != len(names):
        raise InputError("Two commands have the same name.", "Give each of drain_commands a name of its own.")
    journal = Journal(params["journal_dir"], dry_run=module.check_mode)
    record = Record(journal, BACKEND, params["event_ids"], params["vm"])
    commands = Commands(record, Deadline(params["timeout"]), bool(module.check_mode))
    is_drain = params["state"] == DRAINED
    results = commands.drain(params["commands"]) if is_drain else commands.restore(params["commands"])
    after = {result["name"]: result["ran"] for result in results}
    return {"changed": commands.changed, "commands": results, "diff": {"before": {}, "after": after}}


def main() -> None:
    argv = {"type": "list", "elements": "str"}
    module = AnsibleModule(
        argument_spec=dict(
            **common_options(env_fallback),
            **drain_options(),
            commands={
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "drain": argv,
                    "verify": argv,
                    "restore": argv,
                    "chdir": {"type": "path"},
                },
            },
        ),
        supports_check_mode=True,
    )
    run(module, act)


if __name__ == "__main__":
    main()
