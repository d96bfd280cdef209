#!/usr/bin/python
# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: scheduled_events_info
short_description: What Azure has announced for a VM, and who the VM is
version_added: 0.1.0
description:
  - Reads the Scheduled Events of the metadata service inside an Azure VM, who the VM is, and the VM's own journal
    of what has been drained. This one call is all that a scan of a fleet needs from each host.
  - Every VM of an availability set or of a scale set's placement group sees the events of all of them. What is
    said of each event tells whether it hits the VM that was asked.
extends_documentation_fragment:
  - azops.maintenance.scheduled_events
  - azops.maintenance.scheduled_events.patience
  - azops.maintenance.attributes
  - azops.maintenance.attributes.info_module
  - azops.maintenance.attributes.actiongroup_maintenance
options:
  types:
    description: Only events of these types, such as V(Reboot). Compared without regard to case.
    type: list
    elements: str
  statuses:
    description: Only events with one of these statuses.
    type: list
    elements: str
    choices: [Scheduled, Started]
  sources:
    description: Only events from one of these sources. An event that does not tell its source is left out then.
    type: list
    elements: str
    choices: [Platform, User]
  resources:
    description: Only events that hit one of these VMs. Compared without regard to case.
    type: list
    elements: str
  only_mine:
    description: Only events that hit the VM that is asked.
    type: bool
    default: false
  watcher_state:
    description: Where the VM's watcher shows its state. Also read from the environment variable
      E(AZOPS_MAINTENANCE_WATCHER_STATE).
    type: path
    default: /run/azops-watcher/state.json
seealso:
  - module: azops.maintenance.scheduled_events_approve
  - module: azops.maintenance.scheduled_events_wait
author:
  - The azops.maintenance contributors (@azops)
"""

EXAMPLES = r"""
- name: See what Azure has announced
  azops.maintenance.scheduled_events_info:
  register: maintenance

- name: Say what is going to hit this VM
  ansible.builtin.debug:
    msg: "{{ item.event_type }} of {{ item.resources | join(', ') }} not before {{ item.not_before }}"
  loop: "{{ maintenance.events | selectattr('hits_me') }}"
  loop_control:
    label: "{{ item.event_id }}"

- name: See only the reboots and redeploys that hit this VM and have not started
  azops.maintenance.scheduled_events_info:
    types: [Reboot, Redeploy]
    statuses: [Scheduled]
    only_mine: true

- name: Ask a simulator instead of Azure
  azops.maintenance.scheduled_events_info:
    endpoint: "http://127.0.0.1:{{ simulator_port }}/vm/web_0"
"""

RETURN = r"""
events:
  description: The selected events, in the order of the document.
  returned: success
  type: list
  elements: dict
  contains:
    event_id:
      description: The event's id as the service spells it. Ids compare without regard to case.
      type: str
      sample: C7061BAC-AFDC-4513-B24B-AA5F13A16123
    event_type:
      description: V(Freeze), V(Reboot), V(Redeploy), V(Preempt), V(Terminate), or a type that is not known yet.
      type: str
      sample: Reboot
    event_status:
      description: V(Scheduled) or V(Started). A finished or cancelled event is not in the document.
      type: str
      sample: Scheduled
    event_source:
      description: V(Platform) or V(User), V(null) where the service does not say.
      type: str
      sample: Platform
    resource_type:
      description: What kind of resource is hit.
      type: str
      sample: VirtualMachine
    resources:
      description: The names of the VMs that are hit, all at once.
      type: list
      elements: str
      sample: [web_0, web_1]
    not_before:
      description: When Azure starts without being asked, in UTC. V(null) once it has started.
      type: str
      sample: "2026-11-18T18:29:47Z"
    seconds_left:
      description: Whole seconds until RV(events[].not_before) by the VM's clock. Negative when it has passed.
      type: int
      sample: 873
    description:
      description: Azure's own words.
      type: str
      sample: Host server is undergoing maintenance.
    duration_in_seconds:
      description: How long the interruption is expected to be. V(null) where that is not known.
      type: int
      sample: 9
    hits_me:
      description: Whether the VM that was asked is among RV(events[].resources).
      type: bool
      sample: true
    leader:
      description: The first of RV(events[].resources), the VM that approves.
      type: str
      sample: web_0
    is_leader:
      description: Whether the VM that was asked is the leader.
      type: bool
      sample: true
    rank:
      description: The place of the VM that was asked among RV(events[].resources), from 0. V(null) if it is not hit.
      type: int
      sample: 0
    unknown_fields:
      description: What the service said beyond the fields that are known.
      type: dict
      sample: {}
document_incarnation:
  description: Changes when the events change. It may skip numbers and start again. V(null) where the service sent
    no number.
  returned: success
  type: int
  sample: 2
unreadable:
  description: Parts of the document that could not be understood. Each is a warning too.
  returned: success
  type: list
  elements: str
  sample: []
vm:
  description: Who the VM is, by its own metadata service. What does not apply to it is V(null).
  returned: success
  type: dict
  contains:
    name:
      description: The name by which RV(events[].resources) call it.
      type: str
      sample: web_0
    resource_id:
      description: The id of the VM in Azure Resource Manager.
      type: str
      sample: /subscriptions/…/virtualMachines/web_0
    computer_name:
      description: The name that the operating system was given.
      type: str
      sample: web000000
    location:
      description: The region.
      type: str
      sample: westeurope
    zone:
      description: The availability zone.
      type: str
      sample: "1"
    priority:
      description: V(Spot) for a Spot VM.
      type: str
      sample: Regular
    update_domain:
      description: The update domain, a number as a string.
      type: str
      sample: "2"
    fault_domain:
      description: The fault domain, a number as a string.
      type: str
      sample: "0"
    scale_set_name:
      description: The name of the scale set.
      type: str
      sample: web
    scale_set_id:
      description: The id of the flexible scale set.
      type: str
      sample: /subscriptions/…/virtualMachineScaleSets/web
    placement_group_id:
      description: The placement group within the scale set.
      type: str
      sample: 1a2b3c4d-0000-4000-8000-000000000000
    tags:
      description: The tags of the VM.
      type: dict
      sample: {team: web}
endpoint:
  description: Where the metadata service answered.
  returned: success
  type: str
  sample: http://169.254.169.254
endpoint_is_azure:
  description: Whether RV(endpoint) is Azure's own. V(false) for a simulator.
  returned: success
  type: bool
  sample: true
read_at:
  description: When the document was read, by the VM's clock, in UTC.
  returned: success
  type: str
  sample: "2026-11-18T18:15:14Z"
held_by:
  description: Why the VM is held, V(null) if it is not.
  returned: success
  type: str
  sample: /etc/azops-maintenance/hold (migration of the database)
journal:
  description: The VM's journal. V(null) if it cannot be read, RV(journal_error) says why then.
  returned: success
  type: dict
  contains:
    entries:
      description: What has been done for which event and VM, oldest first. See
        M(azops.maintenance.maintenance_journal).
      type: list
      elements: dict
      sample: []
    damaged:
      description: Files that cannot be understood, each with RV(ignore:file) and RV(ignore:reason).
      type: list
      elements: dict
      sample: []
watcher:
  description: The watcher of the VM, V(null) if none has written its state since the VM was started.
  returned: success
  type: dict
  contains:
    version:
      description: Its version.
      type: str
      sample: 0.1.0
    mode:
      description: V(timer) or V(service).
      type: str
      sample: timer
    seconds_since_poll:
      description: How long ago it last read the metadata service with success, V(null) if never.
      type: int
      sample: 3
    last_error:
      description: What went wrong at its last poll, V(null) if nothing did.
      type: str
      sample: null
journal_error:
  description: Why the journal cannot be read, V(null) if it can.
  returned: success
  type: str
  sample: null
error_kind:
  description: What kind of error it was, V(not_azure) where no metadata service answers.
  returned: failure
  type: str
  sample: not_azure
"""

import time
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule, env_fallback

from ansible_collections.azops.maintenance.plugins.module_utils._document import format_time
from ansible_collections.azops.maintenance.plugins.module_utils._errors import JournalError
from ansible_collections.azops.maintenance.plugins.module_utils._hold import held_by
from ansible_collections.azops.maintenance.plugins.module_utils._journal import Journal, utc_now
from ansible_collections.azops.maintenance.plugins.module_utils._module import (
    client_from,
    common_options,
    document_warnings,
    patience_options,
    run,
    selection_options,
)
from ansible_collections.azops.maintenance.plugins.module_utils._selection import event_for, selection_from
from ansible_collections.azops.maintenance.plugins.module_utils._watcher_state import DEFAULT_FILE, read_watcher_state


def gather(module: AnsibleModule) -> Dict[str, Any]:
    client = client_from(module.params)
    document = client.read_document()
    vm = client.read_instance()
    now = utc_now()
    for warning in document_warnings(document):
        module.warn(warning)
    return dict(
        read_journal(module.params["journal_dir"]),
        events=[event_for(event, vm.name, now) for event in selection_from(module.params).select(document, vm.name)],
        document_incarnation=document.incarnation,
        unreadable=list(document.unreadable),
        vm=dict(vm._asdict()),
        endpoint=client.endpoint.url,
        endpoint_is_azure=client.endpoint.is_azure,
        read_at=format_time(now),
        held_by=held_by(module.params["hold_file"]),
        watcher=read_watcher_state(module.params["watcher_state"], time.time()),
    )


def read_journal(directory: str) -> Dict[str, Any]:
    try:
        snapshot = Journal(directory).read()
    except JournalError as error:
        return {"journal": None, "journal_error": str(error)}
    return {"journal": snapshot.as_dict(), "journal_error": None}


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            **common_options(env_fallback),
            **patience_options(),
            **selection_options("types", "statuses", "sources", "resources", "only_mine"),
            watcher_state={
                "type": "path",
                "default": DEFAULT_FILE,
                "fallback": (env_fallback, ["AZOPS_MAINTENANCE_WATCHER_STATE"]),
            },
        ),
        supports_check_mode=True,
    )
    run(module, gather)


if __name__ == "__main__":
    main()
