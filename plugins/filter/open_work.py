# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: open_work
short_description: What is open in the journal of one host
version_added: 0.1.0
author:
  - The azops.maintenance contributors (@azops)
description:
  - What an earlier batch, or a run that ended before its time, left open on a host and is not part of a batch.
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
    msg: "{{ plan | azops.maintenance.open_work(inventory_hostname, answer) }}"
"""

RETURN = r"""
_value:
  description: C(events), C(restore), C(vm), C(comes_back), C(wait_seconds) and C(witnesses).
  type: dict
"""

from typing import Any, Callable, Dict, Mapping, Optional

from ansible_collections.azops.maintenance.plugins.module_utils._journal import utc_now
from ansible_collections.azops.maintenance.plugins.plugin_utils._filters import as_filter
from ansible_collections.azops.maintenance.plugins.plugin_utils._plan import parse_now
from ansible_collections.azops.maintenance.plugins.plugin_utils._rolling import open_work


def work(plan: Mapping[str, Any], host: str, answer: Any, now: Optional[str] = None) -> Dict[str, Any]:
    moment = utc_now() if now is None else parse_now(now)
    return open_work(plan, host, answer, moment)


class FilterModule:
    """The filter open_work."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"open_work": as_filter("open_work", work)}
