"""The plan of the house: which way imports run, no circles, and files of one idea."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOPS = ("bo_stream", "acquisitions", "problems", "experiments")
FOUNDATION = {"errors", "shapes", "linalg"}
MATHEMATICS = {
    "grid",
    "sums",
    "sparse",
    "variational",
    "decoupled",
    "projection",
    "scattered",
    "spectral",
    "classes",
}
POLICIES = {"growth", "actions"}


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


def room(name: str) -> str:
    """The room of bo_stream a module is in."""
    return name.split(".")[1] if "." in name else ""


# Families are what the list of families imports.
FAMILIES = {room(i) for i in GRAPH["bo_stream.families"]} - {"core"} - FOUNDATION
# What each room of bo_stream may import; every room may import itself and the foundation.
ROOMS = {
    **dict.fromkeys(FOUNDATION, set()),
    "posterior": set(),
    "fitting": set(),
    **dict.fromkeys(MATHEMATICS, {"posterior", "fitting"}),
    "core": {"posterior", "fitting"},
    **dict.fromkeys(POLICIES, {"posterior", "fitting"} | MATHEMATICS),
    "gridded": {"core", "posterior", "fitting"} | MATHEMATICS,
    **dict.fromkeys(FAMILIES, {"core", "posterior", "fitting", "gridded"} | MATHEMATICS | POLICIES),
    "projecting": {"exact", "fitting", "grid"},
    "projected_wiski": {"core", "fitting", "posterior", "grid", "projecting", "wiski"},
    "families": FAMILIES | {"core"},
    "labelled": {"classes", "core"},
    "dirichlet": {"classes", "core", "families", "fitting", "labelled"},
    "ingest": {"core"},
    "sgpr": {"sparse"},
    "scores": {"core", "posterior", "fitting"},
    "campaign": {"core", "families", "fitting", "posterior", "scores"},
    "loop": {"campaign"},
    "reports": {"campaign", "scores"},
    "commands": {"campaign", "core", "families", "reports"},
    "__main__": {"commands"},
    "integrations": {"campaign", "core", "families"},
}
# Mathematics that builds on other mathematics.
BETWEEN = {
    "grid": {"sums"},
    "scattered": {"sums"},
    "spectral": {"sums"},
    "variational": {"sparse"},
    "decoupled": {"sparse"},
}


@pytest.mark.parametrize("name", [m for m in MODULES if m.startswith("bo_stream.")])
def test_arrows_run_downwards(name: str) -> None:
    here = room(name)
    if here in ("testing", ""):
        return
    allowed = {here} | FOUNDATION | ROOMS[here] | BETWEEN.get(here, set())
    there = {room(i) for i in GRAPH[name] if i.startswith("bo_stream.")}
    assert there <= allowed, f"{name} imports {sorted(there - allowed)}"


def test_the_library_imports_neither_studies_nor_acquisitions() -> None:
    """`bo_stream.testing`, campaigns and their commands may import acquisitions, lazily."""
    for name, there in GRAPH.items():
        top = name.split(".")[0]
        tops = {i.split(".")[0] for i in there}
        if top in ("bo_stream", "problems"):
            assert "experiments" not in tops, name
            named = room(name) in ("campaign", "commands")
            lazily = named and "acquisitions" not in at_once(MODULES[name])
            assert lazily or room(name) == "testing" or "acquisitions" not in tops, name
        if top == "problems":
            assert "bo_stream" not in tops, name
        if top == "acquisitions":
            assert "experiments" not in tops, name


def test_nobody_but_the_program_imports_its_commands() -> None:
    for name, there in GRAPH.items():
        if room(name) not in ("commands", "__main__"):
            assert not {i for i in there if i.startswith("bo_stream.commands")}, name


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
    most = 250 if room(name) in FAMILIES | {"dirichlet"} else 400
    assert lines <= most
