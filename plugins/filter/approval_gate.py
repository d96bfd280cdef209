# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: approval_gate
short_description: Whether events may be approved now, and by whom
version_added: 0.1.0
author:
  - The azops.maintenance contributors (@azops)
description:
  - Decides for every event of the batches that the hosts are in. An event may be approved if each VM in its
    resources has answered afresh that it is drained for it, or the policy needs no drain, and nothing holds it.
  - What is not known counts as no. The gate does not look at what tasks did before it, only at the answers.
positional: _input
options:
  _input:
    description: The plan, from P(azops.maintenance.plan#filter).
    type: dict
    required: true
  hosts:
    description: The hosts that are being worked on, by their names in the inventory.
    type: list
    elements: str
    required: true
  answers:
    description: What M(azops.maintenance.scheduled_events_info) returned just now, by host. A host that is missing has
      not answered.
    type: dict
    required: true
  blocked:
    description: Hosts in whose scopes nothing is approved any more in this run, with the reason.
    type: dict
    default: {}
  tried:
    description: Earlier decisions of this filter that came to nothing, because the C(approver) could not approve.
    type: list
    elements: dict
    default: []
seealso:
  - plugin: azops.maintenance.plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Decide
  ansible.builtin.set_fact:
    decisions: "{{ plan | azops.maintenance.approval_gate(ansible_play_batch, answers) }}"
  run_once: true
  vars:
    answers: "{{ dict(ansible_play_batch | zip(ansible_play_batch | map('extract', hostvars, 'fresh'))) }}"
"""

RETURN = r"""
_value:
  description: One decision per event.
  type: list
  elements: dict
  contains:
    event_id:
      description: The event.
      type: str
    approve:
      description: Whether it may be approved.
      type: bool
    approver:
      description: The host that is to approve it, the first of its VMs that has not tried yet.
      type: str
    why:
      description: Why, or why not.
      type: str
    is_trouble:
      description: Whether it should have been approved but must not be.
      type: bool
"""

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ansible_collections.azops.maintenance.plugins.plugin_utils._filters import as_filter
from ansible_collections.azops.maintenance.plugins.plugin_utils._rolling import approval_gate


def gate(
    plan: Mapping[str, Any],
    hosts: Sequence[str],
    answers: Mapping[str, Any],
    blocked: Optional[Mapping[str, str]] = None,
    tried: Sequence[Mapping[str, Any]] = (),
) -> List[Dict[str, Any]]:
    decisions = approval_gate(plan, hosts, answers, blocked or {}, tried)
    return [dict(decision._asdict()) for decision in decisions]


class FilterModule:
    """The filter approval_gate."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"approval_gate": as_filter("approval_gate", gate)}
