# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The errors of the collection: what went wrong, and what to do about it."""

from typing import Any, Dict, Optional


class MaintenanceError(Exception):
    """Every error that the collection raises on purpose."""

    kind = "maintenance"
    default_remedy = ""

    def __init__(self, problem: str, remedy: Optional[str] = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = self.default_remedy if remedy is None else remedy

    def __str__(self) -> str:
        return "{0} {1}".format(self.problem, self.remedy) if self.remedy else self.problem

    def as_result(self) -> Dict[str, Any]:
        """What a module returns when it fails."""
        return {"msg": str(self), "error_kind": self.kind}


class InputError(MaintenanceError):
    """An option, a policy or another thing that the user gave is wrong."""

    kind = "input"


class NotAzureError(MaintenanceError):
    """Nothing answers where the metadata service should be."""

    kind = "not_azure"
    default_remedy = (
        "If this is an Azure VM, check that nothing blocks it (local firewall, a route for 169.254.169.254);"
        " if it is not, leave it out of the play or set the endpoint of a simulator."
    )


class ServiceError(MaintenanceError):
    """The metadata service answered with an error, or not at all, until the retries were used up."""

    kind = "service"
    default_remedy = "Run it again; if it lasts, restart the VM's network or open a support request with Azure."

    def __init__(self, problem: str, remedy: Optional[str] = None, status: Optional[int] = None) -> None:
        super().__init__(problem, remedy)
        self.status = status

    def as_result(self) -> Dict[str, Any]:
        return dict(super().as_result(), http_status=self.status)


class RequestRefusedError(ServiceError):
    """The metadata service refused the request itself, so that asking again does not help."""

    kind = "request_refused"
    default_remedy = "Check the endpoint and the api_version."


class DocumentError(MaintenanceError):
    """The service answered, but not with something that can be understood."""

    kind = "document"
    default_remedy = (
        "Look at the endpoint's raw answer with curl; if it is Azure's own, report it as a bug of the collection."
    )


class JournalError(MaintenanceError):
    """The journal cannot be read or written."""

    kind = "journal"
    default_remedy = "Run as root (become: true), or set journal_dir to a directory that this user owns."


class HeldError(MaintenanceError):
    """Somebody has said that nothing is to be done on this VM."""

    kind = "held"
    default_remedy = "Remove the hold when the VM may be drained again."


class DrainError(MaintenanceError):
    """Something could not be taken out of service or put back."""

    kind = "drain"
