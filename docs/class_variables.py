"""An extension of griffe: keep attributes annotated as ``ClassVar`` out of the signatures of dataclasses.

griffe itself recognises ``ClassVar[…]`` only.
"""

from __future__ import annotations

from typing import Any

import griffe


class ClassVariables(griffe.Extension):
    """Label an attribute with a bare ``ClassVar`` as belonging to the class only."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if str(attr.annotation) == "ClassVar":
            attr.labels.discard("instance-attribute")
