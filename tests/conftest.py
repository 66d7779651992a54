"""The whole suite: one torch thread, extensions compiled in a folder of their own, repeatable
tests in any order, GPU tests skipped aloud, slow classes left out before they are collected.
"""

import os
import random
import sys
import time
import zlib
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

torch.set_num_threads(1)
EXTENSIONS = Path(sys.prefix) / "var" / "torch_extensions"
os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(EXTENSIONS))
for lock in EXTENSIONS.glob("*/lock"):  # of a run that was killed while BoTorch compiled
    if time.time() - lock.stat().st_mtime > 600.0:
        lock.unlink(missing_ok=True)

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


def seed_from(name: str) -> None:
    """Seed all generators from a name."""
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest) -> None:
    """A test draws the same numbers whichever tests ran before it."""
    seed_from(request.node.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> None:
    """What tests share is drawn the same whichever of them is first."""
    if fixturedef.scope != "function":
        seed_from(f"{request.node.nodeid}::{fixturedef.argname}")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """A module draws the same when it is imported."""
    if isinstance(collector, pytest.Module):
        seed_from(collector.nodeid)


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list | None:
    """Slow classes, most of the matrix, are not even collected where no slow test is run.

    One that is asked for by name is collected, so that pytest says what becomes of its tests.
    """
    config = collector.config
    if config.getoption("markexpr") != "not slow" or any("::" in arg for arg in config.args):
        return None
    marks = [
        mark
        for kind in (obj.__mro__ if isinstance(obj, type) else ())
        for mark in vars(kind).get("pytestmark", [])
    ]
    return [] if any(mark.name == "slow" for mark in marks) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device is present")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
