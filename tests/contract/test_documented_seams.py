"""The likelihood and the store of the tutorials keep their contracts."""

from typing import Any

from bo_stream.testing import LikelihoodContract, RuleContract, StoreContract
from tests.docs.pages import ROOT, blocks


def documented(page: str, name: str) -> Any:
    """The class of tests that the first two programs of a tutorial define."""
    space: dict[str, Any] = {"__name__": "documented"}
    programs = (b for b in blocks(ROOT / "docs" / "tutorials" / page) if b.language == "python")
    exec(next(programs).text + next(programs).text, space)
    return space[name]


TestInfection = documented("likelihood.md", "TestInfection")
TestJsonLines = documented("store.md", "TestJsonLines")
TestAlternating = documented("rule.md", "TestAlternating")
assert issubclass(TestInfection, LikelihoodContract)
assert issubclass(TestJsonLines, StoreContract)
assert issubclass(TestAlternating, RuleContract)
