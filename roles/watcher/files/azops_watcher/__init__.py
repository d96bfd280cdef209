# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The watcher: notices the events that hit this VM, runs hooks, tells the outside, and acts alone where it may."""

VERSION = "0.1.0"
ACTOR = "azops-watcher"
