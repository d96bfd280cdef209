# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: batch_work
short_description: What one host has to do in its batch
version_added: 0.1.0
author:
  - The azops.maintenance contributors (@azops)
description:
  - What a rolling run does next on a host, by the plan, by what the host answered last and by the clock.
positional: _input
options:
  _input:
    description: The plan, from P(azops.maintenance.plan#filter).
    type: dict
    required: true
  host:
    description: The host, by its name in the inventory.
    type: str
    required: true
  answer:
    description: What M(azops.maintenance.scheduled_events_info) last returned on it.
    type: raw
    required: true
  blocked:
    description: Hosts in whose scopes nothing is approved any more in this run, with the reason.
    type: dict
    default: {}
  now:
    description: The time for which to decide, in UTC. The current time if not set.
    type: str
seealso:
  - plugin: azops.maintenance.plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: See what this host has to do
  ansible.builtin.debug:
    msg: "{{ plan | azops.maintenance.batch_work(inventory_hostname, answer) }}"
"""

RETURN = r"""
_value:
  description: C(events), C(vm), C(is_over), C(wait_seconds), C(witnesses), C(drain), C(drained_for), C(drain_seconds),
    C(start_in), C(seconds_to_start), C(is_for_later), C(batch) and C(comes_back).
  type: dict
"""

from typing import Any, Callable, Dict, Mapping, Optional

from ansible_collections.azops.maintenance.plugins.module_utils._journal import utc_now
from ansible_collections.azops.maintenance.plugins.plugin_utils._filters import as_filter
from ansible_collections.azops.maintenance.plugins.plugin_utils._plan import parse_now
from ansible_collections.azops.maintenance.plugins.plugin_utils._rolling import batch_work


def work(
    plan: Mapping[str, Any],
    host: str,
    answer: Any,
    blocked: Optional[Mapping[str, str]] = None,
    now: Optional[str] = None,
) -> Dict[str, Any]:
    moment = utc_now() if now is None else parse_now(now)
    return batch_work(plan, host, answer, moment, blocked or {})


class FilterModule:
    """The filter batch_work."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"batch_work": as_filter("batch_work", work)}
