"""Tasks times methods times seeds, read from a TOML file."""

from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

from experiments.common.command import BadParameter
from experiments.common.progress import say
from experiments.common.records import environment
from experiments.common.study import expanded, plain, quiet, told_apart, without
from experiments.common.tables import write_table
from experiments.comparison.budgeted_task import BudgetedTask, Spent
from experiments.comparison.methods.method import Method
from experiments.comparison.methods.registry import METHODS
from experiments.comparison.report import report as report
from experiments.comparison.tasks.registry import TASKS, lacking, made

OPTIONAL = (
    "evaluations",
    "seconds",
    "at",
    "at_seconds",
    "batch",
    "initial",
    "pace",
    "pooled",
    "apart",
    "look",
)
OWN = ("evaluations", "seconds", "batch")
"""Keys by which a method may differ from the others, besides its seeds."""
SMOKE, SMOKE_SECONDS = 12, 1.0
"""BudgetedTask and seconds of a smoke run."""

WARM: set[str] = set()
"""Methods that this process has run, and whose packages it has imported."""


@dataclass(frozen=True)
class ComparisonRun:
    """One method on one task with one seed; tasks and methods are given by name and options.

    Unless it is ``brief``, a first run of a method in a process is preceded by a short one, which
    pays for imports.
    """

    label: str
    method: dict[str, Any]
    task_label: str
    task: dict[str, Any]
    seed: int
    budget: dict[str, Any]
    files: str
    brief: bool = False

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{plain(self.task_label)}_{self.files}_{self.seed}"

    def execute(self, folder: Path) -> None:
        """Run it to the end of its budget; the table has a row for each checkpoint."""
        options, about = dict(self.task), dict(self.method)
        task = made(options.pop("name"), self.seed, options)
        method = METHODS[about.pop("name")]
        with quiet():
            if not self.brief and self.method["name"] not in WARM:
                _solve(method, BudgetedTask(task, self.seed, evaluations=3 * SMOKE), about)
                WARM.add(self.method["name"])
            evaluate = BudgetedTask(task, self.seed, **self.budget)
            _solve(method, evaluate, about)
        facts = asdict(self) | {"environment": environment()}
        facts["environment"]["versions"] |= {name: version(name) for name in method.packages}
        named = evaluate.table().assign(task=self.task_label, method=self.label, seed=self.seed)
        write_table(named, folder / f"{self.stem}.csv", facts)


def plan(c: dict[str, Any], smoke: bool = False) -> list[ComparisonRun]:
    """The runs of a configuration; see ``experiments/configs/classics.toml``.

    A list in a ``[[task]]`` stands for several values. A ``[[method]]`` has a name, a label,
    options, and may have seeds, evaluations, seconds and a batch of its own. A method takes part
    in the tasks that it serves. A smoke run has one seed, the first and the last task, and a few
    evaluations.
    """
    tasks = [one for entry in c["task"] for one in expanded(entry)]
    methods = [dict(entry) for entry in c["method"]]
    for entry, known, what in [(t, TASKS, "task") for t in tasks] + [
        (m, METHODS, "method") for m in methods
    ]:
        if entry.get("name") not in known:
            raise BadParameter(f"no {what} {entry.get('name')}; there are {', '.join(known)}.")
    for absent in {str(t["name"]) for t in tasks if lacking(t["name"])}:
        extras = ",".join(sorted(lacking(absent)))
        say(f"skipped: {absent} (pip install 'bo_stream[{extras}]')")
        tasks = [task for task in tasks if task["name"] != absent]
    for entry in [m for m in methods if METHODS[m["name"]].missing]:
        say(
            f"skipped: {entry['name']}, whose packages are missing (pip install 'bo_stream[peers]')"
        )
        methods.remove(entry)
    seeds = {i: entry.pop("seeds", c["seeds"]) for i, entry in enumerate(methods)}
    named_tasks = list(zip(told_apart(tasks, "tasks")[0], tasks, strict=True))
    named = list(zip(*told_apart(methods, "methods"), methods, seeds.values(), strict=True))
    if smoke:
        named_tasks = list(dict(named_tasks[:1] + named_tasks[-1:]).items())
    common: dict[str, Any] = {
        key: c[key] for key in ("evaluations", "seconds", "batch", "initial", "pace") if key in c
    }
    common |= {"marks": tuple(c.get("at", ())), "mark_seconds": tuple(c.get("at_seconds", ()))}
    runs = []
    for (place, task), (label, files, entry, own_seeds) in product(named_tasks, named):
        fields = without(task, ("name", "label"))
        traits = made(task["name"], 0, fields).traits
        if not traits <= METHODS[entry["name"]].serves:
            continue
        budget = common | {key: entry[key] for key in OWN if key in entry}
        if smoke:
            budget = _brief(budget)
        options = without(entry, ("label", *OWN))
        about = without(task, ("label",))
        for seed in own_seeds[:1] if smoke else own_seeds:
            runs.append(ComparisonRun(label, options, place, about, seed, budget, files, smoke))
    return sorted(runs, key=lambda run: run.seed)


def _solve(method: Method, evaluate: BudgetedTask, options: dict[str, Any]) -> None:
    """Run a method to the end of its budget."""
    with suppress(Spent):
        method.solve(evaluate, **options)


def _brief(budget: dict[str, Any]) -> dict[str, Any]:
    """The budget of a smoke run."""
    brief = {**budget, "initial": SMOKE // 2, "evaluations": SMOKE, "marks": (SMOKE,)}
    if "seconds" in budget:
        brief |= {"seconds": SMOKE_SECONDS, "mark_seconds": (SMOKE_SECONDS,)}
    return {**brief, "batch": min(budget.get("batch", 1), 3)}
