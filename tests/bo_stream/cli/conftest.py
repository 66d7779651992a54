"""Commands called in this process, in a folder of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bo_stream.cli.app import start

Answer = tuple[int, str, str]


@pytest.fixture
def bo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Answer]:
    """Exit code, standard output and standard error of a command, run in the test's folder."""
    monkeypatch.chdir(tmp_path)

    def call(*args: object) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            start([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return call


OVEN = """
name = "oven"
goal = "minimise"
budget = 7
objective = "oven.py:measure"
outcome = "energy (kWh)"
optimum = 1.0
seed = 1
[inputs.pressure]
low = 1.0
high = 10.0
unit = "bar"
[inputs.rate]
low = 1e-4
high = 0.1
log = true
"""

MEASURE = """
def measure(trial):
    return 1.0 + (trial["pressure"] - 3.0) ** 2 + 100.0 * trial["rate"]
"""


@pytest.fixture
def oven(tmp_path: Path) -> Path:
    """A configuration with an objective beside it."""
    (tmp_path / "oven.py").write_text(MEASURE)
    path = tmp_path / "oven.toml"
    path.write_text(OVEN)
    return path


PLACES = "site,lon,lat,soil\n" + "".join(
    f"{5 * i + j:03d},{10 + 0.1 * i:.1f},{45 + 0.1 * j:.1f},clay\n"
    for i in range(5)
    for j in range(5)
)

SURVEY = """
name = "survey"
goal = "learn"
outcome = "moisture (%)"
seed = 0
[pool]
file = "places.csv"
inputs = ["lon", "lat"]
index = "site"
units = {lon = "degrees", lat = "degrees"}
"""


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    """A configuration with a table of places beside it."""
    (tmp_path / "places.csv").write_text(PLACES)
    path = tmp_path / "survey.toml"
    path.write_text(SURVEY)
    return path
