# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=sh
#
# Makes a host of the test bed the balancer, with the configuration that was put to /root/haproxy.cfg.
set -eu
test -x /usr/sbin/testbed-init || { echo "this is no host of the test bed" >&2; exit 1; }

cp /root/haproxy.cfg /etc/haproxy/haproxy.cfg
systemctl enable --quiet haproxy
systemctl restart haproxy
