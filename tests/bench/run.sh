#!/usr/bin/env bash
# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# Every benchmark, one after the other; see `make bench`. Needs ansible-playbook and the collection.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$(dirname "$(command -v ansible-playbook)")/python
"$python" "$here/scan.py"
echo
"$python" "$here/plan.py"
echo
"$python" "$here/simulator_load.py"
echo
"$python" "$here/watcher.py"
