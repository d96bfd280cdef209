#!/usr/bin/python
# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: scheduled_events_approve
short_description: Tell Azure to go ahead with announced events
version_added: 0.1.0
description:
  - Approves Scheduled Events from inside a VM, so that Azure starts them now instead of at their C(NotBefore).
  - An approval lets an event go ahead for B(all) VMs that it hits, not only for the VM that approves. Drain all of
    them first, and say with O(expect_resources) which ones you drained.
  - Either all the selected events are approved, or none, if one of them has to be refused.
  - Every approval is noted in the VM's journal and as one line in journald, or syslog where there is no journald.
extends_documentation_fragment:
  - azops.maintenance.scheduled_events
  - azops.maintenance.scheduled_events.patience
  - azops.maintenance.attributes
  - azops.maintenance.attributes.actiongroup_maintenance
attributes:
  check_mode:
    support: full
    details: Says what would be approved or refused. Nothing is sent and nothing is written.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  event_ids:
    description:
      - The ids of the events to approve. Compared without regard to case.
      - Either this or at least one of O(types), O(sources), O(resources) and O(only_mine) has to be given.
    type: list
    elements: str
  types:
    description: Approve all events of these types, such as V(Freeze).
    type: list
    elements: str
  sources:
    description: Approve all events from these sources. Together with the other selections, what fits all of them.
    type: list
    elements: str
    choices: [Platform, User]
  resources:
    description: Approve all events that hit one of these VMs.
    type: list
    elements: str
  only_mine:
    description: Approve all events that hit this VM.
    type: bool
    default: false
  expect_resources:
    description:
      - The VMs that the event is expected to hit. It is refused if the list that is in force now differs, in any
        order and case.
      - Needs exactly one of O(event_ids).
    type: list
    elements: str
  require_mine:
    description: Refuse events that do not hit this VM.
    type: bool
    default: false
  require_leader:
    description: Refuse events whose leader, the first of their VMs, is not this VM.
    type: bool
    default: false
  max_resources:
    description: Refuse events that hit more VMs than this.
    type: int
  missing:
    description:
      - What to do about one of O(event_ids) that is not there, because it is over, was cancelled, or never was.
      - An event that this VM's journal knows as approved is never taken for an error.
    type: str
    choices: [ok, fail]
    default: fail
  actor:
    description: Who approves, for the journal and the log. By default the user that Ansible runs as on the managed
      node.
    type: str
seealso:
  - module: azops.maintenance.scheduled_events_info
  - module: azops.maintenance.scheduled_events_wait
author:
  - The azops.maintenance contributors (@azops)
"""

EXAMPLES = r"""
- name: Let Azure go ahead, now that web_0 and web_1 are drained
  azops.maintenance.scheduled_events_approve:
    event_ids: ["{{ event_id }}"]
    expect_resources: [web_0, web_1]
    require_leader: true
  become: true

- name: Let a reboot that somebody asked for in the portal happen now instead of in 15 minutes
  azops.maintenance.scheduled_events_approve:
    types: [Reboot]
    sources: [User]
    only_mine: true
    max_resources: 1
    actor: "{{ lookup('ansible.builtin.env', 'USER') }}"
  become: true
"""

RETURN = r"""
results:
  description: What became of each event.
  returned: always, unless the metadata service or the journal could not be used
  type: list
  elements: dict
  contains:
    event_id:
      description: The event.
      type: str
      sample: C7061BAC-AFDC-4513-B24B-AA5F13A16123
    outcome:
      description:
        - V(approved), the service took the approval.
        - V(already_approved), this VM had approved it before.
        - V(already_started), there is nothing to approve any more.
        - V(gone), the event is not in the document.
        - V(would_approve), in check mode, or because another event was refused.
        - V(refused), it was not approved and RV(results[].reason) says why.
      type: str
      sample: approved
    reason:
      description: Why, where the outcome alone does not tell.
      type: str
      sample: it hits web_0, web_1, web_2, not web_0, web_1 as expected
    event_type:
      description: The type of the event, V(null) if it is gone.
      type: str
      sample: Reboot
    resources:
      description: The VMs that the event hits.
      type: list
      elements: str
      sample: [web_0, web_1]
    start_pending:
      description: Whether the event is approved but has not started, since other tenants of the hardware may hold
        it up.
      type: bool
      sample: false
error_kind:
  description: What kind of error it was, V(refused) or V(missing) if an event could not be approved.
  returned: failure
  type: str
  sample: refused
"""

import os
from typing import Any, Dict, List

from ansible.module_utils.basic import AnsibleModule, env_fallback

from ansible_collections.azops.maintenance.plugins.module_utils._approval import (
    APPROVED,
    REFUSED,
    WOULD_APPROVE,
    Approver,
    Guard,
    Outcome,
)
from ansible_collections.azops.maintenance.plugins.module_utils._hold import held_by
from ansible_collections.azops.maintenance.plugins.module_utils._journal import Journal
from ansible_collections.azops.maintenance.plugins.module_utils._module import (
    client_from,
    common_options,
    patience_options,
    run,
    selection_options,
)
from ansible_collections.azops.maintenance.plugins.module_utils._selection import selection_from


def approve(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    client = client_from(params)
    vm_name = client.read_instance().name
    guard = Guard(
        params["expect_resources"],
        params["require_mine"],
        params["require_leader"],
        params["max_resources"],
        held_by(params["hold_file"]),
        params["missing"] == "ok",
    )
    approver = Approver(client, Journal(params["journal_dir"]), vm_name, params["actor"] or default_actor())
    outcomes = approver.approve(selection_from(params), guard, module.check_mode)
    result = summary(outcomes)
    fail_if_refused(module, outcomes, result, vm_name)
    fail_if_missing(module, outcomes, result, vm_name)
    return result


def default_actor() -> str:
    user = os.environ.get("SUDO_USER") or os.environ.get("USER") or "user id {0}".format(os.geteuid())
    return "ansible as {0}".format(user)


def summary(outcomes: List[Outcome]) -> Dict[str, Any]:
    held_back = any(outcome.outcome == REFUSED for outcome in outcomes)
    moved = [
        outcome.event_id
        for outcome in outcomes
        if outcome.outcome == APPROVED or (outcome.outcome == WOULD_APPROVE and not held_back)
    ]
    return {
        "changed": bool(moved),
        "results": [outcome.as_dict() for outcome in outcomes],
        "diff": {"before": {"approved": []}, "after": {"approved": moved}},
    }


def fail_if_refused(module: AnsibleModule, outcomes: List[Outcome], result: Dict[str, Any], vm_name: str) -> None:
    refused = [outcome for outcome in outcomes if outcome.outcome == REFUSED]
    if refused:
        module.fail_json(
            msg="{0} {1} not approve {2}. azops.maintenance.scheduled_events_info shows the event.".format(
                vm_name,
                "would" if module.check_mode else "did",
                "; ".join("event {0}: {1}".format(outcome.event_id, outcome.reason) for outcome in refused),
            ),
            error_kind="refused",
            **result,
        )


def fail_if_missing(module: AnsibleModule, outcomes: List[Outcome], result: Dict[str, Any], vm_name: str) -> None:
    missing = [outcome.event_id for outcome in outcomes if outcome.is_unexplained]
    if missing and module.params["missing"] == "fail":
        module.fail_json(
            msg="{0} sees no event {1}. It is over, was cancelled, or the id is wrong: compare it with"
            " azops.maintenance.scheduled_events_info, or set missing to ok.".format(vm_name, ", ".join(missing)),
            error_kind="missing",
            **result,
        )


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            **common_options(env_fallback),
            **patience_options(),
            **selection_options("event_ids", "types", "sources", "resources", "only_mine"),
            expect_resources={"type": "list", "elements": "str"},
            require_mine={"type": "bool", "default": False},
            require_leader={"type": "bool", "default": False},
            max_resources={"type": "int"},
            missing={"type": "str", "choices": ["ok", "fail"], "default": "fail"},
            actor={"type": "str"},
        ),
        mutually_exclusive=[("event_ids", "types"), ("event_ids", "sources"), ("event_ids", "resources")],
        required_by={"expect_resources": ["event_ids"]},
        supports_check_mode=True,
    )
    if selection_from(module.params).is_empty:
        module.fail_json(msg="Say which events to approve: event_ids, types, sources, resources or only_mine.")
    if module.params["event_ids"] is not None and module.params["only_mine"]:
        module.fail_json(msg="only_mine selects events; with event_ids, require_mine refuses those of other VMs.")
    if module.params["expect_resources"] is not None and len(module.params["event_ids"]) != 1:
        module.fail_json(msg="expect_resources says what one event hits: give exactly one of event_ids with it.")
    run(module, approve)


if __name__ == "__main__":
    main()
