"""A campaign whose process is killed again and again ends like one that was left alone.

Run `python -m experiments.benchmarks.campaign_kills` (add `--smoke` for a run of seconds, `--url`
for another database). 300 trials in a store, SIGKILL at 20 random moments: half of them whenever
it happens to be, the others inside `tell` before and after its commit, around a snapshot, and
inside `ask`. Prints what was lost, told twice or fitted again on resuming (nothing), and how far
the final posterior is from that of the undisturbed campaign; writes
`results/benchmarks/campaign_kills.csv`, one row a kill.
"""

import random
import signal
import time
from collections import Counter
from multiprocessing import get_context
from typing import TYPE_CHECKING, Annotated, Any

from experiments.common.command import Out, Smoke, begin, command, option, start
from experiments.common.progress import say

if TYPE_CHECKING:
    from experiments.benchmarks.campaign_tasks import Life

TAKES = "some minutes on one core"
Url = Annotated[
    str | None, option(help="Of a database; a file of SQLite beside the table if none.")
]


def main(out: Out = None, smoke: Smoke = False, url: Url = None) -> None:
    """Kill, resume, compare, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=("sqlalchemy",))

    import pandas as pd

    from experiments.benchmarks.campaign_tasks import MOMENTS, Life

    trials, kills, inputs, grid_size = (12, 3, 1, 12) if smoke else (300, 20, 2, 20)
    last = trials - (4 if smoke else 12)  # so that the schedule's next fit still comes
    file = out / "campaign_kills.db"
    if url is None:
        for old in out.glob(f"{file.name}*"):
            old.unlink()
        url = f"sqlite:///{file.absolute()}"
    wanted, expected, seconds = _whole(Life(url, "undisturbed", trials, inputs, grid_size))
    pace = seconds / trials
    chance, rows = random.Random(0), []
    moments = sorted(chance.sample(range(2, last), kills))
    for i, told in enumerate(moments):
        moment = None if i % 2 else MOMENTS[i // 2 % len(MOMENTS)]
        life = Life(url, "killed", trials, inputs, grid_size, told, moment)
        rows.append(_killed(life, chance.uniform(0.0, 2.0 * pace)))
    got, found, _ = _whole(Life(url, "killed", trials, inputs, grid_size))

    table = pd.DataFrame(rows)
    say(table.to_string(index=False, float_format="{:.2f}".format))
    alike = got[wanted.columns].equals(wanted)
    counts = _told(url, "killed")
    lost, twice = trials - len(counts), sum(counts.values()) - len(counts)
    apart = float((found - expected).abs().max(axis=None))
    say(f"{kills} kills, {trials} trials: {lost} lost, {twice} told twice")
    say(f"the same trials and outcomes as undisturbed, bit for bit: {alike}")
    say(f"largest difference of final posterior means and standard deviations: {apart:.1e}")
    table.assign(lost=lost, twice=twice, alike=alike, apart=apart).to_csv(
        out / "campaign_kills.csv", index=False
    )


def _told(url: str, name: str) -> Counter[int]:
    """How often each trial was told, by the events in the store."""
    from bo_stream.campaign.storage.sql_store import Database

    events = Database(url).events_since(name, 0)
    return Counter(row[0] for event in events for row in event.get("values", ()))


def _begun(life: "Life") -> tuple[Any, Any]:
    """A process that lives a life, forked from one that has torch imported already."""
    from experiments.benchmarks.campaign_tasks import live

    context = get_context("forkserver")
    context.set_forkserver_preload(["experiments.benchmarks.campaign_tasks"])
    hears, says = context.Pipe(duplex=False)
    process = context.Process(target=live, args=(life, says), daemon=True)
    process.start()
    says.close()
    return process, hears


def _whole(life: "Life") -> tuple[Any, Any, float]:
    """Trials and predictions of a life that ends by itself, and its seconds."""
    process, hears = _begun(life)
    said = hears.recv()
    start = time.perf_counter()
    while len(said) == 3:
        said = hears.recv()
    process.join()
    return *said, time.perf_counter() - start


def _killed(life: "Life", delay: float) -> dict[str, Any]:
    """One life cut short: by itself, or some seconds after it has told enough."""
    process, hears = _begun(life)
    told, evaluations, seconds = hears.recv()
    first = told
    while True:
        if life.moment is None and life.told is not None and told >= life.told:
            time.sleep(delay)
            process.kill()
            break
        try:
            told = hears.recv()[0]
        except EOFError:
            break
    process.join()
    return {
        "killed in": life.moment or "any moment",
        "resumed with": first,
        "killed after": told,
        "fits on resuming": evaluations,
        "resume seconds": seconds,
        "by SIGKILL": process.exitcode == -signal.SIGKILL,
    }


app = command(main)

if __name__ == "__main__":
    start(app)
