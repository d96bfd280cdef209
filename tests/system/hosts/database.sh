# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=sh
#
# Makes db0 of the test bed a PostgreSQL primary, and db1 its standby, which db0 has to be there for.
set -eu
test -x /usr/sbin/testbed-init || { echo "this is no host of the test bed" >&2; exit 1; }

me=$(hostname)
case $me in
  db0) peer=db1 ;;
  db1) peer=db0 ;;
  *) echo "$me is neither db0 nor db1" >&2; exit 1 ;;
esac
data=/var/lib/postgresql/15/main

cat >/etc/postgresql/15/main/conf.d/pair.conf <<SETTINGS
listen_addresses = '*'
wal_keep_size = '128MB'
hot_standby = on
shared_buffers = '16MB'
primary_conninfo = 'host=$peer user=replicator application_name=$me connect_timeout=3'
wal_retrieve_retry_interval = '1s'
SETTINGS
echo 'host all,replication all samenet trust' >>/etc/postgresql/15/main/pg_hba.conf
systemctl enable --quiet postgresql

if [ "$me" = db1 ]; then
  rm -rf "$data"
  runuser -u postgres -- pg_basebackup -h "$peer" -U replicator -D "$data" -c fast
  runuser -u postgres -- touch "$data/standby.signal"
fi
systemctl start postgresql@15-main
if [ "$me" = db0 ]; then
  runuser -u postgres -- psql -q -c 'CREATE ROLE replicator REPLICATION LOGIN' -c 'CREATE ROLE writer LOGIN' \
    -c 'CREATE DATABASE shop OWNER writer'
fi
