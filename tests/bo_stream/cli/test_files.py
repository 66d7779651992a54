"""Cells of files: numbers that can be read in one way, and labels as they are written."""

import io
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bo_stream.cli.app import start
from bo_stream.cli.measurements import numbers, read_table
from bo_stream.cli.toml_reader import ConfigError

pytest.importorskip("sqlalchemy")

MIXED = """
name = "p"
goal = "maximise"
seed = 0
[inputs.flow]
low = 0
high = 10
[inputs.lot]
values = ["1", "01", "1.1", "1.10", "NA", "007", "Müll"]
"""


def column(cell: str, beside: str) -> pd.Series:
    """The numbers of a column of a cell and those beside it."""
    cells = pd.DataFrame({"y": [cell, *beside.split()]}, dtype=object)
    return numbers(Path("o.csv"), cells, ["y"])["y"]


@pytest.mark.parametrize(
    ("cell", "beside", "value"),
    [
        ("5", "", 5.0),
        ("+1.5e-3", "", 1.5e-3),
        ("1,5e3", "", 1.5e3),
        ("1.234", "", 1.234),
        ("0,123", "", 0.123),
        ("1,5", "", 1.5),
        ("-1,234.5", "", -1234.5),
        ("1.234,5", "", 1234.5),
        ("1,234,567", "", 1234567.0),
        ("1.234.567", "", 1234567.0),
        ("1\u00a0234,5", "", 1234.5),
        ("\u22125", "", -5.0),
        ("\uff15\uff0e\uff12", "", 5.2),
        ("1,234", "2,5", 1.234),
        ("1.234", "2.5", 1.234),
    ],
)
def test_numbers_that_can_be_read_in_one_way(cell: str, beside: str, value: float) -> None:
    assert column(cell, beside).iloc[0] == value


@pytest.mark.parametrize(
    ("cell", "beside"),
    [
        ("1,234", ""),
        ("-1,234", "2.5"),
        ("1,234", "2.5 2,5"),
        ("1.234", "2,5"),
        ("\uff11\uff0c\uff12\uff13\uff14", ""),
        *((text, "") for text in ("-", "n/a", "NaN", "inf", "1e999", "#N/A", "85%", "<0.1", "1 2")),
        *((text, "") for text in ("1 234", "1_000", "0x10", "'5'", "5²", "٣", "12,34,567", "")),
    ],
)
def test_other_cells_are_refused(cell: str, beside: str) -> None:
    with pytest.raises(ConfigError, match="row 0, column 'y': Expected a number; got .*, which"):
        column(cell, beside)


def told(bo: Any, content: str | bytes, toml: str = MIXED) -> tuple[pd.DataFrame | None, str]:
    """The trials after telling a file to a new campaign, or None and the error."""
    Path("p.toml").write_text(toml, encoding="utf-8")
    Path("o.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    code, _, err = bo("tell", "p.toml", "o.csv")
    if code:
        return None, err
    assert bo("trials", "p.toml", "--csv", "t.csv")[0] == 0
    return pd.read_csv("t.csv", dtype={"lot": str}, keep_default_na=False), err


def test_a_number_of_two_readings_is_refused_by_cell_row_and_column(bo: Any) -> None:
    frame, err = told(bo, 'flow,lot,y\n\n1.5,1,987\n2,1,"1,234"\n')
    assert frame is None
    assert "o.csv, row 4, column 'y'" in err and "'1,234', which may be 1234 or 1.234" in err
    frame, err = told(bo, "flow;lot;y\n1,5;1;1.234\n2;1;987\n")
    assert frame is None and "row 2, column 'y'" in err
    frame, _ = told(bo, "flow;lot;y\n1,5;1;1,234\n2;1;987\n")
    assert frame is not None and frame["y"].tolist() == [1.234, 987.0]


def test_labels_stay_as_they_are_written(bo: Any) -> None:
    lots = ["1", "01", "1.1", "1.10", "NA", "007", "Mu\u0308ll"]
    frame, _ = told(bo, "flow,lot,y\n" + "".join(f"1,{lot},{i}\n" for i, lot in enumerate(lots)))
    assert frame is not None and frame["lot"].tolist() == [*lots[:-1], "Müll"]
    frame, err = told(bo, "flow,lot,y\n1,1.100,0\n")
    assert frame is None and "got '1.100' in row 2" in err


@pytest.mark.parametrize(
    "content",
    [
        "sep=;\nflow;lot;y\n1,5;1;3\n",
        "sep=\t\r\nflow\tlot\ty\r\n1.5\t1\t3\r\n",
        "flow|lot|y\n1.5|1|3\n",
        "flow\tlot\ty\n1.5\t1\t3\n".encode("utf-16"),
        "flow\tlot\ty\n1.5\t1\t3\n".encode("utf-16-le"),
        "flow,lot,y\r1.5,1,3\r",
        'flow,lot,note,y\n1.5,1,"two\nlines",3\n',
    ],
)
def test_files_of_spreadsheets(bo: Any, content: str | bytes) -> None:
    frame, err = told(bo, content)
    assert frame is not None and err == ""
    assert frame[["flow", "lot", "y"]].to_numpy().tolist() == [[1.5, "1", 3.0]]


def test_a_workbook_says_how_to_save_it(bo: Any) -> None:
    frame, err = told(bo, b"PK\x03\x04\x14\x00\x06\x00")
    assert frame is None and "got a workbook. Save its sheet as CSV" in err


def test_separators_in_names(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for header in ("flow (mL, 25 C);a, b;y", '"flow (mL, 25 C)";"a, b";y'):
        path.write_text(f"{header}\n1,5;2,5;3\n")
        table = read_table(path, ["flow (mL, 25 C)", "a, b", "y"])
        assert numbers(path, table, ["a, b", "y"]).to_numpy().tolist() == [["1,5", 2.5, 3]]


POOL = """
name = "q"
goal = "learn"
seed = 0
[pool]
file = "places.csv"
index = "site"
"""


def test_places_in_a_file(bo: Any) -> None:
    Path("q.toml").write_text(POOL)
    rows = "NA;0,5;1,25\n007;1,5;1,234\n1.10;2,5;0,5\n"
    Path("places.csv").write_text(f"site;lon;lat\n{rows}")
    assert bo("suggest", "q.toml", "-q", 3, "--csv", "next.csv")[0] == 0
    asked = pd.read_csv("next.csv", dtype=str, keep_default_na=False).set_index("place")
    assert set(asked.index) == {"NA", "007", "1.10"} and asked["lat"]["007"] == "1.234"
    asked.assign(y="1").reset_index().to_csv("next.csv", index=False)
    assert "Trials: 3 told" in bo("tell", "q.toml", "next.csv")[1]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ('a,"1,234",1\nb,2.5,2\n', "row 2, column 'lon': Expected a number; got '1,234'"),
        ("a,n/a,1\nb,2.5,2\nc,3.5,4\n", "row 2, column 'lon'"),
        (",1,1\nb,2.5,2\n", "a name for every place"),
    ],
)
def test_places_that_cannot_be_read(bo: Any, rows: str, said: str) -> None:
    Path("q.toml").write_text(POOL)
    Path("places.csv").write_text(f"site,lon,lat\n{rows}")
    code, _, err = bo("suggest", "q.toml")
    assert code == 2 and said in err


def test_a_store_may_be_named_by_its_file(bo: Any) -> None:
    Path("p.toml").write_text('store = "lab.db"\n' + MIXED, encoding="utf-8")
    assert bo("suggest", "p.toml")[0] == 0
    assert "1 running" in bo("status", "lab.db")[1]


def test_corrections_are_read_as_outcomes_are(bo: Any) -> None:
    told(bo, "flow,lot,y\n1.5,1,3\n")
    Path("c.csv").write_text('trial,y\n0,"1,234"\n')
    code, _, err = bo("amend", "p.toml", "c.csv")
    assert code == 2 and "row 2, column 'y'" in err
    Path("c.csv").write_text("trial;y\n0;1,5\n")
    assert "Corrected trials, by id: 0." in bo("amend", "p.toml", "c.csv")[1]


def test_a_console_without_letters_still_gets_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.toml").write_text(MIXED.replace("flow", '"Düse"'), encoding="utf-8")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    with pytest.raises(SystemExit) as end:
        start(["suggest", "p.toml", "--csv", "n.csv"])
    sys.stdout.flush()
    assert not end.value.code and b"D?se" in written.getvalue()
    assert "Düse" in Path("n.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "rows", ['1,"A,3\n2,B,4\n', "1,A,3\n2,B," + 140_000 * "4" + "\n"], ids=["quote", "long"]
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "o.csv"
    path.write_text("x,c,y\n" + rows)
    with pytest.raises(ConfigError, match="is not a CSV: .*at line"):
        read_table(path, ["x", "c", "y"])


def test_a_reason_needs_the_id_of_a_trial(bo: Any) -> None:
    told(bo, "flow,lot,y\n1.5,1,3\n")
    for id in ("1", "0.5"):
        Path("o.csv").write_text(f"trial,y,reason\n0,4,\n{id},,spilt\n")
        code, out, err = bo("tell", "p.toml", "o.csv")
        assert (code, out) == (2, "") and "Expected trial ids, 0 to 0" in err
