# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: rolling_verdict
short_description: Whether a rolling run has left anything
version_added: 0.1.0
author:
  - The azops.maintenance contributors (@azops)
description:
  - Says at the end of a run whether the fleet is whole, and if not, what is left and what to do about it.
positional: _input
options:
  _input:
    description: The plan, from P(azops.maintenance.plan#filter).
    type: dict
    required: true
  troubles:
    description: What went wrong in the run, each with C(host) and C(why).
    type: list
    elements: dict
    required: true
  lost:
    description: Hosts that answered once and do not any more.
    type: list
    elements: str
    required: true
seealso:
  - plugin: azops.maintenance.plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Fail if anything is left
  ansible.builtin.assert:
    that: (plan | azops.maintenance.rolling_verdict([], [])).converged
"""

RETURN = r"""
_value:
  description: C(converged), C(left), a list of sentences, and C(lost).
  type: dict
"""

from typing import Any, Callable, Dict

from ansible_collections.azops.maintenance.plugins.plugin_utils._filters import as_filter
from ansible_collections.azops.maintenance.plugins.plugin_utils._rolling import verdict


class FilterModule:
    """The filter rolling_verdict."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"rolling_verdict": as_filter("rolling_verdict", verdict)}
