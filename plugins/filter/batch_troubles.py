# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: batch_troubles
short_description: What went wrong on the hosts of a batch
version_added: 0.1.0
author:
  - The azops.maintenance contributors (@azops)
description:
  - Gathers what went wrong on the hosts of a batch, and names the hosts in whose scopes nothing is approved any more.
positional: _input
options:
  _input:
    description: The plan, from P(azops.maintenance.plan#filter).
    type: dict
    required: true
  hosts:
    description: The hosts of the batch, by their names in the inventory.
    type: list
    elements: str
    required: true
  alive:
    description: Those that are still in the play.
    type: list
    elements: str
    required: true
  failures:
    description: By host, what failed.
    type: dict
    required: true
  unsettled:
    description: By host, why it is not back yet.
    type: dict
    required: true
seealso:
  - plugin: azops.maintenance.plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: See what went wrong
  ansible.builtin.debug:
    msg: "{{ plan | azops.maintenance.batch_troubles(['web0', 'web1'], ansible_play_batch, failures, {}) }}"
"""

RETURN = r"""
_value:
  description: C(troubles), each with C(host) and C(why), and C(blocked), a reason for every host of the scopes in which
    something went wrong.
  type: dict
"""

from typing import Any, Callable, Dict

from ansible_collections.azops.maintenance.plugins.plugin_utils._filters import as_filter
from ansible_collections.azops.maintenance.plugins.plugin_utils._rolling import batch_troubles


class FilterModule:
    """The filter batch_troubles."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"batch_troubles": as_filter("batch_troubles", batch_troubles)}
