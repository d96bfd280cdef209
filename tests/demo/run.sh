#!/usr/bin/env bash
# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# Six VMs in three update domains that serve requests, maintenance on all of them, the rolling run, the report.
# Needs ansible-playbook and the collection, no root; see `make demo`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
simulator="$here/../../roles/simulator/files/azops_simulator.py"
python=$(dirname "$(command -v ansible-playbook)")/python
scratch=$(mktemp -d)
started=$SECONDS
export AZOPS_SIMULATOR_CONTROL="unix:$scratch/control"

simulate() { "$python" "$simulator" "$@"; }
say() { printf '\n=== %s\n' "$*"; }
count() { "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$scratch/counts.json" "$1"; }
wait_for() {
  for _ in $(seq 300); do
    [ ! -e "$1" ] || return 0
    sleep 0.1
  done
  echo "$1 did not appear" >&2
  exit 1
}
clean_up() {
  kill $simulator_pid $load_pid 2>/dev/null || true
  wait $simulator_pid $load_pid 2>/dev/null || true
  rm -rf "$scratch"
}

"$python" "$here/fleet.py" topology "$scratch" >"$scratch/topology.json"
"$python" "$simulator" serve --topology "$scratch/topology.json" --listen 127.0.0.1:0 --ready-file "$scratch/ready.json" >"$scratch/simulator.out" 2>&1 &
simulator_pid=$!
"$python" "$here/fleet.py" load "$scratch" &
load_pid=$!
trap clean_up EXIT
wait_for "$scratch/ready.json"
wait_for "$scratch/counts.json"
DEMO_SIMULATOR_URL=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["url"])' "$scratch/ready.json")
export DEMO_PYTHON=$python DEMO_SCRATCH=$scratch DEMO_SIMULATOR_URL
export ANSIBLE_STDOUT_CALLBACK=story ANSIBLE_CALLBACK_PLUGINS="$here/callback_plugins" ANSIBLE_LOCALHOST_WARNING=false

say "Six VMs in three update domains serve requests. Azure reboots one of them, and nobody was ready:"
"$python" "$here/fleet.py" reboot "$scratch" vm0
lost_before=$(count failed)
echo "    $lost_before of $(count asked) requests were lost"

say "Azure announces maintenance for all six:"
simulate schedule --type Reboot --vm vm0 --vm vm3 --lasts 5 | sed 's/^/    /'
simulate schedule --type Reboot --vm vm1 --lasts 5 | sed 's/^/    /'
simulate schedule --type Redeploy --vm vm4 --lasts 5 | sed 's/^/    /'
simulate schedule --type Reboot --vm vm2 --vm vm5 --lasts 5 | sed 's/^/    /'

say "ansible-playbook -i inventory.yml azops.maintenance.rolling"
ansible-playbook --forks 6 -i "$here/inventory.yml" azops.maintenance.rolling
lost=$(($(count failed) - lost_before))
asked=$(count asked)

say "What happened"
cat <<SUMMARY
    Update domain after update domain: the VMs were taken out of service, only then Azure was told to go ahead, each was
    rebooted for real, and each was put back and checked before the next domain was touched.
    $asked requests were sent all the while. Lost in the reboot without warning: $lost_before. Lost in the five that followed: $lost.
    That took $((SECONDS - started)) s. Nothing was left behind.
SUMMARY
[ "$lost" -eq 0 ]
