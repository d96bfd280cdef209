# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: lease_verdict
short_description: Which leases a run did not get
version_added: 0.1.0
author:
  - The azops.maintenance contributors (@azops)
description:
  - Judges the answers to C(acquire_lease) of M(azops.maintenance.maintenance_journal), for the scopes of the plan.
positional: _input
options:
  _input:
    description: The plan, from P(azops.maintenance.plan#filter).
    type: dict
    required: true
  leases:
    description: For each answer the C(scope) and the C(host), in order. With C(has_vote=false) the answer counts only
      if it names another run.
    type: list
    elements: dict
    required: true
  results:
    description: The answers, in the same order.
    type: list
    elements: dict
    required: true
seealso:
  - plugin: azops.maintenance.plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Say who else is at work
  ansible.builtin.debug:
    msg: "{{ plan | azops.maintenance.lease_verdict(leases, acquired.results) }}"
"""

RETURN = r"""
_value:
  description: By scope, C(why) its lease is not held, and C(by_other), whether another run has it.
  type: dict
"""

from typing import Any, Callable, Dict, Mapping, Sequence

from ansible_collections.azops.maintenance.plugins.plugin_utils._filters import as_filter
from ansible_collections.azops.maintenance.plugins.plugin_utils._rolling import lease_verdict


def judge(
    plan: Mapping[str, Any], leases: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]
) -> Dict[str, Any]:
    return lease_verdict(leases, results)


class FilterModule:
    """The filter lease_verdict."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"lease_verdict": as_filter("lease_verdict", judge)}
