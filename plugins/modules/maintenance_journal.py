#!/usr/bin/python
# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: maintenance_journal
short_description: Read and write a VM's journal of what was drained
version_added: 0.1.0
description:
  - The journal is the durable record on a VM of what was drained, for which event, and how far it got. It is what
    lets a run that was killed, or a VM that was rebooted, be brought back to where it was, and nothing else be
    touched.
  - It holds facts, such as the units that were stopped, and never commands.
  - A change that is made elsewhere for a VM, on a load balancer say, is also written on the host where it is made,
    with that VM's name in O(vm).
  - It also keeps the lease of a scope, which lets one controller at a time act on it.
extends_documentation_fragment:
  - azops.maintenance.scheduled_events
  - azops.maintenance.attributes
  - azops.maintenance.attributes.actiongroup_maintenance
attributes:
  action:
    description: Indicates this has a corresponding action plugin so some parts of the options can be executed on
      the controller.
    support: full
  check_mode:
    support: full
    details: Says what would be written. Nothing is written, also no directory.
  diff_mode:
    support: full
  idempotent:
    support: full
    details: Renewing a lease moves the time at which it expires, and counts as a change.
options:
  action:
    description:
      - V(read) returns all entries, or the one of O(event_id) and O(vm).
      - V(begin) opens the entry of an event, before anything is drained. It is refused on a VM that is held.
      - V(change) adds a change to it, before that change is made.
      - V(undo) notes that a change was undone.
      - V(phase) notes how far it got.
      - V(close) ends the entry.
      - V(hand_over) is for a VM that is still out for another event when O(event_id) is over. What was changed for
        O(event_id) counts for that other event from then on, and is undone with it.
      - V(acquire_lease) takes or renews this VM's lease of O(scope) for O(run_id), or says who holds it.
      - V(release_lease) gives it back.
    type: str
    choices: [read, begin, change, undo, phase, close, hand_over, acquire_lease, release_lease]
    default: read
  event_id:
    description: The event. Compared without regard to case.
    type: str
  vm:
    description: The VM that is drained, by the name that Azure uses. Compared without regard to case.
    type: str
  also_over:
    description: Further events that are over, for O(action=hand_over).
    type: list
    elements: str
    default: []
  event_type:
    description: The type of the event, for O(action=begin).
    type: str
    default: Unknown
  resources:
    description: All VMs that the event hits, for O(action=begin).
    type: list
    elements: str
    default: []
  not_before:
    description: When Azure starts without being asked, for O(action=begin).
    type: str
  backend:
    description: What made the change, for O(action=change), such as V(systemd).
    type: str
  facts:
    description:
      - What was changed, for O(action=change). Words, numbers, booleans, and lists of those.
      - The same facts of the same backend are noted once.
    type: dict
  change_number:
    description: The change that was undone, for O(action=undo).
    type: int
  phase:
    description: The phase that was reached, for O(action=phase).
    type: str
    choices: [draining, drained, drain_failed, approved, started, gone, restoring, restore_failed]
  started_at:
    description: When the event started, if that was noticed elsewhere while the VM was away, for O(action=phase).
    type: str
  because:
    description: Why the entry is closed, for O(action=close).
    type: str
    default: restored
  abandon:
    description: Close the entry although not all its changes are undone, because the VM does not come back.
    type: bool
    default: false
  actor:
    description: Who does this, for the record.
    type: str
    default: ansible
  scope:
    description: The scope that a lease is for.
    type: str
  run_id:
    description: The run that wants or has the lease. By default the running ansible-playbook.
    type: str
  controller:
    description: The name of the controller host, for O(action=acquire_lease). By default the host that Ansible runs on.
    type: str
  pid:
    description: The process on the controller, for O(action=acquire_lease). By default that of ansible-playbook.
    type: int
  lease_seconds:
    description: For how long the lease is taken, by this VM's clock.
    type: int
    default: 300
  takeover:
    description: Take the lease from whoever holds it. Without it, that is done only if the holder ran on this same
      controller and its process is dead.
    type: bool
    default: false
  takeover_from:
    description: The run whose lease may be taken over, because it is known to be dead.
    type: str
seealso:
  - module: azops.maintenance.scheduled_events_info
author:
  - The azops.maintenance contributors (@azops)
"""

EXAMPLES = r"""
- name: Note that a drain begins
  azops.maintenance.maintenance_journal:
    action: begin
    event_id: "{{ event_id }}"
    vm: web_0
    event_type: Reboot
    resources: [web_0, web_1]
  become: true

- name: Note what is going to be stopped
  azops.maintenance.maintenance_journal:
    action: change
    event_id: "{{ event_id }}"
    vm: web_0
    backend: systemd
    facts:
      units: [nginx.service]
  become: true

- name: See what is open
  azops.maintenance.maintenance_journal:
  become: true
  register: journal
"""

RETURN = r"""
entries:
  description: All entries, oldest first, or the one that was asked for. Each is like RV(entry).
  returned: when O(action=read)
  type: list
  elements: dict
  sample: []
damaged:
  description: Files of the journal that cannot be understood. Each is a warning too.
  returned: when O(action=read)
  type: list
  elements: dict
  contains:
    file:
      description: The file.
      type: str
      sample: /var/lib/azops-maintenance/journal/0a1b.json
    reason:
      description: What is wrong with it.
      type: str
      sample: the key 'steps' is missing
entry:
  description: The entry after the action.
  returned: when O(action) is V(begin), V(change), V(undo), V(phase) or V(close)
  type: dict
  contains:
    event_id:
      description: The event.
      type: str
      sample: C7061BAC-AFDC-4513-B24B-AA5F13A16123
    vm:
      description: The VM that is drained.
      type: str
      sample: web_0
    event_type:
      description: The type of the event.
      type: str
      sample: Reboot
    resources:
      description: All VMs that the event hits.
      type: list
      elements: str
      sample: [web_0, web_1]
    not_before:
      description: When Azure starts without being asked.
      type: str
      sample: "2026-11-18T18:29:47Z"
    phase:
      description: The phase that was last reached, V(closed) at the end.
      type: str
      sample: drained
    is_open:
      description: Whether there is something left to do.
      type: bool
      sample: true
    steps:
      description: Every phase that was reached, with its time and actor.
      type: list
      elements: dict
      sample: [{phase: draining, at: "2026-11-18T18:15:14Z", actor: ansible}]
    changes:
      description: Every change that was made, in order, with RV(ignore:undone_at) when it was undone.
      type: list
      elements: dict
      sample:
        - number: 1
          backend: systemd
          facts: {units: [nginx.service]}
          made_at: "2026-11-18T18:15:14Z"
          undone_at: null
    approved_at:
      description: When the event was approved from this VM.
      type: str
      sample: null
    approved_by:
      description: Who approved it.
      type: str
      sample: null
    closed_because:
      description: Why the entry was closed.
      type: str
      sample: null
handed_over_to:
  description: The event that the VM is still out for, V(null) if there is none.
  returned: when O(action=hand_over)
  type: str
  sample: null
lease:
  description: The lease that is in force, V(null) if there is none.
  returned: when O(action) is V(acquire_lease) or V(release_lease)
  type: dict
  contains:
    scope:
      description: The scope.
      type: str
      sample: web
    run_id:
      description: The run that has it.
      type: str
      sample: 6f1c
    controller:
      description: The controller host of that run.
      type: str
      sample: ops1
    pid:
      description: The process of that run.
      type: int
      sample: 4711
    expires_at:
      description: When it ends unless it is renewed, by this VM's clock.
      type: str
      sample: "2026-11-18T18:20:14Z"
lease_held:
  description: Whether O(run_id) has the lease.
  returned: when O(action) is V(acquire_lease) or V(release_lease)
  type: bool
  sample: true
error_kind:
  description: What kind of error it was.
  returned: failure
  type: str
  sample: journal
"""

from typing import Any, Dict, Optional

from ansible.module_utils.basic import AnsibleModule, env_fallback

from ansible_collections.azops.maintenance.plugins.module_utils._errors import HeldError
from ansible_collections.azops.maintenance.plugins.module_utils._hold import held_by
from ansible_collections.azops.maintenance.plugins.module_utils._journal import OPEN_PHASES, Entry, Journal, Subject
from ansible_collections.azops.maintenance.plugins.module_utils._lease import Holder, Lease, LeaseBox
from ansible_collections.azops.maintenance.plugins.module_utils._module import common_options, run

ENTRY_ACTIONS = ("begin", "change", "undo", "phase", "close")
LEASE_ACTIONS = ("acquire_lease", "release_lease")


def act(module: AnsibleModule) -> Dict[str, Any]:
    action = module.params["action"]
    if action in LEASE_ACTIONS:
        return act_on_lease(module)
    journal = Journal(module.params["journal_dir"], dry_run=module.check_mode)
    if action == "hand_over":
        return hand_over(module.params, journal)
    if action == "begin":
        refuse_if_held(module.params)
    if action in ENTRY_ACTIONS:
        return write(module.params, journal)
    return read(module, journal)


def read(module: AnsibleModule, journal: Journal) -> Dict[str, Any]:
    if module.params["event_id"] is not None:
        entry = journal.find(module.params["event_id"], module.params["vm"])
        return {"entries": [] if entry is None else [entry.as_dict()], "damaged": []}
    snapshot = journal.read()
    for file in snapshot.damaged:
        module.warn("The journal's file {0} is damaged: {1}.".format(file.file, file.reason))
    return snapshot.as_dict()


def write(params: Dict[str, Any], journal: Journal) -> Dict[str, Any]:
    before = journal.find(params["event_id"], params["vm"])
    after = written(params, journal)
    return {
        "changed": before != after,
        "entry": after.as_dict(),
        "diff": {"before": as_dict(before), "after": as_dict(after)},
    }


def hand_over(params: Dict[str, Any], journal: Journal) -> Dict[str, Any]:
    over = [params["event_id"]] + params["also_over"]
    entries = [journal.find(event_id, params["vm"]) for event_id in over]
    heir = journal.hand_over(over, params["vm"])
    to_hand_over = any(entry is not None and entry.is_open and entry.open_changes for entry in entries)
    return {"changed": heir is not None and to_hand_over, "handed_over_to": heir}


def refuse_if_held(params: Dict[str, Any]) -> None:
    hold = held_by(params["hold_file"])
    if hold is not None:
        raise HeldError(
            "Event {0}: {1} must not be drained, it is held by {2}.".format(params["event_id"], params["vm"], hold)
        )


def written(params: Dict[str, Any], journal: Journal) -> Entry:
    action, event_id, vm, actor = params["action"], params["event_id"], params["vm"], params["actor"]
    if action == "begin":
        subject = Subject(event_id, vm, params["event_type"], tuple(params["resources"]), params["not_before"])
        return journal.begin(subject, actor)
    if action == "change":
        return journal.record_change(event_id, vm, params["backend"], params["facts"])
    if action == "undo":
        return journal.undo_change(event_id, vm, params["change_number"])
    if action == "phase":
        return journal.enter_phase(event_id, vm, params["phase"], actor, params["started_at"])
    return journal.close(event_id, vm, params["because"], actor, params["abandon"])


def act_on_lease(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    box = LeaseBox(params["journal_dir"], dry_run=module.check_mode)
    before = box.current()
    after: Optional[Lease]
    if params["action"] == "acquire_lease":
        holder = Holder(params["run_id"], params["controller"] or "unknown", params["pid"] or 0)
        holder_before = before.holder.run_id if params["takeover"] and before is not None else None
        takeover_from = params["takeover_from"] or holder_before
        after = box.acquire(params["scope"], holder, params["lease_seconds"], takeover_from)
    else:
        after = box.release(params["run_id"])
    return {
        "changed": before != after,
        "lease": None if after is None else after.as_dict(),
        "lease_held": after is not None and after.holder.run_id == params["run_id"],
        "diff": {"before": as_dict(before), "after": as_dict(after)},
    }


def as_dict(thing: Any) -> Dict[str, Any]:
    return {} if thing is None else thing.as_dict()


def main() -> None:
    text: Dict[str, Any] = {"type": "str"}
    module = AnsibleModule(
        argument_spec=dict(
            **common_options(env_fallback),
            action={
                "type": "str",
                "choices": ["read"] + list(ENTRY_ACTIONS) + ["hand_over"] + list(LEASE_ACTIONS),
                "default": "read",
            },
            event_id=text,
            vm=text,
            also_over={"type": "list", "elements": "str", "default": []},
            event_type={"type": "str", "default": "Unknown"},
            resources={"type": "list", "elements": "str", "default": []},
            not_before=text,
            backend=text,
            facts={"type": "dict"},
            change_number={"type": "int"},
            phase={"type": "str", "choices": list(OPEN_PHASES)},
            started_at=text,
            because={"type": "str", "default": "restored"},
            abandon={"type": "bool", "default": False},
            actor={"type": "str", "default": "ansible"},
            scope=text,
            run_id=text,
            controller=text,
            pid={"type": "int"},
            lease_seconds={"type": "int", "default": 300},
            takeover={"type": "bool", "default": False},
            takeover_from=text,
        ),
        required_if=[("action", action, ("event_id", "vm")) for action in ENTRY_ACTIONS + ("hand_over",)]
        + [
            ("action", "acquire_lease", ("scope", "run_id")),
            ("action", "release_lease", ("run_id",)),
            ("action", "change", ("backend", "facts")),
            ("action", "undo", ("change_number",)),
            ("action", "phase", ("phase",)),
        ],
        required_by={"event_id": ["vm"]},
        supports_check_mode=True,
    )
    for name in ("event_id", "vm", "scope", "run_id"):
        if module.params[name] is not None and not module.params[name].strip():
            module.fail_json(msg="{0} is empty.".format(name))
    run(module, act)


if __name__ == "__main__":
    main()
