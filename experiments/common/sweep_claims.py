"""Who does which run of a sweep: claims and outcomes, as events in a store like a campaign's.

Claims are made one at a time, so that of several processes that sweep a folder only one does a
run. The claim of a process that has died on this machine counts for nothing. Whether a process of
another machine has died cannot be known here: its claim is waited for, unless runs from before are
to be done again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bo_stream.campaign.evaluation.process_identity import has_died, is_on_another_machine, run_id
from bo_stream.campaign.storage.open_store import open_store
from bo_stream.errors import StateError

__all__ = ["Claims", "Outcome", "Redo", "finished"]

NAME = "sweep"

Redo = Literal["nothing", "failed", "all"]
"""Which runs that have ended before are run again; with either of the last two, also those that
another machine has claimed and not finished.
"""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        stem: The name of its files, without suffix.
        state: ``done`` or ``failed``.
        seconds: How long it took.
        reason: Why it failed, in one line; None if it is done.
    """

    stem: str
    state: Literal["done", "failed"]
    seconds: float
    reason: str | None = None

    @property
    def failed(self) -> bool:
        """Whether it gave no result."""
        return self.state == "failed"


def finished(folder: Path, stem: str) -> bool:
    """Whether the files of a run are there; each is moved there whole, the table last."""
    return all((folder / f"{stem}.{suffix}").is_file() for suffix in ("csv", "json"))


class Claims:
    """The events of the sweep in a folder, from its file ``sweep.db``.

    Args:
        folder: The results go here.
        plan: A fingerprint of each run's configuration, by stem, in the order in which the runs are
            to be done.
        redo: Which outcomes from before are ignored.

    Raises:
        StateError: if the folder holds results of another configuration of the same stem.
        ImportError: without the extra ``store``.
    """

    def __init__(self, folder: Path, plan: Mapping[str, str], redo: Redo) -> None:
        self.folder, self.plan, self.redo = folder, plan, redo
        self.store = open_store(f"sqlite:///{folder.absolute()}/sweep.db")
        if self.store.settings(NAME) is None:
            try:
                self.store.create(NAME, {"kind": "sweep"})
            except StateError:  # another process may have created it meanwhile
                if self.store.settings(NAME) is None:
                    raise
        self._last: dict[str, tuple[int, dict[str, Any]]] = {}
        self._seen = 0
        self.refresh()
        self._before = self._seen
        self._refuse_others()

    def refresh(self) -> None:
        """Take note of what other processes did."""
        self._note(self.store.events_since(NAME, self._seen))

    def claim(self, busy: Collection[str]) -> str | None:
        """The next run for this process, by stem; None if there is none at the moment.

        Args:
            busy: Runs that this process is doing.
        """
        with self.store.transaction(NAME) as turn:
            self._note(turn.events_since(self._seen))
            self._refuse_others()
            stem = next((s for s in self.plan if s not in busy and self._open(s)), None)
            if stem is not None:
                event = {"kind": "claimed", "stem": stem, "by": run_id()}
                turn.append(event | {"configuration": self.plan[stem]})
        self.refresh()
        return stem

    def settle(self, outcome: Outcome) -> None:
        """Record how a run ended; durable on return."""
        event = {"kind": outcome.state, "stem": outcome.stem, "seconds": outcome.seconds}
        event |= {"reason": outcome.reason, "configuration": self.plan[outcome.stem]}
        with self.store.transaction(NAME) as turn:
            self._note(turn.events_since(self._seen))
            turn.append(event)
        self.refresh()

    def outcomes(self) -> dict[str, Outcome]:
        """The outcomes known so far, by stem, in the order of the plan."""
        known = {stem: self._last[stem][1] for stem in self.plan if not self._pending(stem)}
        return {
            stem: Outcome(stem, event["kind"], event["seconds"], event["reason"])
            for stem, event in known.items()
        }

    def pending(self) -> list[str]:
        """Runs without an outcome: unclaimed, or under way here or elsewhere."""
        return [stem for stem in self.plan if self._pending(stem)]

    def elsewhere(self) -> list[str]:
        """Runs without an outcome that other machines have claimed, in the order of the plan."""
        claimed = ((stem, self._last[stem][1]) for stem in self.pending() if stem in self._last)
        return [stem for stem, event in claimed if is_on_another_machine(event.get("by"))]

    def others(self) -> list[str]:
        """Runs that are done in this folder and are not in the plan, in alphabetical order."""
        known = (stem for stem in self._last if stem not in self.plan)
        return sorted(stem for stem in known if finished(self.folder, stem))

    # -- pieces ----------------------------------------------------------------------------------

    def _note(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            self._seen += 1
            self._last[event["stem"]] = (self._seen, event)

    def _pending(self, stem: str) -> bool:
        return self._open(stem) or self._last[stem][1]["kind"] == "claimed"

    def _open(self, stem: str) -> bool:
        """Whether a run may be claimed."""
        if stem not in self._last:
            return True
        number, event = self._last[stem]
        old = number <= self._before
        if event["kind"] == "claimed":
            given_up = old and self.redo != "nothing" and is_on_another_machine(event["by"])
            return given_up or has_died(event["by"])
        if self.redo == "all" and old:
            return True
        if event["kind"] == "failed":
            changed = event["configuration"] != self.plan[stem]
            return old and (changed or self.redo == "failed")
        return not finished(self.folder, stem)

    def _refuse_others(self) -> None:
        """Refuse to mix in results of other configurations."""
        changed = [
            stem
            for stem, configuration in self.plan.items()
            if stem in self._last
            and not self._open(stem)
            and self._last[stem][1]["kind"] == "done"
            and self._last[stem][1]["configuration"] != configuration
        ]
        if changed:
            shown = ", ".join(changed[:5]) + (", ..." if len(changed) > 5 else "")
            raise StateError(
                f"a folder without results of other configurations of {shown}",
                f"{self.folder}, where they are",
                "Name another folder (--out), or run all of them again (--fresh).",
            )
