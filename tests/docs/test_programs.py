"""Every program of README and site runs as it stands and prints what is shown below it.

Blocks of Python run in order in one namespace: a page of the site is one program, and so is a
section of the README. On tutorials the commands of `bo-stream` run too.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.docs.pages import PAGES, ROOT, Block, blocks, name

OPTIONAL = {"optuna", "ax", "rasterio", "distributed", "dask", "sqlalchemy", "typer", "matplotlib"}
OPTIONAL |= {"loky", "cloudpickle", "sklearn"}
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def programs() -> dict[str, list[Block]]:
    """Blocks that belong together, by page, and by section in the README."""
    together: dict[str, list[Block]] = {}
    for page in PAGES:
        for block in blocks(page):
            here = name(page)
            key = f"{here}: {block.section}" if here == "README.md" else here
            together.setdefault(key, []).append(block)
    return {k: found for k, found in together.items() if any(b.language == "python" for b in found)}


PROGRAMS = programs()


def finds_the_best_oven(lines: list[str]) -> None:
    assert lines[0] == "12 of 12 trials. Recommended:"
    found = dict(zip(lines[1].split(), map(float, lines[2].split()[1:]), strict=True))
    assert abs(found["pressure"] - 3.0) < 0.3 and abs(found["temperature"] - 100.0) < 15.0
    assert found["lower"] <= found["mean"] <= found["upper"] and Path("oven.db").exists()


def improves_step_by_step(lines: list[str]) -> None:
    assert len(lines) == 4  # one line a step: observations so far, the best value
    assert lines[-1].split()[0] == "22"
    best = [float(line.split()[-1]) for line in lines]
    assert best == sorted(best)


def says_a_small_number(lines: list[str]) -> None:
    (line,) = lines
    assert float(line) < 1.0


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "batch = campaign.ask(3)  # a DataFrame": finds_the_best_oven,
    "StreamingSampler(": says_a_small_number,
    "optimize_acqf(acqf, problem.bounds": improves_step_by_step,
}
"""What programs print that show no output, by a piece of their text."""


def agree(shown: str, printed: str) -> bool:
    """Whether texts are equal but for blanks and the last digits of fractions."""

    def parts(text: str) -> tuple[list[str], list[str]]:
        text = " ".join("NaN" if word == "None" else word for word in text.split())  # by pandas
        return NUMBER.split(text), NUMBER.findall(text)

    (words, numbers), (other_words, others) = parts(shown), parts(printed)
    return words == other_words and all(
        float(b) == pytest.approx(float(a), rel=0.05, abs=10.0 ** -len(a.rpartition(".")[2]))
        if "." in a
        else a == b
        for a, b in zip(numbers, others, strict=True)
    )


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        ("best 3.04", "best   3.05\n", True),
        ("best 3.04", "best 3.40", False),
        ("20 trials", "21 trials", False),
        ("told", "failed", False),
        ("-1.5 a", "1.5 a", False),
    ],
)
def test_output_is_compared_up_to_rounding(shown: str, printed: str, equal: bool) -> None:
    assert agree(shown, printed) is equal


def commands(block: Block) -> None:
    """Run the commands of `bo-stream` in a block, in this process."""
    from bo_stream.cli.app import start

    for line in block.text.replace("\\\n", " ").splitlines():
        program, *args = shlex.split(line, comments=True)
        if program == "bo-stream":
            with pytest.raises(SystemExit) as end:
                start(args)
            assert not end.value.code, line


def printed_by(block: Block, names: dict[str, Any]) -> str | None:
    """What a block prints, None where it is nothing that runs."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if block.mark and block.mark[0] == "fragment":
            return None
        if block.language == "python":
            torch.manual_seed(0)
            exec(compile(block.smoke, f"<line {block.line}>", "exec"), names)
        elif block.language == "console":
            commands(block)
        else:
            return None
    return out.getvalue()


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_print_what_is_shown(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tutorial = program.startswith("docs/tutorials/")
    names: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    for block in PROGRAMS[program]:
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        if block.language == "text" and block.follows and printed is not None:
            assert agree(block.text, printed), f"line {block.line}:\n{printed}"
        if block.language != "console" or tutorial:
            try:
                printed = printed_by(block, names)
            except ModuleNotFoundError as error:
                if str(error.name).split(".")[0] not in OPTIONAL:
                    raise
                pytest.skip(f"line {block.line} needs {error.name}")
            for text, check in CHECKS.items():
                if text in block.text and printed is not None:
                    check(printed.splitlines())


def test_every_check_has_its_program() -> None:
    texts = [block.text for found in PROGRAMS.values() for block in found]
    for text in CHECKS:
        assert len([t for t in texts if text in t]) >= 1, text


def test_fragments_say_why() -> None:
    for program, found in PROGRAMS.items():
        for block in found:
            assert not block.mark or len(block.mark[1]) > 10, f"{program}, line {block.line}"


def test_differences_lead_from_one_program_to_another() -> None:
    seen = 0
    for found in PROGRAMS.values():
        for at, block in enumerate(found):
            if block.language != "diff":
                continue
            before = {x for b in found[:at] for x in b.text.splitlines() if b.language == "python"}
            after = {x for b in found[at:] for x in b.text.splitlines() if b.language == "python"}
            for line in block.text.splitlines():
                sign, words = line[0], line[1:]
                seen += 1
                assert sign == "+" or words in before, line
                assert sign == "-" or words in after, line
    assert seen > 5


def test_every_tutorial_is_run() -> None:
    there = {name(page) for page in (ROOT / "docs" / "tutorials").glob("*.md")}
    assert there and there <= set(PROGRAMS)
