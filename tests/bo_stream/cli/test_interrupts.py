"""Ctrl-C waits until a write is done."""

import os
import signal

import pytest

from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.cli.signals import Careful, held_back


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_it_takes_effect_at_the_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        press()
        press()
        done.append("all of it")
    assert done and signal.getsignal(signal.SIGINT) is before


def test_an_error_inside_comes_first() -> None:
    with pytest.raises(ZeroDivisionError), held_back():
        press()
        raise ZeroDivisionError


def test_what_was_being_written_is_in_the_store() -> None:
    store = Careful(MemoryStore())
    store.create("c", {})
    with pytest.raises(KeyboardInterrupt), store.writing("c") as turn:
        press()
        turn.append({"kind": "failed", "reasons": []})
    assert len(store.since("c", 0)) == 1
    with store.writing("c") as turn:
        assert len(turn.since(0)) == 1
