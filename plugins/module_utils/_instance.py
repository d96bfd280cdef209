# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who a VM is, by its own metadata service."""

from typing import Any, Dict, NamedTuple, Optional

from ._document import clean_text, quote
from ._errors import DocumentError


class Instance(NamedTuple):
    """A VM's own answer to "who am I"; what does not apply to it is None."""

    name: str
    resource_id: Optional[str]
    computer_name: Optional[str]
    location: Optional[str]
    zone: Optional[str]
    priority: Optional[str]
    update_domain: Optional[str]
    fault_domain: Optional[str]
    scale_set_name: Optional[str]
    scale_set_id: Optional[str]
    placement_group_id: Optional[str]
    tags: Dict[str, str]


def parse_instance(value: Any) -> Instance:
    """Understand the compute part of the instance document."""
    if not isinstance(value, dict):
        raise DocumentError("The instance document is not a JSON object but {0}.".format(quote(value)))
    name = clean_text(value.get("name"))
    if name is None:
        raise DocumentError("The instance document has no name of the VM: {0}.".format(quote(value)))
    return Instance(
        name=name,
        resource_id=clean_text(value.get("resourceId")),
        computer_name=_inside(value, "osProfile", "computerName"),
        location=clean_text(value.get("location")),
        zone=_word(value.get("zone")),
        priority=clean_text(value.get("priority")),
        update_domain=_word(value.get("platformUpdateDomain")),
        fault_domain=_word(value.get("platformFaultDomain")),
        scale_set_name=clean_text(value.get("vmScaleSetName")),
        scale_set_id=_inside(value, "virtualMachineScaleSet", "id"),
        placement_group_id=clean_text(value.get("placementGroupId")),
        tags=_tags(value.get("tagsList")),
    )


def _inside(value: Dict[str, Any], outer: str, inner: str) -> Optional[str]:
    part = value.get(outer)
    return clean_text(part.get(inner)) if isinstance(part, dict) else None


def _word(value: Any) -> Optional[str]:
    """A domain or zone; a number is taken for its digits."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else clean_text(value)


def _tags(value: Any) -> Dict[str, str]:
    tags: Dict[str, str] = {}
    for tag in value if isinstance(value, list) else []:
        name = clean_text(tag.get("name")) if isinstance(tag, dict) else None
        if name is not None:
            tags[name] = clean_text(tag.get("value")) or ""
    return tags
