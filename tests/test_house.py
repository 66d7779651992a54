"""The plan of the house: which way imports run, no circles, and files of one idea."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOPS = ("bo_stream", "acquisitions", "problems", "experiments")


def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    files = {}
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            files[name.removesuffix(".__init__")] = path
    return files


MODULES = modules()


def imports(path: Path) -> Iterator[str]:
    """Modules of the repository that a file imports, under `TYPE_CHECKING` and in functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def at_once(path: Path) -> set[str]:
    """Packages that a file imports when it is imported itself."""
    body = ast.parse(path.read_text()).body
    return {n.module.split(".")[0] for n in body if isinstance(n, ast.ImportFrom) and n.module}


GRAPH = {name: {i for i in imports(path) if i in MODULES} for name, path in MODULES.items()}


INNER = "mathematics"
FOUNDATION = {"errors", f"{INNER}.linalg", f"{INNER}.shapes"}
POSTERIOR, FITTING, SUMS = f"{INNER}.posterior", "base.fitting", f"{INNER}.sufficient_statistics"
INDUCING, GRID = f"{INNER}.inducing", f"{INNER}.grid"
# What each room of bo_stream may import; every room may import itself and the foundation, and a
# name stands for all that is below it. A module is in the room of the longest name that it has.
ROOMS: dict[str, set[str]] = {
    **dict.fromkeys(FOUNDATION, set()),
    POSTERIOR: set(),
    FITTING: set(),
    SUMS: {POSTERIOR},
    GRID: {POSTERIOR, SUMS},
    f"{INNER}.data_nodes": {POSTERIOR, SUMS},
    f"{INNER}.hilbert_features": {POSTERIOR, SUMS},
    INDUCING: {POSTERIOR},
    f"{INNER}.decoupled": {POSTERIOR, INDUCING},
    f"{INNER}.computation_aware": {POSTERIOR},
    f"{INNER}.classification": set(),
    "growth": {INNER, FITTING},
    "actions": {INNER, FITTING},
    "base": {INNER},
    "surrogates": {"base", INNER, "growth", "actions"},
    "ingest": {"base"},
    "scores": {"base", INNER},
    "campaign": {"base", "surrogates", "scores"},
    "campaign.storage": {"campaign"},
    "campaign.evaluation": {"campaign"},
    "simulation": {"base", "surrogates", "scores", "campaign"},
    "cli.reports": {"campaign", "scores", "base"},
    "cli": {"campaign", "base", "surrogates"},
    "__main__": {"cli"},
    "integrations": {"campaign", "base", "surrogates"},
}


def within(name: str, room: str) -> bool:
    """Whether a dotted name is that of a room or of something in it."""
    return name == room or name.startswith(f"{room}.")


def room(name: str) -> str:
    """The room of bo_stream a module is in."""
    inside = name.removeprefix("bo_stream").removeprefix(".")
    return max((r for r in ROOMS if within(inside, r)), key=len, default=inside.split(".")[0])


@pytest.mark.parametrize("name", [m for m in MODULES if m.startswith("bo_stream.")])
def test_arrows_run_downwards(name: str) -> None:
    here = room(name)
    if here in ("testing", "") or name == f"bo_stream.{INNER}":
        return
    for other in GRAPH[name]:
        if within(other, "bo_stream"):
            there = room(other)
            allowed = {here} | FOUNDATION | ROOMS[here]
            assert any(within(there, a) for a in allowed), f"{name} imports {other}"


def test_the_top_is_small() -> None:
    top = [p for p in (ROOT / "bo_stream").iterdir() if not p.name.startswith(("__pycache__", "."))]
    assert len([p for p in top if p.is_dir()]) <= 10
    assert len([p for p in top if p.suffix == ".py" and p.name != "__init__.py"]) <= 6


def test_the_library_imports_neither_studies_nor_acquisitions() -> None:
    """`bo_stream.testing`, campaigns and their commands may import acquisitions, lazily."""
    for name, there in GRAPH.items():
        top = name.split(".")[0]
        tops = {i.split(".")[0] for i in there}
        if top in ("bo_stream", "problems"):
            assert "experiments" not in tops, name
            named = room(name).split(".")[0] in ("campaign", "simulation", "cli")
            lazily = named and "acquisitions" not in at_once(MODULES[name])
            assert lazily or room(name) == "testing" or "acquisitions" not in tops, name
        if top == "problems":
            assert "bo_stream" not in tops, name
        if top == "acquisitions":
            assert "experiments" not in tops, name


def test_nobody_but_the_program_imports_its_commands() -> None:
    for name, there in GRAPH.items():
        if not within(name, "bo_stream.cli") and name != "bo_stream.__main__":
            inside = {i for i in there if within(i, "bo_stream.cli")}
            assert all(within(i, "bo_stream.cli.reports") for i in inside), name


def test_nothing_stands_on_integrations() -> None:
    """They need packages that few people have."""
    for name, there in GRAPH.items():
        if room(name) != "integrations":
            assert not {i for i in there if room(i) == "integrations"}, name


def test_no_circles() -> None:
    """Packages' own `__init__` gather what is inside them and do not count."""
    plain = {n for n, path in MODULES.items() if path.name != "__init__.py"}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join([*above[above.index(name) :], name])
        if name in done:
            return
        for other in GRAPH[name] & plain:
            visit(other, (*above, name))
        done.add(name)

    for name in plain:
        visit(name, ())


@pytest.mark.parametrize("name", MODULES)
def test_files_are_short(name: str) -> None:
    lines = len(MODULES[name].read_text().splitlines())
    most = 250 if room(name) == "surrogates" else 400
    assert lines <= most
