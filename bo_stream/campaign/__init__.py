"""Campaigns: ask where to measure, tell the outcomes, and keep both in a store.

Names are those of `bo_stream`, imported when they are first used, so that the command line can
start without torch.
"""

from importlib import import_module


def __getattr__(name: str) -> object:
    return getattr(import_module("bo_stream"), name)
