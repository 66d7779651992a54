"""Docstrings as the site reads them; an extension of griffe."""

import re
from typing import Any

import griffe


class AsWritten(griffe.Extension):
    """Takes ``Example:`` for a section of doctests, and Sphinx's roles for names in backticks."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the text before it is parsed."""
        if obj.docstring:
            text = re.sub(r"(?m)^( *)Example:$", r"\1Examples:", obj.docstring.value)
            text = re.sub(r":(?:func|class|meth):`~?([\w.]+)`", r"`\1`", text)
            obj.docstring.value = re.sub(r"(?<=\w)\[(?=, )", r"\\[", text)
