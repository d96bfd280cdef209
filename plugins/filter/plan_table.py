# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: plan_table
short_description: A plan as lines for a terminal
version_added: 0.1.0
author:
  - The azops.maintenance contributors (@azops)
description:
  - Makes a table of what the filter P(azops.maintenance.plan#filter) returned, for people to read.
  - Control characters that the service sent are replaced.
options:
  _input:
    description: The plan.
    type: dict
    required: true
seealso:
  - plugin: azops.maintenance.plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show the plan
  ansible.builtin.debug:
    msg: "{{ plan | azops.maintenance.plan_table }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, List, Mapping

from ansible.errors import AnsibleFilterError

from ansible_collections.azops.maintenance.plugins.plugin_utils._plan_table import table
from ansible_collections.azops.maintenance.plugins.plugin_utils._untrusted import untrusted


def plan_table(plan: Any) -> List[str]:
    """The filter."""
    if not isinstance(plan, Mapping):
        raise AnsibleFilterError("azops.maintenance.plan_table: this is not a plan: {0}.".format(type(plan).__name__))
    try:
        return untrusted(table(plan))
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(
            "azops.maintenance.plan_table: this is not a whole plan: {0}.".format(error)
        ) from error


class FilterModule:
    """The filter plan_table."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"plan_table": plan_table}
