"""The lowest versions that are allowed are those that `make test-lowest` tests."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
OTHERS = {"ruff", "mypy", "pandas-stubs", "ax-platform", "mkdocs-material"}


def numbers(version: str) -> list[int]:
    """The parts of a version, without zeros at the end."""
    parts = [int(part) for part in version.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return parts


def test_the_lowest_versions_allowed_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    allowed = {
        found[1]: numbers(found[2])
        for found in (re.match(r"([\w-]+)>=([\d.]+)", line) for line in wanted)
        if found and found[1] not in OTHERS
    }
    pinned = dict(
        re.findall(r"(?m)^([\w-]+)==([\d.]+)$", (ROOT / "constraints-lowest.txt").read_text())
    )
    assert {name: numbers(version) for name, version in pinned.items()} == allowed
    assert len(allowed) >= 16
