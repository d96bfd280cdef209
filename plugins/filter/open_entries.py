# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: open_entries
short_description: What is open in a journal for one VM
version_added: 0.1.0
author:
  - The azops.maintenance contributors (@azops)
description:
  - Picks from the entries of a journal those of one VM that are open. What a VM's own watcher drained is left to it.
positional: _input
options:
  _input:
    description: The entries, from M(azops.maintenance.maintenance_journal).
    type: list
    elements: dict
    required: true
  vm:
    description: The VM, by the name that Azure uses. If not set, all open entries have to be about the same VM.
    type: str
seealso:
  - module: azops.maintenance.maintenance_journal
"""

EXAMPLES = r"""
- name: See what is open
  ansible.builtin.debug:
    msg: "{{ journal.entries | azops.maintenance.open_entries('web_0') }}"
"""

RETURN = r"""
_value:
  description: C(vm), and in C(restore) the events that it is drained for.
  type: dict
"""

from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from ansible_collections.azops.maintenance.plugins.plugin_utils._filters import as_filter
from ansible_collections.azops.maintenance.plugins.plugin_utils._rolling import open_entries


def pick(entries: Sequence[Mapping[str, Any]], vm: Optional[str] = None) -> Dict[str, Any]:
    return open_entries(entries, vm)


class FilterModule:
    """The filter open_entries."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"open_entries": as_filter("open_entries", pick)}
