"""The family that the page on adding a surrogate builds passes the contract, as it stands there."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from bo_stream.testing import StreamingContract

PAGE = Path(__file__).parents[2] / "docs" / "adding_a_surrogate.md"
CODE = next(iter(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)))


def from_the_page() -> Any:
    """The family of the page's first block of code."""
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(CODE, str(PAGE), "exec"), names)
    return names["SlidingGP"]


@pytest.mark.slow
class TestDocumentedFamily(StreamingContract):
    family = from_the_page()


def test_it_is_written_in_under_sixty_lines() -> None:
    classes = [node for node in ast.parse(CODE).body if isinstance(node, ast.ClassDef)]
    lines = CODE.splitlines()
    span = lines[classes[0].lineno - 2 : classes[-1].end_lineno]
    assert len([line for line in span if line.strip()]) < 60
