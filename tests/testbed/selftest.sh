#!/usr/bin/env bash
# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Proves that the hosts of the test bed behave like machines, and that nothing is left of them.
# Needs ansible on the PATH, or its path in ANSIBLE.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
simulator=$here/../../roles/simulator/files/azops_simulator.py
ansible=${ANSIBLE:-ansible}
run=/run/azops-testbed
hosts=(web0 web1 web2)
export AZOPS_SIMULATOR_CONTROL=unix:$run/simulator.sock ANSIBLE_HOME=$run/ansible

testbed() { python3 -B "$here/testbed.py" "$@"; }
on() { ssh -F "$run/ssh_config" -o ConnectTimeout=2 "$@" < /dev/null; }
boot_id() { testbed exec "$1" -- cat /proc/sys/kernel/random/boot_id; }
metadata() { testbed exec "$1" -- curl -sS -m 2 -H Metadata:true "http://169.254.169.254/metadata/$2" "${@:3}"; }
compute() { metadata "$1" 'instance/compute?api-version=2021-12-13'; }

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

same() { [ "$1" = "$2" ] || fail "$3: expected '$1', got '$2'"; }
differ() { [ "$1" != "$2" ] || fail "$3: still '$1'"; }

# Until the command succeeds, 20 seconds at most.
until_true() {
    local deadline=$((SECONDS + 20))
    until "$@"; do [ "$SECONDS" -lt "$deadline" ] || fail "not in time: $*"; done
}

# What could be left behind.
traces() {
    ip netns list | grep azops || true
    ip -brief link | grep azops || true
    podman ps --all --noheading --format '{{.Names}}'
    podman volume ls --noheading
    cat /proc/sys/fs/inotify/max_user_instances
    ps -eo stat=,args= | awk '!/^Z/ && /azops-testbed[/]|conmon.*azops-[w]eb/'
    ls -d "$run" 2> /dev/null || true
}

step() { # TEXT FUNCTION: run and time it
    local start=${EPOCHREALTIME/./}
    "$2"
    printf '%6d ms  %s\n' $(((${EPOCHREALTIME/./} - start) / 1000)) "$1"
}

can_say_no() {
    local copy code
    copy=$(mktemp -d)
    chmod 0755 "$copy"
    cp "$here/testbed.py" "$copy"
    code=0
    setpriv --reuid=65534 env -u CI /usr/bin/python3 -B "$copy/testbed.py" up 2> "$copy/said" || code=$?
    same 77 "$code" "exit code without root"
    same 1 "$(wc -l < "$copy/said")" "lines said without root"
    code=0
    CI=true setpriv --reuid=65534 /usr/bin/python3 -B "$copy/testbed.py" up 2> "$copy/said" || code=$?
    same 1 "$code" "exit code without root, with CI=true"
    rm -r "$copy"
}

replaces_a_killed_run() {
    # In a shell of its own, which keeps to itself what it says about the kill.
    (timeout --signal=KILL 1 python3 -B "$here/testbed.py" up --hosts 3 > /dev/null || true) 2> /dev/null
    testbed up --hosts 3 --image bookworm,bullseye,trixie > /dev/null
    testbed status > /dev/null
}

boots() {
    local host
    for host in "${hosts[@]}"; do
        same systemd "$(testbed exec "$host" -- cat /proc/1/comm)" "$host: PID 1"
        same running "$(testbed exec "$host" -- systemctl is-system-running)" "$host: systemd"
        same "" "$(testbed exec "$host" -- ip route show default)" "$host: default route"
        same "$host" "$(testbed exec "$host" -- hostname)" "$host: name"
        testbed exec "$host" -- getent hosts "${hosts[@]}" testbed > /dev/null
    done
    same 3 "$(for host in "${hosts[@]}"; do testbed exec "$host" -- cat /etc/machine-id; done | sort -u | wc -l)" "machine ids"
    same bullseye "$(testbed exec web1 -- sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)" "web1: release"
}

lets_in_ops() {
    local host
    for host in "${hosts[@]}"; do
        same ops "$(on "$host" id -un)" "$host: ssh"
        same root "$(on "$host" sudo id -un)" "$host: sudo"
        same root "$(on "root@$host" id -un)" "$host: ssh as root"
    done
}

answers_ansible() {
    same 3 "$("$ansible" -i "$run/inventory.yml" all -m ansible.builtin.ping --become | grep -c SUCCESS)" "hosts that answer"
    "$ansible" -i "$run/inventory.yml" 'trixie:&update_domain_2' --list-hosts | grep -q web2 || fail "groups"
}

sandboxes_units() {
    local host code
    for host in "${hosts[@]}"; do
        testbed exec "$host" -- systemd-run --quiet --wait --pipe -p DynamicUser=yes -p ProtectSystem=strict \
            -p PrivateNetwork=yes -p PrivateDevices=yes -p ProtectProc=invisible -p RestrictNamespaces=yes \
            -p MemoryDenyWriteExecute=yes -p SystemCallFilter=@system-service true
        code=0
        testbed exec "$host" -- systemd-run --quiet --wait --pipe -p IPAddressDeny=any \
            curl -s -m 1 -H Metadata:true http://169.254.169.254/ || code=$?
        same 28 "$code" "$host: IPAddressDeny is enforced, curl"
    done
}

tells_who_it_is() {
    same "Web_0 Web_1 Web_2" "$(for host in "${hosts[@]}"; do compute "$host" | jq -r .name; done | xargs)" "names"
    same "0 1 2" "$(for host in "${hosts[@]}"; do compute "$host" | jq -r .platformUpdateDomain; done | xargs)" "update domains"
    same 400 "$(testbed exec web0 -- curl -s -o /dev/null -w '%{http_code}' 'http://169.254.169.254/metadata/instance')" \
        "answer without the header"
}

reboots() {
    local host before after
    for host in "${hosts[@]}"; do
        testbed exec "$host" -- sh -c "echo $host > /root/disk"
        before=$(boot_id "$host")
        testbed reboot "$host"
        after=$(boot_id "$host")
        differ "$before" "$after" "$host: boot id after reboot"
        same "$host" "$(testbed exec "$host" -- cat /root/disk)" "$host: disk after reboot"
        testbed exec "$host" -- journalctl --list-boots --no-pager | grep -q "${before//-/}" || fail "$host: old journal"
        testbed exec "$host" -- journalctl --list-boots --no-pager | grep -q "${after//-/}" || fail "$host: new journal"
    done
}

rebooted() { local now; now=$(boot_id "$1" 2> /dev/null) && [ "$now" != "$2" ] && on "$1" true 2> /dev/null; }

reboots_from_inside() {
    local before
    before=$(boot_id web1)
    on root@web1 systemctl reboot || true
    until_true rebooted web1 "$before"
}

loses_power() {
    local before
    before=$(boot_id web2)
    testbed kill web2
    ! on web2 true 2> /dev/null || fail "web2 answers without power"
    ! testbed status > /dev/null || fail "status says that all is well"
    testbed start web2
    differ "$before" "$(boot_id web2)" "web2: boot id after power loss"
    same web2 "$(testbed exec web2 -- cat /root/disk)" "web2: disk after power loss"
}

freezes() {
    local before
    before=$(boot_id web0)
    testbed freeze web0
    ! timeout 2 ssh -F "$run/ssh_config" web0 true < /dev/null 2> /dev/null || fail "web0 answers while frozen"
    testbed unfreeze web0
    on web0 true
    same "$before" "$(boot_id web0)" "web0: boot id after a freeze"
}

is_partitioned() {
    testbed partition web0
    ! on web0 true 2> /dev/null || fail "web0 is reached through a pulled cable"
    ! testbed exec web1 -- curl -s -m 1 telnet://web0:22 < /dev/null > /dev/null || fail "web1 reaches web0"
    same Web_0 "$(compute web0 | jq -r .name)" "web0: metadata without a cable"
    testbed heal web0
    until_true on web0 true 2> /dev/null
}

loses_the_service() {
    local code
    testbed simulator stop
    code=0
    compute web0 > /dev/null 2>&1 || code=$?
    same 28 "$code" "curl, service hangs"
    testbed simulator cont
    same Web_0 "$(compute web0 | jq -r .name)" "name after the hang"
    testbed simulator kill
    code=0
    compute web0 > /dev/null 2>&1 || code=$?
    same 7 "$code" "curl, service is gone"
    testbed simulator restart
    same Web_0 "$(compute web0 | jq -r .name)" "name after the restart"
}

is_hit_by_an_event() {
    local before event
    before=$(boot_id web1)
    event=$(python3 "$simulator" schedule --type Reboot --vm Web_1 --lasts 30 --json | jq -r .event)
    metadata web1 'scheduledevents?api-version=2020-07-01' | grep -qi "$event" || fail "the event is not in the document"
    metadata web1 'scheduledevents?api-version=2020-07-01' -d "{\"StartRequests\": [{\"EventId\": \"$event\"}]}" > /dev/null
    until_true rebooted web1 "$before"
    same web1 "$(testbed exec web1 -- cat /root/disk)" "web1: disk after the event"
}

goes_away() {
    local left
    testbed freeze web0
    testbed kill web1
    testbed partition web2
    testbed simulator stop
    testbed down
    left=$(diff <(echo "$clean") <(traces)) || fail "left behind: $left"
    testbed down
}

command -v "$ansible" > /dev/null || fail "no ansible on the PATH; put it there or into ANSIBLE"
testbed install
testbed down
clean=$(traces)
trap 'testbed down' EXIT
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR
set -o errtrace

testbed image bookworm,bullseye,trixie > /dev/null
step "says no where it cannot run" can_say_no
step "replaces a killed run; 3 hosts of 3 releases up" replaces_a_killed_run
step "systemd is PID 1, no default route" boots
step "ssh as ops and root" lets_in_ops
step "ansible ping" answers_ansible
step "units are sandboxed" sandboxes_units
step "each host is its own VM to the metadata service" tells_who_it_is
step "3 reboots keep disk and journal" reboots
step "a reboot from inside" reboots_from_inside
step "power loss" loses_power
step "freeze" freezes
step "partition" is_partitioned
step "the metadata service hangs, goes away, comes back" loses_the_service
step "an approved event reboots its VM" is_hit_by_an_event
step "nothing is left" goes_away
echo "test bed: all well"
