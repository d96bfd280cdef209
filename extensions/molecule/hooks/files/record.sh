#!/bin/sh
# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# A hook that writes down how it was called.
set -eu
out=/var/tmp/hook-records
mkdir -p "$out"
name=$AZOPS_PHASE-$(basename "$0")
cat > "$out/$name.json"
env > "$out/$name.env"
id -un > "$out/$name.user"
ip -brief link > "$out/$name.links"
echo "$name" >> "$out/order"
