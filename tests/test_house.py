"""The plan of the house: which way imports run, no circles, and one meaning for a name."""

import ast
from collections.abc import Iterator
from os.path import commonprefix
from pathlib import Path

import pytest
import torch
from botorch.models.transforms import Normalize, Standardize
from gpytorch.constraints import Interval
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.priors import NormalPrior
from linear_operator import to_linear_operator

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


OURS = [name for name in MODULES if not name.startswith("experiments")]
OVERRIDDEN = {"_apply", "_load_from_state_dict"}
"""Methods of `torch.nn.Module` that subclasses here extend, and so call."""


def private(name: str) -> bool:
    """Whether a name says that it is not public."""
    return name.startswith("_") and not name.endswith("__")


def defined_here() -> set[str]:
    """Private names that the packages define: functions, attributes, fields."""
    names: set[str] = set()
    for name in OURS:
        for node in ast.walk(ast.parse(MODULES[name].read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {t.id for t in targets if isinstance(t, ast.Name)}
    return {n for n in names if private(n)}


def private_upstream() -> set[str]:
    """Private names of objects of torch, gpytorch, BoTorch and linear_operator."""
    kernel, box = ScaleKernel(RBFKernel()), Interval(0.1, 1.0)
    objects = (kernel, box, NormalPrior(0.0, 1.0), GaussianLikelihood(), ConstantMean())
    transforms = (Normalize(2), Standardize(1))
    X = torch.zeros(2, 2)
    others = (MultivariateNormal(X[0], torch.eye(2)), kernel(X), to_linear_operator(X))
    return {n for o in (*objects, *transforms, *others) for n in dir(o) if private(n)}


def test_only_the_public_side_of_other_packages_is_used() -> None:
    """Private attributes are those that the packages define themselves; of torch's own, only the
    methods that are extended.
    """
    own, upstream = defined_here(), private_upstream()
    for name in OURS:
        for node in ast.walk(ast.parse(MODULES[name].read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in upstream - own, f"{name}:{node.lineno} {node.value}"
            if not isinstance(node, ast.Attribute) or not private(node.attr):
                continue
            where = f"{name}:{node.lineno} {ast.unparse(node)}"
            holder = node.value
            if isinstance(holder, ast.Name) and holder.id == "os":
                continue
            mine = ast.unparse(holder) in ("self", "cls", "super()")
            assert node.attr in own, where
            assert mine or node.attr not in upstream, where
            assert node.attr not in set(dir(torch.nn.Module())) - OVERRIDDEN, where


GRAPH = {name: {i for i in imports(path) if i in MODULES} for name, path in MODULES.items()}


INNER = "mathematics"
PLAIN = ("linalg", "shapes", "autograd", "kernels")
FOUNDATION = {"errors", "base.options", *(f"{INNER}.{name}" for name in PLAIN)}
# What each room of bo_stream may import; every room may import itself and the foundation, and a
# name stands for all that is below it. A module is in the room of the longest name that it has.
ROOMS: dict[str, set[str]] = {
    **dict.fromkeys(FOUNDATION, set()),
    INNER: set(),
    **dict.fromkeys((f"{INNER}.sites", f"{INNER}.predictions"), {INNER, "likelihoods"}),
    "likelihoods": {INNER},
    "growth": {INNER},
    "actions": {INNER},
    "base": {INNER},
    "surrogates": {"base", INNER, "growth", "actions", "likelihoods"},
    "ingest": {"base"},
    "scores": {"base", INNER},
    "campaign": {"base", "surrogates", "scores", "likelihoods"},
    "campaign.storage": {"campaign"},
    "cli.page": set(),
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
            named = room(name).split(".")[0] in ("campaign", "cli")
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
            assert inside <= {"bo_stream.cli.page", "bo_stream.cli"}, name


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


def test_a_class_name_has_one_meaning() -> None:
    homes: dict[str, str] = {}
    for name in MODULES:
        for node in ast.walk(ast.parse(MODULES[name].read_text())):
            if isinstance(node, ast.ClassDef):
                assert node.name not in homes, f"{node.name} in {homes[node.name]} and {name}"
                homes[node.name] = name


def test_no_two_of_a_folder_import_each_other() -> None:
    """Neither folders nor files, at any depth; imports inside functions count."""
    arrows: dict[tuple[str, str], str] = {}
    for name, there in GRAPH.items():
        for other in there:
            here, away = name.split("."), other.split(".")
            depth = len(commonprefix([here, away]))
            if depth < min(len(here), len(away)):
                ends = ".".join(here[: depth + 1]), ".".join(away[: depth + 1])
                arrows.setdefault(ends, f"{name} imports {other}")
    both = [a for a in arrows if a[::-1] in arrows and set(a) != {"acquisitions", "bo_stream"}]
    assert not both, [arrows[pair] for pair in both]
