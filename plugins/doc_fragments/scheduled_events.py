# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options that modules share."""


class ModuleDocFragment:
    """What every module takes, so that C(module_defaults) of the action group can set it once, and what some take."""

    DOCUMENTATION = r"""
requirements:
  - Python 3.6 or newer on the managed node, and nothing else.
options:
  endpoint:
    description:
      - Where the metadata service is, as C(http://HOST[:PORT][/PREFIX]).
      - With V(auto), C(169.254.169.254), and if nothing answers there, the address in DHCP option 245 of the
        leases of dhclient, systemd-networkd or NetworkManager, where classic VMs find it.
      - It is never reached through a proxy, whatever the environment says.
      - If not set, the environment variable E(AZOPS_MAINTENANCE_ENDPOINT) of the managed node is used.
    type: str
    default: auto
  api_version:
    description:
      - The version of the Scheduled Events API to speak.
      - If not set, the environment variable E(AZOPS_MAINTENANCE_API_VERSION) of the managed node is used.
    type: str
    choices: ["2017-03-01", "2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01"]
    default: "2020-07-01"
  journal_dir:
    description:
      - The directory of the journal on the managed node, the record of what was drained for which event.
      - It has to belong to the user that the module runs as, and nobody else may write to it.
      - If not set, the environment variable E(AZOPS_MAINTENANCE_JOURNAL_DIR) of the managed node is used.
    type: path
    default: /var/lib/azops-maintenance/journal
  hold_file:
    description:
      - If this file is there, the VM is held. Nothing is drained on it and nothing is approved from it.
      - If not set, the environment variable E(AZOPS_MAINTENANCE_HOLD_FILE) of the managed node is used.
    type: path
    default: /etc/azops-maintenance/hold
"""

    PATIENCE = r"""
options:
  first_call:
    description:
      - Whether this may be the first call in the life of the VM, which enables the service and may take two minutes.
      - With V(true), an answer is awaited for 120 seconds instead of 10.
    type: bool
    default: false
  retry_timeout:
    description:
      - For how many seconds faults of the service are met with another try. Faults are HTTP status 404, 410, 429
        and 5xx, resets, timeouts, and answers that are empty or cut off.
      - No answer on connecting is not retried, it means that there is no metadata service.
    type: int
    default: 70
"""
