"""Every command that README and site name exists, with the options that they name."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, name, prose, read

pytest.importorskip("typer")

INSTALLATION = ROOT / "docs" / "installation.md"
OTHERS = {"http.server", "pytest", "pip", "venv"}
"""Modules that are not ours."""
PREFIX = "python -m "
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def test_the_table_of_extras_has_all() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (table,) = re.findall(r"^\| extra \|.*\n((?:\|.*\n)+)", read(INSTALLATION), re.MULTILINE)
    named = {name for line in table.splitlines() for name in SPAN.findall(line.split(" | ")[0])}
    assert named == set(project["optional-dependencies"])


def commands(page: Path) -> Iterator[str]:
    """Commands in a page's console blocks, in its text, and in tables of modules."""
    for block in blocks(page):
        if block.language in ("console", "bash", "sh"):
            for line in block.text.replace("\\\n", " ").splitlines():
                if line.startswith((PREFIX, "bo-stream ")):
                    yield line
    text, table = prose(page), ""
    for span in SPAN.findall(text):
        words = " ".join(span.split())
        if words.startswith((PREFIX, "bo-stream ")) and not words.endswith("."):
            yield words
    for line in text.splitlines():
        begins = re.match(r"\| `python -m ([\w.]+\.)` \|", line)
        table = begins[1] if begins else table if line.startswith("|") else ""
        if table and not begins:
            for span in SPAN.findall(line.split(" | ")[0]):
                if find_file(f"{table}{span.split()[0]}"):
                    yield f"{PREFIX}{table}{span}"


def find_file(module: str) -> Path | None:
    """Where a module of the repository that can be run is."""
    path = ROOT.joinpath(*module.split("."))
    found = [p for p in (path / "__main__.py", path.with_suffix(".py")) if p.is_file()]
    return found[0] if found else None


def program(module: str) -> Any:
    """The command of a module that can be run, without running it."""
    from typer.main import get_command

    if module == "bo_stream":
        module = "bo_stream.cli.app"
    file = find_file(module)
    assert file is not None, f"{module} cannot be run"
    dotted = ".".join(file.relative_to(ROOT).with_suffix("").parts)
    return get_command(import_module(dotted).app)


def wrong(line: str) -> str | None:
    """What is wrong with a command, None for nothing."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["python", "-m"]:
        module, *words = words[2:]
        if module in OTHERS:
            return None if find_spec(module) else f"no module {module}"
        if find_file(module) is None:
            return f"no module {module} that can be run"
        command = program(module)
    else:
        command, words = program("bo_stream"), words[1:]
    while hasattr(command, "commands") and words:
        if words[0] not in command.commands:
            return f"no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    return _arguments(command, words)


def _arguments(command: Any, words: list[str]) -> str | None:
    options = {o: p for p in command.params if p.param_type_name == "option" for o in p.opts}
    places = [p for p in command.params if p.param_type_name == "argument"]
    given = 0
    while words:
        word, *words = words
        word, equals, _ = word.partition("=")
        if word.startswith("-"):
            if word not in options and word != "--help":
                return f"no option {word}"
            if word in options and not options[word].is_flag and not equals:
                if not words or words[0].startswith("-"):
                    return f"no value for {word}"
                words = words[1:]
        else:
            given += 1
            if word.startswith("experiments/") and not (ROOT / word).is_file():
                return f"no file {word}"
    many = any(p.nargs != 1 for p in places)
    return None if many or given <= len(places) else f"more than {len(places)} arguments"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_exist(page: Path) -> None:
    found = {line: said for line in commands(page) if (said := wrong(line))}
    assert not found


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
    seen = 0
    for page in PAGES:
        said = SPAN.findall(prose(page))
        said += [x for b in blocks(page) if b.language == "console" for x in b.text.splitlines()]
        for line in said:
            if found := re.match(r"make ([a-z-]+)", line):
                seen += 1
                assert found[1] in targets, line
    assert seen > 5


def test_commands_are_found() -> None:
    everything = [line for page in PAGES for line in commands(page)]
    assert len(everything) > 40
    assert any(line.startswith("python -m experiments.benchmarks.") for line in everything)
    assert any(line.startswith("bo-stream ") for line in everything)


def test_every_row_of_a_table_of_modules_has_a_command() -> None:
    rows = 0
    for page in PAGES:
        inside = False
        for line in prose(page).splitlines():
            begins = re.match(r"\| `python -m ([\w.]+\.)` \|", line)
            inside = bool(begins) or (inside and line.startswith("|"))
            if begins:
                table = begins[1]
            elif inside and not line.startswith("|---"):
                rows += 1
                spans = SPAN.findall(line.split(" | ")[0])
                assert find_file(f"{table}{spans[0].split()[0]}"), line
    assert rows > 20


def test_every_command_and_option_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "command_line.md").read_text(encoding="utf-8")
    rows = {row[1]: row[0] for row in re.findall(r"(?m)^(\| `bo-stream (\w+) .*)$", page)}
    there = program("bo_stream").commands
    assert list(rows) and set(rows) == set(there)
    for word, command in there.items():
        options = {o for p in command.params if p.param_type_name == "option" for o in p.opts}
        assert set(re.findall(r"`(--?\w+)`", rows[word])) == options - {"--help"}


def test_configurations_exist() -> None:
    there = {path.stem for path in (ROOT / "experiments" / "configs").glob("*.toml")}
    for page in PAGES:
        for span in SPAN.findall(prose(page)):
            stem = span.removeprefix("experiments/configs/").removesuffix(".toml")
            if re.fullmatch(r"(?:malaria_)\w+", stem):
                assert stem in there or find_file(f"experiments.{stem}"), span


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("python -m experiments.nothing", "no module experiments.nothing that can be run"),
        ("python -m experiments.growth --nothing", "no option --nothing"),
        ("python -m experiments.decoupled fly", "no command fly"),
        (
            "python -m experiments.comparison experiments/configs/no.toml",
            "no file experiments/configs/no.toml",
        ),
        ("bo-stream suggest a.toml -q", "no value for -q"),
        ("bo-stream tell a.toml b.csv c.csv", "more than 2 arguments"),
        ("bo-stream map a.toml --out map.png", None),
    ],
)
def test_what_is_wrong_is_seen(line: str, said: str | None) -> None:
    assert wrong(line) == said
