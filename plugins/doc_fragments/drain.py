# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options that the backends of a drain share."""


class ModuleDocFragment:
    """What the module of every backend takes."""

    DOCUMENTATION = r"""
options:
  state:
    description:
      - With V(drained), what is not out of service yet is taken out. The real state is looked at, so that the same
        call also tells whether a drain still holds.
      - With V(restored), what V(drained) did for O(event_ids) is undone, newest first, and nothing else.
    type: str
    choices: [drained, restored]
    default: drained
  event_ids:
    description:
      - The events that the VM is taken out for. Compared without regard to case.
      - Changes are noted in the journal under the first of them, in alphabetical order, before they are made.
      - The journal has to have an open entry for it; see M(azops.maintenance.maintenance_journal).
    type: list
    elements: str
    required: true
  vm:
    description: The VM that is taken out, by the name that Azure uses. Compared without regard to case.
    type: str
    required: true
  timeout:
    description: Seconds that all of this may take. What takes longer is an error.
    type: int
    default: 120
"""
