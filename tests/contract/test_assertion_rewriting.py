"""A failed assertion of the contract shows its values, whichever module it stands in."""

import importlib
import pkgutil

import pytest

import bo_stream.testing

MODULES = [module.name for module in pkgutil.iter_modules(bo_stream.testing.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_assertions_are_rewritten(name: str) -> None:
    module = importlib.import_module(f"bo_stream.testing.{name}")
    assert "@pytest_ar" in vars(module)  # what pytest adds to a module it has rewritten


def test_every_part_of_the_contract_is_looked_at() -> None:
    parts = {kind.__module__ for kind in bo_stream.testing.StreamingContract.__mro__} - {"builtins"}
    assert parts <= {f"bo_stream.testing.{name}" for name in MODULES} and len(parts) > 10
