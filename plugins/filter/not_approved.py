# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: not_approved
short_description: Which approvals came to nothing
version_added: 0.1.0
author:
  - The azops.maintenance contributors (@azops)
description:
  - Picks from the decisions of P(azops.maintenance.approval_gate#filter) those that no VM carried out.
positional: _input
options:
  _input:
    description: The decisions.
    type: list
    elements: dict
    required: true
  attempts:
    description: What M(azops.maintenance.scheduled_events_approve) returned on all VMs, in one list, each with the
      C(decision) that it carried out.
    type: list
    elements: dict
    required: true
seealso:
  - plugin: azops.maintenance.approval_gate
    plugin_type: filter
"""

EXAMPLES = r"""
- name: See what could not be approved
  ansible.builtin.debug:
    msg: "{{ decisions | azops.maintenance.not_approved(attempts) }}"
"""

RETURN = r"""
_value:
  description: Those decisions, with C(is_lost) where the VM went away before it answered.
  type: list
  elements: dict
"""

from typing import Any, Callable, Dict

from ansible_collections.azops.maintenance.plugins.plugin_utils._filters import as_filter
from ansible_collections.azops.maintenance.plugins.plugin_utils._rolling import not_approved


class FilterModule:
    """The filter not_approved."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"not_approved": as_filter("not_approved", not_approved)}
