"""Sweeps: killed, failing, shared and changed ones end with the right tables."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bo_stream.errors import InputError, StateError
from experiments.common.sweep import RunEnd, finished, sweep, table
from tests.experiments.common.toys import Toy, toys

FORK = get_context("fork")


def swept(runs: Any, folder: Path, **options: Any) -> list[RunEnd]:
    """The outcomes of a sweep in this process."""
    return sweep(runs, folder, **{"workers": 0, **options})


def results(folder: Path) -> dict[str, Any]:
    """What a sweep left, but for seconds."""
    frames = {path.stem: pd.read_csv(path) for path in sorted(folder.glob("*.csv"))}
    frames["sweep"] = frames["sweep"].drop(columns="seconds")
    return {name: frame.to_csv() for name, frame in frames.items()}


def calls(folder: Path) -> dict[str, int]:
    return {path.name: len(path.read_text()) for path in folder.glob("toy_*")}


def test_a_sweep_writes_tables_outcomes_and_how_it_came_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [*toys(tmp_path / "calls", 3), Toy(7, str(tmp_path / "calls"), steps=5)]
    outcomes = swept(runs, tmp_path / "out", about={"study": {"steps": 3}})
    assert [outcome.stem for outcome in outcomes] == [run.stem for run in runs]
    assert not any(outcome.reason for outcome in outcomes)
    assert table(tmp_path / "out", "toy_7")["step"].tolist() == [1, 2, 3, 4, 5]
    frame = pd.read_csv(tmp_path / "out" / "sweep.csv")
    assert frame["state"].tolist() == ["done"] * 4 and bool((frame["seconds"] > 0.0).all())
    about = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert about["study"] == {"steps": 3} and about["workers"] == 0
    assert {"commit", "clean", "environment"} < set(about)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".csv", ".json"}
    swept(runs, tmp_path / "out")
    assert "4 of 4 runs had ended before" in capsys.readouterr().out


@pytest.mark.parametrize("workers", [0, 1])
def test_what_does_not_begin_in_time_is_left_for_another_time(tmp_path: Path, workers: int) -> None:
    runs = toys(tmp_path / "calls", 3)
    assert swept(runs[:1], tmp_path / "out", workers=workers)
    assert [end.stem for end in swept(runs, tmp_path / "out", minutes=0.0)] == ["toy_0"]
    ((run, rows),) = finished(runs, tmp_path / "out")
    assert run == runs[0] and rows["step"].tolist() == [1, 2, 3]
    assert len(swept(runs, tmp_path / "out", minutes=1.0, workers=workers)) == 3
    assert len(finished(runs, tmp_path / "out")) == 3


def test_killed_at_random_it_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    out, draws = tmp_path / "out", random.Random(0)
    sweep(toys(tmp_path / "undisturbed", 12), tmp_path / "whole", workers=0)
    runs, kills = toys(tmp_path / "calls", 12), 0
    while True:
        process = FORK.Process(target=partial(sweep, runs, out, workers=0))
        process.start()
        # longer and longer, so that a busy machine gets on as well
        process.join(draws.uniform(0.01, 0.06) * 1.15**kills)
        if process.exitcode is not None:
            break
        process.kill()
        process.join()
        kills += 1
    assert process.exitcode == 0 and kills > 2
    assert results(out) == results(tmp_path / "whole")
    done = calls(tmp_path / "calls")
    assert len(done) == 12 and sum(done.values()) <= 12 + kills  # at most the one under way
    assert len(swept(runs, out)) == 12 and calls(tmp_path / "calls") == done


def test_two_processes_at_once_end_with_the_same_tables(tmp_path: Path) -> None:
    runs = toys(tmp_path / "calls", 10)
    sweep(toys(tmp_path / "undisturbed", 10), tmp_path / "whole", workers=0)
    both = [
        FORK.Process(target=partial(sweep, runs, tmp_path / "out", workers=0)) for _ in range(2)
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(60.0)
    assert [process.exitcode for process in both] == [0, 0]
    assert set(calls(tmp_path / "calls")) == {run.stem for run in runs}
    assert results(tmp_path / "out") == results(tmp_path / "whole")


@pytest.mark.parametrize("how", ["fails", "writes half"])
def test_a_run_that_fails_stops_no_other_and_may_be_tried_again(how: str, tmp_path: Path) -> None:
    runs, out = toys(tmp_path / "calls", 3), tmp_path / "out"
    runs[1] = replace(runs[1], how=how)
    outcomes = swept(runs, out)
    assert [bool(outcome.reason) for outcome in outcomes] == [False, True, False]
    frame = pd.read_csv(out / "sweep.csv").set_index("stem")
    assert frame["state"]["toy_1"] == "failed"
    head, trace = (out / "toy_1.error.txt").read_text().split("\n", 1)
    reason = str(frame["reason"]["toy_1"])
    assert json.loads(head)["reason"] == reason
    assert trace.startswith("Traceback") and not (out / "toy_1.csv").exists()
    assert reason == "LookupError: no such oven" or "FileNotFoundError" in reason
    (tmp_path / "calls" / "mended").touch()
    assert swept(runs, out)[1].reason == reason  # not tried again unless asked for
    outcomes = swept(runs, out, redo="failed")
    mended = how == "fails"
    assert bool(outcomes[1].reason) != mended and (out / "toy_1.error.txt").exists() != mended
    assert calls(tmp_path / "calls")["toy_0"] == 1


def test_what_fails_is_run_again_when_its_configuration_changes(tmp_path: Path) -> None:
    runs, out = toys(tmp_path / "calls", 2), tmp_path / "out"
    swept([runs[0], replace(runs[1], how="fails")], out)
    assert not swept(runs, out)[1].reason
    assert calls(tmp_path / "calls") == {"toy_0": 1, "toy_1": 1}


def test_a_plan_that_changed_is_refused_with_a_way_out(tmp_path: Path) -> None:
    runs, out = toys(tmp_path / "calls", 2), tmp_path / "out"
    swept(runs, out)
    changed = [runs[0], replace(runs[1], steps=9)]
    with pytest.raises(StateError, match="configurations of toy_1.*--out.*--fresh"):
        swept(changed, out)
    assert len(table(out, "toy_1")) == 3
    swept(changed, out, redo="all")
    assert calls(tmp_path / "calls") == {"toy_0": 2, "toy_1": 2}
    assert len(table(out, "toy_1")) == 9
    swept([*changed, *toys(tmp_path / "calls", 3)[2:]], out)  # a plan may grow
    assert calls(tmp_path / "calls") == {"toy_0": 2, "toy_1": 2, "toy_2": 1}


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_a_run_whose_file_is_gone_is_run_again(tmp_path: Path, suffix: str) -> None:
    runs, out = toys(tmp_path / "calls", 2), tmp_path / "out"
    swept(runs, out)
    (out / f"toy_1.{suffix}").unlink()
    swept(runs, out)
    assert calls(tmp_path / "calls") == {"toy_0": 1, "toy_1": 2}
    assert (out / f"toy_1.{suffix}").exists()


def test_an_interruption_is_gone_on_from(tmp_path: Path) -> None:
    runs, out = toys(tmp_path / "calls", 3), tmp_path / "out"
    runs[1] = replace(runs[1], how="is interrupted")
    with pytest.raises(KeyboardInterrupt):
        swept(runs, out)
    assert pd.read_csv(out / "sweep.csv")["stem"].tolist() == ["toy_0"]
    (tmp_path / "calls" / "mended").touch()
    swept(runs, out)
    assert calls(tmp_path / "calls") == {"toy_0": 1, "toy_1": 1, "toy_2": 1}


def test_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="stems of their own.*toy_0, toy_0"):
        sweep([*toys(tmp_path / "calls", 2), *toys(tmp_path / "calls", 1)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_executor_does_the_runs_and_stays_open(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as executor:
        outcomes = swept(toys(tmp_path / "calls", 4), tmp_path / "out", executor=executor)
        assert executor.submit(int).result() == 0
    assert not any(outcome.reason for outcome in outcomes)


@pytest.mark.slow
def test_processes_do_the_runs_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    runs, out = toys(tmp_path / "calls", 4), tmp_path / "out"
    runs[2] = replace(runs[2], how="dies")
    outcomes = swept(runs, out, workers=2)
    assert [bool(outcome.reason) for outcome in outcomes] == [False, False, True, False]
    assert "its process died" in (out / "toy_2.error.txt").read_text()
    sweep(toys(tmp_path / "undisturbed", 4), tmp_path / "whole", workers=0)
    pd.testing.assert_frame_equal(table(out, "toy_3"), table(tmp_path / "whole", "toy_3"))


@pytest.mark.slow
def test_a_cluster_does_the_runs(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", local_directory=str(tmp_path)
    )
    with cluster, distributed.Client(cluster) as client:
        runs = toys(tmp_path / "calls", 4)
        outcomes = swept(runs, tmp_path / "out", executor=client.get_executor())
    assert [outcome.reason for outcome in outcomes] == [None] * 4
