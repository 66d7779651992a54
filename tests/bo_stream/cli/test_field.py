"""In the field: suggest, measure, tell, map, through CSV files."""

from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("matplotlib")


def fill_in(path: str, count: int | None = None) -> None:
    """Measure the first rows."""
    frame = pd.read_csv(path, dtype={"place": str})
    frame["y"] = (frame["lon"] - frame["lat"]).iloc[:count]
    frame.to_csv(path, index=False)


def test_the_round_trip(tmp_path: Path, bo, survey: Path) -> None:
    code, out, _ = bo("suggest", "survey.toml", "-q", 7, "--csv", "next.csv")
    assert code == 0 and "lon (degrees)" in out and "bo-stream tell survey.toml next.csv" in out
    first = pd.read_csv("next.csv", dtype={"place": str})
    assert list(first.columns) == ["trial", "place", "lon", "lat", "y"]
    assert first["place"].str.len().eq(3).all()  # names keep their zeros

    fill_in("next.csv", 4)
    code, out, err = bo("tell", "survey.toml", "next.csv")
    assert (code, err) == (0, "")
    assert "Rows with a value: 4; without: 3." in out and "4 told, 3 running" in out
    code, _, err = bo("map", "survey.toml")
    assert code == 2 and "Expected 6 outcomes" in err

    fill_in("next.csv")  # the rest of it: the first four are told twice, and taken once
    code, out, _ = bo("tell", "survey.toml", "next.csv")
    assert code == 0 and "Trials: 7 told (before: 4 told, 3 running)." in out

    code, out, _ = bo("suggest", "survey.toml", "-q", 2)
    new = {line.split()[1] for line in out.splitlines()[1:]}
    assert code == 0 and len(new) == 2 and not new & set(first["place"])
    assert "running:" in bo("status", "survey.toml")[1]

    code, out, _ = bo("map", "survey.toml", "--out", "m.png", "--csv", "m.csv")
    assert code == 0 and (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
    said = pd.read_csv("m.csv", dtype={"place": str}).set_index("place")
    measured = first.set_index("place")
    error = said.loc[measured.index, "mean"] - (measured["lon"] - measured["lat"])
    assert len(said) == 25 and (said["sd"] > 0).all() and error.abs().max() < 0.1


def test_answers_are_not_overwritten(tmp_path: Path, bo, survey: Path) -> None:
    (tmp_path / "next.csv").write_text("answers of days")
    code, _, err = bo("suggest", "survey.toml", "--csv", "next.csv")
    assert code == 2 and "exists already" in err
    assert (tmp_path / "next.csv").read_text() == "answers of days"
    assert not (tmp_path / "survey.db").exists()  # nothing was asked


def test_a_reason_gives_a_trial_up(tmp_path: Path, bo, survey: Path) -> None:
    bo("suggest", "survey.toml", "-q", 3, "--csv", "next.csv")
    frame = pd.read_csv("next.csv", dtype={"place": str})
    frame["y"], frame["reason"] = [1.5, None, None], [None, "flooded", None]
    frame.to_csv("next.csv", index=False)
    code, out, _ = bo("tell", "survey.toml", "next.csv")
    assert code == 0 and "1 told, 1 running, 1 failed" in out
    assert "flooded" in bo("trials", "survey.toml")[1]


def test_what_nobody_asked_for(tmp_path: Path, bo, survey: Path) -> None:
    (tmp_path / "own.csv").write_text("place,y\n003,1.0\n014,2.0\n")
    code, out, _ = bo("tell", "survey.toml", "own.csv")
    assert code == 0 and "Trials: 2 told" in out
    assert "014" in bo("trials", "survey.toml")[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trial,y\n0,abc\n", "answers.csv, row 2, column 'y': Expected a number; got 'abc'"),
        ("trial,y\n9,1.0\n", "Expected trial ids, 0 to 1"),
        ("trial,value\n0,1.0\n", "Expected a column y; got trial, value"),
        ("trial,y\n0,1.0\n,2.0\n", "Expected a column 'lon'"),
        ("trial;y\n0;1,5;3\n", "row 2 has 3 cells, and there are 2 columns"),
        ("trial,lon,y\n0,99.0,1.0\n", "'lon' = "),
        ("trial,y,when\n0,1.0,today\n", "also when"),
        ("place,y\n999,1.0\n", "Expected places of the pool; got 999"),
        ("trial,y\n0,1.0\n0,1.0\n", "Expected every trial once"),
        ("", "is not a CSV"),
    ],
)
def test_answers_that_do_not_fit_change_nothing(
    tmp_path: Path, bo, survey: Path, text: str, said: str
) -> None:
    bo("suggest", "survey.toml", "-q", 2)
    before = bo("trials", "survey.toml")[1]
    (tmp_path / "answers.csv").write_text(text)
    code, out, err = bo("tell", "survey.toml", "answers.csv")
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1
    assert bo("trials", "survey.toml")[1] == before


def test_a_file_that_is_not_there(bo, survey: Path) -> None:
    code, _, err = bo("tell", "survey.toml", "none.csv")
    assert code == 2 and "none.csv" in err and err.count("\n") == 1


COUNTS = """
[outcome]
column = "positive"
likelihood = "binomial"
trials = "examined"
"""


def test_counts_go_out_and_come_back(tmp_path: Path, bo, survey: Path) -> None:
    survey.write_text(survey.read_text().replace('outcome = "moisture (%)"\n', "") + COUNTS)
    code, out, _ = bo("suggest", "survey.toml", "-q", 7, "--csv", "next.csv")
    assert code == 0 and "Fill in examined and positive" in out
    frame = pd.read_csv("next.csv", dtype={"place": str})
    assert list(frame.columns)[-2:] == ["examined", "positive"]
    assert frame["examined"].isna().all()

    frame["examined"], frame["positive"] = 40, range(7)
    frame.loc[6, ["examined", "positive"]] = None  # not visited yet
    frame.to_csv("next.csv", index=False)
    code, out, err = bo("tell", "survey.toml", "next.csv")
    assert (code, err) == (0, "") and "Rows with a value: 6; without: 1." in out

    frame.loc[6, "positive"] = 3.0  # of how many?
    frame.to_csv("next.csv", index=False)
    code, _, err = bo("tell", "survey.toml", "next.csv")
    assert code == 2 and "finite numbers in column 'examined'" in err
    frame.loc[6, "examined"] = 2.0
    frame.to_csv("next.csv", index=False)
    code, _, err = bo("tell", "survey.toml", "next.csv")
    assert code == 2 and "at most 'examined' in 'positive'; got 3 in row 8" in err
    assert "examined" in bo("trials", "survey.toml")[1]

    code, out, _ = bo("map", "survey.db", "--csv", "m.csv")  # the store knows what they are
    said = pd.read_csv("m.csv", dtype={"place": str}).set_index("place")
    assert code == 0 and list(said)[2:] == ["mean", "sd", "lower", "upper"]
    assert ((said["lower"] > 0.0) & (said["upper"] < 1.0)).all()
    assert bo("plot", "survey.toml")[0] == 0
    pytest.importorskip("jinja2")
    assert bo("report", "survey.toml")[0] == 0
    assert "prevalence of positive (%)" in (tmp_path / "report.html").read_text()


def test_counts_that_are_pending_or_of_nobody_are_left_out(bo, survey: Path) -> None:
    survey.write_text(survey.read_text().replace('outcome = "moisture (%)"\n', "") + COUNTS)
    bo("suggest", "survey.toml", "-q", 5, "--csv", "next.csv")
    frame = pd.read_csv("next.csv", dtype=str, keep_default_na=False)
    frame["examined"], frame["positive"] = ["50", "50", "0", "0", "0"], ["3", "", "0", "0", ""]
    frame["reason"] = ["", "", "", "village moved", "nobody came"]
    frame.to_csv("next.csv", index=False)
    code, out, err = bo("tell", "survey.toml", "next.csv")
    assert (code, err) == (0, "") and "1 told, 2 running, 2 failed" in out
    assert "Rows without positive yet, which were left out: 3." in out
    assert "Rows with 0 of 0, which were left out: 4." in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[outcome]\nlikelihood = "binomial"\n', "a likelihood of counts"),
        ('[outcome]\ncolumn = "k"\nlikelihood = "normal"\n', "one of bernoulli, binomial"),
        ('[outcome]\ncolumn = "k"\nlikelihood = "poisson"\ntrials = "n"\n', "of 'poisson'"),
    ],
)
def test_an_outcome_that_cannot_be_counted(bo, survey: Path, text: str, said: str) -> None:
    survey.write_text(survey.read_text().replace('outcome = "moisture (%)"\n', "") + text)
    code, _, err = bo("suggest", "survey.toml")
    assert code == 2 and "survey.toml, line" in err and said in err


# -- files as laboratories write them -------------------------------------------------------------


def trials(bo) -> pd.DataFrame:
    assert bo("trials", "oven.toml", "--csv", "trials.csv")[0] == 0
    frame = pd.read_csv("trials.csv").set_index("trial")
    Path("trials.csv").unlink()
    return frame


@pytest.mark.parametrize(
    ("separator", "point", "encoding"),
    [
        (";", ",", "utf-8-sig"),
        ("\t", ",", "utf-8"),
        (";", ".", "cp1252"),
        (",", ".", "utf-8-sig"),
    ],
)
def test_separators_and_decimal_commas(
    bo, oven: Path, separator: str, point: str, encoding: str
) -> None:
    assert bo("suggest", "oven.toml", "-q", 2, "--csv", "next.csv")[0] == 0
    asked = pd.read_csv("next.csv")
    rows = [["trial", "pressure", "rate", "y", "note", ""]]
    for i, row in asked.iterrows():
        values = [f"{row['pressure']:.6g}", f"{row['rate']:.6g}", f"{1.25 + int(str(i))}"]
        rows.append([str(i), *(v.replace(".", point) for v in values), "heiß; 40 °C", ""])
    rows.append(["", *(v.replace(".", point) for v in ("2.5", "0.01", "7.5")), "by hand", ""])
    cells = [[f'"{c}"' if separator in c else c for c in row] for row in rows]
    text = "\r\n".join(separator.join(row) for row in cells) + "\r\n\r\n"
    Path("back.csv").write_bytes(text.encode(encoding))
    code, out, err = bo("tell", "oven.toml", "back.csv")
    assert (code, err) == (0, "") and "Trials: 3 told" in out
    told = trials(bo)
    assert told["y"].tolist() == [1.25, 2.25, 7.5]
    assert told["pressure"].tolist() == [*asked["pressure"], 2.5]  # to the last digit
    assert told["note"].tolist() == ["heiß; 40 °C"] * 2 + ["by hand"]


def test_own_rows_with_a_key_may_be_told_again(bo, oven: Path) -> None:
    text = "key,pressure,rate,y\nmonday,2.0,0.01,5.0\ntuesday,3.0,0.01,\n"
    Path("own.csv").write_text(text)
    assert "Trials: 1 told" in bo("tell", "oven.toml", "own.csv")[1]
    Path("own.csv").write_text(text.replace(",\n", ",4.0\n"))
    assert "Trials: 2 told" in bo("tell", "oven.toml", "own.csv")[1]
    assert trials(bo)["key"].tolist() == ["monday", "tuesday"]


def test_what_was_done_and_what_is_far_off(bo, oven: Path) -> None:
    oven.write_text(oven.read_text().replace("budget = 7", "budget = 9"))
    assert bo("suggest", "oven.toml", "-q", 9, "--csv", "next.csv")[0] == 0
    frame = pd.read_csv("next.csv")
    frame["pressure"] = (frame["pressure"] + 0.1).clip(upper=10.0)
    frame["y"] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9e7]
    frame.to_csv("next.csv", index=False)
    code, _, err = bo("tell", "oven.toml", "next.csv")
    assert code == 0 and err.count("hundreds of interquartile ranges") == 1
    assert trials(bo)["pressure"].tolist() == frame["pressure"].tolist()
    assert "9e+07 (trial 8)" in bo("status", "oven.toml")[1]
    bo("withdraw", "oven.toml", 8, "--reason", "typing")
    assert "far off" not in bo("status", "oven.toml")[1]
    frame["pressure"] = frame["pressure"].iloc[::-1].to_list()
    frame.to_csv("next.csv", index=False)
    code, _, err = bo("tell", "oven.toml", "next.csv")
    assert code == 2 and "mixed up" in err
