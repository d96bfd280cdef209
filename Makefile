# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# Needs Python 3.11 or newer and make; everything else goes into .cache/ and is made once.
PYTHON ?= $(shell tests/tools/find-python)
TOOLS = $(PYTHON) -B tests/tools

.DEFAULT_GOAL := help
.PHONY: help demo test check lint unit sanity packaging integration matrix hosts system system-test bench environment clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS='	' read -r target text; do \
		printf '  make %-12s %s\n' "$$target" "$$text"; done

demo: ## Take a simulated fleet that serves requests through real reboots
	@$(TOOLS) demo

test: ## Everything but the system test: lint, unit, sanity, packaging, integration, matrix (every fault once), hosts
	@$(TOOLS) lint unit sanity packaging integration matrix hosts

check: ## The quick answer: lint and unit
	@$(TOOLS) lint unit

lint: ## ruff, mypy, ansible-lint, REUSE, changelog and documentation
	@$(TOOLS) lint

unit: ## Unit tests on two ansible-core versions and on every Python of the machine
	@$(TOOLS) unit

sanity: ## ansible-test sanity on two ansible-core versions
	@$(TOOLS) sanity

packaging: ## Build, install and use the tarball
	@$(TOOLS) packaging

integration: ## Integration targets; TARGETS="name name" selects some
	@TARGETS="$(TARGETS)" $(TOOLS) integration

matrix: ## Every fault of a rolling run, in every shape of a fleet; CASES="drain fails, killed" selects some
	@CASES="$(CASES)" $(TOOLS) matrix_all

hosts: ## What is shown on real systemd hosts; needs root on a Debian machine
	@$(TOOLS) hosts

system: ## A fleet under load through real reboots, the short form; CASES="part, part" selects some
	@CASES="$(CASES)" $(TOOLS) system

system-test: ## The same in full; writes docs/what-we-tested.md
	@CASES="$(CASES)" $(TOOLS) system-test

bench: ## Measure what a call costs
	@$(TOOLS) bench

environment: ## Write .cache/environment; source it to use ansible by hand
	@$(TOOLS) environment

clean: ## Remove everything that the other targets made
	rm -rf .cache .ansible .hypothesis tests/output azops-maintenance-*.tar.gz
