"""The likelihood of the tutorial keeps the contract."""

from typing import Any

from bo_stream.testing import LikelihoodContract
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "tutorials" / "likelihood.md"


def documented() -> Any:
    """The class that the page's first two programs define."""
    space: dict[str, Any] = {}
    first, second, *_ = (b for b in blocks(PAGE) if b.language == "python")
    exec(first.text + second.text, space)
    return space["TestInfection"]


TestInfection = documented()
assert issubclass(TestInfection, LikelihoodContract)
