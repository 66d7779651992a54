"""Ctrl-C waits until a write is done."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from bo_stream.campaign.storage.open_store import open_store
from bo_stream.campaign.storage.sql_store import defer_interrupts


@pytest.fixture(autouse=True)
def sigint() -> Iterator[None]:
    """Python's own handler, even where the tests run with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_it_takes_effect_at_the_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    done = []
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        press()
        press()
        done.append("all of it")
    assert done and signal.getsignal(signal.SIGINT) is before


def test_where_ctrl_c_is_ignored_it_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with defer_interrupts():
        press()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_error_inside_comes_first() -> None:
    with pytest.raises(ZeroDivisionError), defer_interrupts():
        press()
        raise ZeroDivisionError


def test_what_was_being_written_is_in_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path / "oven.db")
    store.create("c", {})
    with pytest.raises(KeyboardInterrupt), store.transaction("c") as turn:
        press()
        turn.append({"kind": "failed", "reasons": []})
    assert len(store.events_since("c", 0)) == 1
    with store.transaction("c") as turn:
        assert len(turn.events_since(0)) == 1
