"""Trials of a campaign as rows, and the list of all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, overload

__all__ = ["ENQUEUED", "Decision", "Event", "Points", "Status", "Trial", "TrialList", "is_same"]

Event = dict[str, Any]
"""An event as plain data; see `bo_stream.campaign.ledger.events`."""

Status = Literal["running", "told", "failed", "withdrawn"]

ENQUEUED = "enqueued"
"""In place of the program that evaluates a trial, while none has taken it."""

Points = tuple[tuple[float, ...], ...]
"""Inputs of several trials in the user's units."""

BLOCK = 512
"""Trials in a block of a `TrialList`."""


class Trial(NamedTuple):
    """One measurement.

    Attributes:
        id: Number of the trial, from 0.
        inputs: Its inputs in the user's units.
        place: Row of the pool; None in a box.
        status: ``running`` (asked for, no outcome yet), ``told``, ``failed`` or ``withdrawn``.
        ask: Number of the call of `ask` that proposed it; None if it was not asked for.
        by: Identifier of the program that evaluates it, if that gave one; `ENQUEUED` until one has
            taken a trial of the user's choice.
        y: The outcome.
        yvar: Noise variance of the outcome, if known.
        reason: Why it failed or was withdrawn.
        asked_at: When it was asked for, in seconds since 1970, if that was recorded.
        size: Trials or exposure of a count.
        parts: Of several outcomes: those that were told, with their noise variances, by column.
        note: Note of the user.
        key: Name of the measurement, by which it is recognised when it is told again.
        asked: Inputs that were asked for, if others were measured.
    """

    id: int
    inputs: tuple[float, ...]
    place: int | None
    status: Status = "running"
    ask: int | None = None
    by: str | None = None
    y: float | None = None
    yvar: float | None = None
    reason: str | None = None
    asked_at: float | None = None
    size: float | None = None
    parts: Mapping[str, tuple[float, float | None]] | None = None
    note: str | None = None
    key: str | None = None
    asked: tuple[float, ...] | None = None


class Decision(NamedTuple):
    """Which acquisition function chose the latest trials.

    Attributes:
        acquisition: Its name.
        why: Why it was chosen, as a sentence.
    """

    acquisition: str
    why: str


class TrialList(Sequence[Trial]):
    """Trials by id. Immutable: a changed copy shares all blocks without a changed trial."""

    def __init__(self, blocks: tuple[tuple[Trial, ...], ...] = ()) -> None:
        self._blocks = blocks
        self._size = len(blocks[-1]) + BLOCK * (len(blocks) - 1) if blocks else 0

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, id: int) -> Trial: ...

    @overload
    def __getitem__(self, id: slice) -> list[Trial]: ...

    def __getitem__(self, id: int | slice) -> Trial | list[Trial]:
        if isinstance(id, slice):
            return [self[i] for i in range(*id.indices(self._size))]
        if not 0 <= id < self._size:
            raise IndexError(f"trial {id} of {self._size}")
        return self._blocks[id // BLOCK][id % BLOCK]

    def __iter__(self) -> Iterator[Trial]:
        return chain.from_iterable(self._blocks)

    def changed(self, trials: Iterable[Trial]) -> TrialList:
        """The list with changed trials, and new ones whose ids follow."""
        blocks: list[Any] = list(self._blocks)
        opened: set[int] = set()
        for trial in trials:
            number, place = divmod(trial.id, BLOCK)
            if number == len(blocks):
                blocks.append([])
                opened.add(number)
            elif number not in opened:
                blocks[number] = list(blocks[number])
                opened.add(number)
            blocks[number][place : place + 1] = [trial]
        for number in opened:
            blocks[number] = tuple(blocks[number])
        return TrialList(tuple(blocks))


def is_same(before: float | None, now: float | None) -> bool:
    """Whether two outcomes or variances are equal up to the digits that a file may drop."""
    if before is None or now is None:
        return before is now
    return math.isclose(before, now, rel_tol=1e-12)
