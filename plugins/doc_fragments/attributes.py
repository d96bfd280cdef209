# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be relied on in every module."""


class ModuleDocFragment:
    """The attributes that every module has, and for each kind of module what is true of it."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)), when in
      diff mode.
  idempotent:
    description: When run twice in a row outside check mode, with the same arguments, the second invocation
      indicates no change.
  platform:
    description: Target OS/families that can be operated against.
    support: full
    platforms: posix
"""

    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details: This module changes nothing.
  diff_mode:
    support: N/A
    details: This module changes nothing.
  idempotent:
    support: full
    details: This module changes nothing.
"""

    ACTIONGROUP_MAINTENANCE = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/azops.maintenance.maintenance) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - azops.maintenance.maintenance
"""
