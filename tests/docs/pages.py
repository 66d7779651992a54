"""README, CONTRIBUTING and the pages of the site as what is in them: programs, commands, links.

A comment right before a fence, which no reader sees, may say how the tests take it:

* ``<!-- smoke: this => that -->``: run with the text replaced, because the whole of it takes long;
* ``<!-- fragment: reason -->``: not run.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- (smoke|fragment): (.*?) -->\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """What stands between two fences.

    Attributes:
        section: The heading it stands under.
        line: Of its first line.
        language: After the fence.
        title: Of the file that it is, if it is one.
        text: Without indentation.
        mark: What the comment before it says, if there is one: its kind and its words.
        follows: Whether nothing but blank lines stands between it and the block before.
    """

    section: str
    line: int
    language: str
    title: str | None
    text: str
    mark: tuple[str, str] | None
    follows: bool

    @property
    def smoke(self) -> str:
        """The text as the tests run it."""
        if self.mark is None or self.mark[0] != "smoke":
            return self.text
        before, after = self.mark[1].split(" => ")
        if before not in self.text:
            raise ValueError(f"line {self.line}: expected {before!r} in the program.")
        return self.text.replace(before, after)


def name(page: Path) -> str:
    """A page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def read(page: Path) -> str:
    """A page's text."""
    return page.read_text(encoding="utf-8")


def headings(text: str) -> Iterator[tuple[int, str]]:
    """Row and words of every heading; comments in programs are none."""
    fence = ""
    for row, line in enumerate(text.splitlines()):
        mark = line.strip()[:3]
        if mark == "```":
            fence = "" if fence else mark
        elif not fence and (found := re.match(r"#+ (.*)", line)):
            yield row, found[1]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = read(page)
    heads = [(row + 1, words) for row, words in headings(text)]
    end = 0
    for match in FENCE.finditer(text):
        between, line = text[end : match.start()], text[: match.start()].count("\n") + 2
        section = [words for row, words in heads if row < line]
        title = re.search(r'title="(.*?)"', match[3])
        mark = MARK.search(between)
        yield Block(
            section[-1] if section else "",
            line,
            match[2],
            title and title[1],
            re.sub(rf"(?m)^{match[1]}", "", match[4]),
            mark and (mark[1], " ".join(mark[2].split())),
            bool(end) and not between.strip(),
        )
        end = match.end()


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", read(page))


def stored(file: str) -> pd.DataFrame:
    """A table of a study that pages are made from; those in ``tables`` as text."""
    return pd.read_csv(ROOT / "docs" / file, dtype=str if file.startswith("tables/") else None)


def missing(page: str, sentences: Iterable[str]) -> list[str]:
    """Sentences that are not on a page word for word, wherever lines end."""
    text = " ".join(read(ROOT / page).split())
    return [one for one in sentences if " ".join(one.split()) not in text]
