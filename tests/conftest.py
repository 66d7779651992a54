"""The whole suite: one torch thread, extensions compiled in a folder of their own, repeatable
property tests, GPU tests skipped aloud.
"""

import os

import hypothesis
import pytest
import torch

from bo_stream.campaign.extensions import prepare_extensions

torch.set_num_threads(1)
prepare_extensions()

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device is present")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
