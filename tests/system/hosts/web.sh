# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=sh
#
# Makes a host of the test bed a web server: a page, and a file that takes about eight seconds.
set -eu
test -x /usr/sbin/testbed-init || { echo "this is no host of the test bed" >&2; exit 1; }

mkdir -p /srv/www
hostname >/srv/www/index.html
head -c 2000 /dev/zero | tr '\0' . >>/srv/www/index.html
head -c 8000 /dev/zero | tr '\0' . >/srv/www/slow
cat >/etc/nginx/sites-available/default <<'SITE'
server {
  listen 8080 default_server;
  root /srv/www;
  access_log off;
  add_header X-Served-By $hostname always;
  location = /slow { limit_rate 1000; }
}
SITE
systemctl enable --quiet --now nginx
