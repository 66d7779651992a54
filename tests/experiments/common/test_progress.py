"""Lines that say how far a command is."""

from experiments.common.progress import Progress
from tests.experiments.common.toys import Clock


def test_a_line_comes_now_and_then_with_what_is_left() -> None:
    clock, lines = Clock(), list[str]()
    progress = Progress(8, "runs", tell=lines.append, clock=clock)
    for k in range(4):
        clock.now += 15.0
        progress(f"run {k}")
    assert [line.strip() for line in lines] == [
        "2 of 8 runs after 30 s, about 90 s to go; run 1",
        "4 of 8 runs after 60 s, about 60 s to go; run 3",
    ]
    progress("run 4 failed", urgent=True)
    assert lines[-1].endswith("run 4 failed")


def test_time_may_pass_before_the_first_part_is_done() -> None:
    clock, lines = Clock(), list[str]()
    progress = Progress(2, "splits", tell=lines.append, clock=clock)
    clock.now += 7300.0
    progress("batch 3", done=0)
    progress(done=2)
    assert lines == ["  0 of 2 splits after 2 h; batch 3"] and progress.done == 2
