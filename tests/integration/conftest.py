"""What tests beside other packages share."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet_optuna() -> Iterator[None]:
    """Optuna reports errors only."""
    optuna = pytest.importorskip("optuna")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)
