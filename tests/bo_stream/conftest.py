"""What a grid of some hundred nodes does, on a small one."""

import pytest

from bo_stream.grid import evidence as grid_evidence


@pytest.fixture(autouse=True)
def many_nodes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An eigenbasis at any number of nodes and points, where the test's family says so."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if parameters.get("family") == "wiski on many nodes":
        monkeypatch.setattr(grid_evidence, "REDUCED_FROM", 1)
        monkeypatch.setattr(grid_evidence, "FEW", 0.0)
