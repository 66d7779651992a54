"""docs/mathematics.md and what points into it: citations, errata and their checks, paths, names."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mathematics.md"
PLANNED = "not yet in the package"
NUMBER = r"\d+(?:\.\d+)?"
GAP = r"[\s#]+"  # a citation may break over lines, of a comment as well
CITATION = re.compile(
    rf"MATHS(?:\.md)?{GAP}(?:sections?{GAP})?"
    rf"({NUMBER}(?:(?:\s*-\s*|\s*,{GAP}(?:and{GAP})?|{GAP}(?:and|to){GAP}){NUMBER})*)"
)


def cited(text: str) -> list[str]:
    """Section numbers a text cites."""
    return [n for match in CITATION.finditer(text) for n in re.findall(NUMBER, match[1])]


def sources() -> dict[str, str]:
    """Python files by path, this one left out."""
    rooms = ("bo_stream", "acquisitions", "problems", "experiments", "tests")
    files = (f for room in rooms for f in sorted((ROOT / room).rglob("*.py")))
    return {
        str(f.relative_to(ROOT)): f.read_text(encoding="utf-8")
        for f in files
        if f != Path(__file__).resolve()
    }


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def headings() -> list[str]:
    return re.findall(rf"^##+ ({NUMBER})\.? ", page(), re.MULTILINE)


def errata() -> dict[str, list[str]]:
    """Cells of each erratum's row, by id."""
    rows = re.findall(r"^\| (E-\w+) \|(.*)\|$", page(), re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return {name: cells.split(" | ") for name, cells in rows}


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def erratum_tests() -> set[str]:
    files = Path(__file__).parent.glob("test_*_errata.py")
    return {name for f in files for name in functions(f) if name.startswith("test_")}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("(MATHS 2.2)", ["2.2"]),
        ("MATHS section 10.", ["10"]),
        ("MATHS sections 3 and 4. The", ["3", "4"]),
        ("MATHS 3.3, step 5", ["3.3"]),
        ("MATHS 3.3, steps 2 and 5", ["3.3"]),
        ("[WISKI, MATHS 2.3 and 2.4].", ["2.3", "2.4"]),
        ("[eq. 11; MATHS.md 5.1, 5.2, 5.4. Pure", ["5.1", "5.2", "5.4"]),
        ("(MATHS 2.2-2.4)", ["2.2", "2.4"]),
        ("(MATHS\n    # 4.1)", ["4.1"]),
        ("MATHS n", []),
    ],
)
def test_a_citation_is_read_however_it_is_written(text: str, numbers: list[str]) -> None:
    assert cited(text) == numbers


def test_every_citation_has_its_section() -> None:
    known, found = set(headings()), 0
    for path, text in sources().items():
        numbers = cited(text)
        found += len(numbers)
        assert set(numbers) <= known, path
        assert len(CITATION.findall(text)) == len(re.findall(r"MATHS", text)), path
    assert found > 50


def test_sections_are_numbered_in_order() -> None:
    numbers = [tuple(map(int, n.split("."))) for n in headings()]
    assert numbers == sorted(set(numbers))
    assert {n[0] for n in numbers} == {*range(15), 18}  # 15 to 17 are kept for what is planned


def test_every_erratum_names_its_check() -> None:
    tests = erratum_tests()
    for name, cells in errata().items():
        assert len(cells) == 4, name
        named = re.findall(r"`(test_\w+)`", cells[-1])
        letter_and_number = name.removeprefix("E-").lower()
        assert named or "by reading" in cells[-1].lower(), name
        assert set(named) <= tests, name
        assert all(t.startswith(f"test_{letter_and_number}_") for t in named), name


def test_every_check_is_named_on_the_page() -> None:
    section = page().split("\n## 7. ")[1].split("\n## 8. ")[0]
    assert erratum_tests() == set(re.findall(r"`(test_\w+)`", section))


def test_every_test_named_on_the_page_exists() -> None:
    everywhere = {name for f in (ROOT / "tests").rglob("test_*.py") for name in functions(f)}
    assert set(re.findall(r"`(test_\w+)`", page())) <= everywhere


def test_errata_are_cited_by_ids_that_exist() -> None:
    texts = [page(), *sources().values()]
    mentioned = {name for text in texts for name in re.findall(r"\bE-[WVOCS]\d+\b", text)}
    assert mentioned == set(errata())


def test_links_lead_to_headings() -> None:
    titles = re.findall(r"^##+ (.*)$", page(), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}
    assert set(re.findall(r"\]\(#([^)]*)\)", page())) <= anchors


def test_paths_exist_unless_they_are_planned() -> None:
    path = re.compile(r"`((?:bo_stream|acquisitions|problems|experiments|tests|docs)/[\w./]*)`")
    seen = 0
    for line in page().splitlines():
        here = [(ROOT / p).exists() for p in path.findall(line)]
        seen += len(here)
        if PLANNED in line.lower():
            assert not (here and all(here)), f"no longer planned: {line}"
        else:
            assert all(here), line
    assert seen > 30


def test_names_in_the_notation_table_exist() -> None:
    words = {
        w for f, text in sources().items() if f.startswith("bo_") for w in re.findall(r"\w+", text)
    }
    table = page().split("\n## Notation")[1].split("\n## 0. ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) > 25
    for row in rows:
        assert len(row) == 4, row
        for name in re.findall(r"`([\w.]+)`", row[2]):
            assert set(name.split(".")) <= words, name
