#!/usr/bin/python
# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: scheduled_events_wait
short_description: Wait until events appear, have started, or are gone
version_added: 0.1.0
description:
  - Waits on a VM until the selected events are there, have started, or are gone, also through a reboot of that VM.
  - The VM polls its metadata service once a second, in slices of at most 20 seconds. Between the slices the
    controller prints one line of progress on stderr. A VM that cannot be reached, a slice that does not end and a
    module that is killed all mean that the VM is away, and it is tried again until O(timeout).
  - An event is gone when it is missing from every successful read for at least 5 seconds, because the first
    documents after a redeploy can be empty.
extends_documentation_fragment:
  - azops.maintenance.scheduled_events
  - azops.maintenance.attributes
  - azops.maintenance.attributes.actiongroup_maintenance
attributes:
  action:
    description: Indicates this has a corresponding action plugin so some parts of the options can be executed on
      the controller.
    support: full
  async:
    description: Supports being used with the C(async) keyword.
    support: none
  check_mode:
    support: full
    details: Reads once and says whether the condition is met. It does not wait.
  diff_mode:
    support: N/A
    details: This module changes nothing.
  idempotent:
    support: full
    details: This module changes nothing.
options:
  until:
    description:
      - V(appear) waits until at least one selected event is there.
      - V(started) waits until every selected event has started. One that is not there any more counts as started.
      - V(gone) waits until no selected event is there.
    type: str
    choices: [appear, started, gone]
    required: true
  event_ids:
    description: Only events with these ids. Compared without regard to case.
    type: list
    elements: str
  types:
    description: Only events of these types.
    type: list
    elements: str
  resources:
    description: Only events that hit one of these VMs.
    type: list
    elements: str
  only_mine:
    description: Only events that hit this VM.
    type: bool
    default: false
  timeout:
    description: For how many seconds to wait, V(0) to look once. The last check may take a few seconds more.
    type: int
    default: 900
  interval:
    description: How many seconds to pause between two polls, from 1 to 5.
    type: int
    default: 1
  slice_seconds:
    description: How long the VM polls in one go before it reports to the controller.
    type: int
    default: 20
seealso:
  - module: azops.maintenance.scheduled_events_info
  - module: azops.maintenance.scheduled_events_approve
author:
  - The azops.maintenance contributors (@azops)
"""

EXAMPLES = r"""
- name: Wait through the reboot that was approved
  azops.maintenance.scheduled_events_wait:
    event_ids: ["{{ event_id }}"]
    until: gone
    timeout: 1800

- name: Do not deploy while anything hits this VM
  azops.maintenance.scheduled_events_wait:
    only_mine: true
    until: gone
    timeout: 3600
"""

RETURN = r"""
met:
  description: Whether the condition is met. Without it the module fails, except in check mode.
  returned: always
  type: bool
  sample: true
events:
  description: The selected events as they were last seen, as in M(azops.maintenance.scheduled_events_info).
  returned: always
  type: list
  elements: dict
  sample: []
reads:
  description: How often the metadata service was read with success, in the last slice.
  returned: always
  type: int
  sample: 6
last_error:
  description: What went wrong at the last try, V(null) if nothing did.
  returned: always
  type: str
  sample: null
started_at:
  description: When an event was first seen to have started, by the VM's clock. V(null) if that was not seen.
  returned: always
  type: str
  sample: "2026-11-18T18:16:02Z"
elapsed:
  description: For how many seconds it waited.
  returned: when it waited
  type: int
  sample: 312
times_away:
  description: How many times in a row or apart the VM could not be asked.
  returned: when it waited
  type: int
  sample: 4
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule, env_fallback

from ansible_collections.azops.maintenance.plugins.module_utils._document import format_time
from ansible_collections.azops.maintenance.plugins.module_utils._journal import utc_now
from ansible_collections.azops.maintenance.plugins.module_utils._module import (
    client_from,
    common_options,
    run,
    selection_options,
)
from ansible_collections.azops.maintenance.plugins.module_utils._selection import event_for, selection_from
from ansible_collections.azops.maintenance.plugins.module_utils._waiting import (
    CONDITIONS,
    GONE_FOR,
    SLICE_SECONDS,
    wait,
)


def wait_for_one_slice(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    client = client_from(params)
    progress = wait(
        client,
        params["until"],
        selection_from(params),
        seconds=0 if module.check_mode else params["slice_seconds"],
        interval=params["interval"],
    )
    now = utc_now()
    events = [event_for(event, progress.vm_name, now) for event in progress.events]
    return {
        "met": progress.met,
        "reads": progress.reads,
        "last_error": progress.last_error,
        "started_at": format_time(progress.started_at),
        "events": events,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            **common_options(env_fallback),
            **selection_options("event_ids", "types", "resources", "only_mine"),
            until={"type": "str", "choices": list(CONDITIONS), "required": True},
            timeout={"type": "int", "default": 900},
            interval={"type": "int", "default": 1},
            slice_seconds={"type": "int", "default": SLICE_SECONDS},
        ),
        supports_check_mode=True,
    )
    if not 1 <= module.params["interval"] <= GONE_FOR:
        module.fail_json(msg="interval must be from 1 to {0:.0f} seconds.".format(GONE_FOR))
    run(module, wait_for_one_slice)


if __name__ == "__main__":
    main()
