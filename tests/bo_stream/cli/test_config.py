"""What is wrong with a configuration is message with its line and its key."""

from pathlib import Path

import pytest

import bo_stream
from bo_stream.cli.loading import CampaignConfig, create_or_continue, read_config
from bo_stream.cli.toml_reader import ConfigError, TomlDocument

TOML = """name = "oven"
goal = "minimise"
budget = 20
# a comment
store = "sqlite:///oven.db"
[inputs.pressure]
low = 1.0
high = 10.0
[inputs.rate]
low = 1e-4
high = 0.1
log = true
[run]
workers = 2
timeout = 60
"""


def read(folder: Path, text: str) -> CampaignConfig:
    path = folder / "oven.toml"
    path.write_text(text)
    return read_config(path)


def test_all_of_it_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, TOML)
    assert (config.name, config.goal, config.budget) == ("oven", "minimise", 20)
    assert config.store == f"sqlite:///{tmp_path}/oven.db"
    assert config.inputs["rate"].log and not config.inputs["pressure"].log
    assert (config.run.workers, config.run.timeout, config.run.q) == (2, 60.0, None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"minimise"', '"cool"', "line 2, goal: Expected goal, 'maximise', 'minimise'"),
        (
            "budget = 20",
            "budget = 2.5",
            "line 3, budget: Expected budget, a valid integer; got",
        ),
        ("budget = 20", "budget = 0", "budget, an integer of 1 or more; got 0"),
        ("budget = 20", "budget = true", "line 3, budget: Expected budget, a valid integer"),
        ("budget = 20", "budgte = 20", "line 3, budgte: Expected keys among"),
        ("budget = 20", "budgte = 20", "Did you mean 'budget'?"),
        ('name = "oven"', "name = 3", "line 1, name: Expected name, a valid string"),
        ('name = "oven"', "", "oven.toml: Expected a key 'name'; got none"),
        ("budget = 20", 'budget = 20\nnoise = "no"', "or a valid number; got 'no'"),
        ("budget = 20", "budget = 20\nnoise = -1", "or a positive number; got -1"),
        ("low = 1.0", 'low = "1"', "line 7, inputs.pressure.low: Expected low, a valid number"),
        ("low = 1.0", "low = -inf", "line 7, inputs.pressure.low: Expected low, a finite number"),
        ("low = 1.0", "values = [1]", "line 8, inputs.pressure.high: Expected keys among values"),
        ("log = true", 'log = "yes"', "line 12, inputs.rate.log: Expected log, a valid boolean"),
        ("log = true", "scale = 1", "line 12, inputs.rate.scale: Expected keys among"),
        (
            "timeout = 60",
            "timeout = 0",
            "line 15, run.timeout: Expected timeout, a positive number",
        ),
        ('name = "oven"', 'name = " "', "line 1, name: Expected name, a text that is not blank"),
        (
            "budget = 20",
            'constraints = "a <= 3"',
            "line 3, constraints: Expected constraints, a list",
        ),
        ("timeout = 60", "q = 2", "line 15, run.q: Expected workers or q; got both"),
        ("workers = 2\n", "", "line 14, run.timeout: Expected timeout with workers"),
        (
            "budget = 20",
            "targets = [[1.0]]",
            "line 3, targets: Expected targets, None; got [[1.0]]",
        ),
        ("[run]", "[rum]", "line 13, rum: Expected keys among"),
        ("high = 10.0", "high = 10.0.0", "line 8"),
        ("[run]", "[pool]\nfile='oven.toml'\n[run]", "line 13, pool: Expected either tables"),
    ],
)
def test_errors_name_line_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TOML
    with pytest.raises(ConfigError) as error:
        read(tmp_path, TOML.replace(old, new))
    assert message in str(error.value) and str(error.value).startswith(str(tmp_path / "oven.toml"))


@pytest.mark.parametrize(
    "text",
    [
        "a = 1\n[t]\nx = 1\nkey = 2\n",
        "t.x = 1\n\n\nt.key = 2\n",
        "# key = 0\n\n\nt = {x = 1, key = 2}\n",
        'a = """\nkey = 1\n"""\nt = {key = 2}\n',
        "[a]\nkey = [\n 1,\n]\n[t]\n'key' = 2\n".replace("[\n 1,\n]", "[1,\n]"),
    ],
)
def test_a_key_is_found_however_it_is_written(text: str) -> None:
    document = TomlDocument(Path("d.toml"), text)
    lines = text.splitlines()
    line = document.line(("t", "key"))
    assert document.values["t"]["key"] == 2
    assert line is not None and "key" in lines[line - 1] and "2" in lines[line - 1]


def test_a_table_in_pieces_stands_where_it_begins() -> None:
    document = TomlDocument(Path("d.toml"), "a = 1\nt.x = 1\nt.y = 2\n")
    assert document.line(("t",)) == 2 and document.line(("t", "z")) == 2
    assert document.line(("z",)) is None


def test_a_file_that_is_not_there_names_init(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="bo-stream init"):
        read_config(tmp_path / "none.toml")


def test_the_template_is_read_with_and_without_its_comments(tmp_path: Path, bo) -> None:
    assert bo("init")[0] == 0
    path = tmp_path / "campaign.toml"
    assert read_config(path).name == "oven"
    text = path.read_text()
    code, _, err = bo("init")
    assert code == 2 and "exists already" in err and path.read_text() == text

    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("[inputs"))
    end = next(i for i, line in enumerate(lines) if line.startswith("# In place"))
    pool = [
        line.removeprefix("# ")
        for line in lines[:start] + lines[end:]
        if "=" in line or "[" in line
    ]
    other = ("q = ", "outcome = ")  # not beside workers, and not beside a table [outcome]
    kept = [line for line in pool if not line.startswith(other)]
    path.write_text("\n".join(kept))
    (tmp_path / "places.csv").write_text("site,lon,lat\n")
    config = read_config(path)
    assert config.pool is not None and config.pool.inputs == ["lon", "lat"]
    assert config.surrogate == {"name": "wiski", "grid_size": 20} and config.run.workers == 4
    assert isinstance(config.outcome, dict) and config.outcome["trials"] == "examined"


def test_the_files_of_a_pool_are_relative_to_the_configuration(tmp_path: Path) -> None:
    text = TOML[: TOML.index("[inputs.pressure")] + '[pool]\nfile = "p.csv"\n'
    with pytest.raises(ConfigError, match="line 7, pool.file: Expected file, an existing file"):
        read(tmp_path, text)
    (tmp_path / "p.csv").write_text("x\n")
    assert read(tmp_path, text).pool.file == tmp_path / "p.csv"
    read(tmp_path, f"{text}index = 'site'\n")
    with pytest.raises(ConfigError, match="line 8, pool.index: Expected columns of p.csv"):
        create_or_continue(tmp_path / "oven.toml")


SURROGATE = '[surrogate]\nname = "wiski"\ngrid_size = 8\n[acquisition]\nname = "qucb"\nbeta = 2.0\n'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"wiski"', '"wisky"', "line 16, surrogate: Expected the name of a surrogate, one of"),
        ("grid_size", "gridsize", "line 16, surrogate: Expected options of WISKI: "),
        ("grid_size = 8", 'grid_size = "many"', "line 16, surrogate: Expected 2 grid"),
        ('"qucb"', '"ucb"', "line 19, acquisition: Expected the name of an acquisition"),
        ("beta", "betta", "line 19, acquisition: Expected options among beta"),
    ],
)
def test_names_and_options_are_refused_before_anything_is_measured(
    tmp_path: Path, bo, old: str, new: str, message: str
) -> None:
    assert old in SURROGATE
    (tmp_path / "oven.toml").write_text(TOML + SURROGATE.replace(old, new))
    code, out, err = bo("suggest", "oven.toml")
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1
    assert not (tmp_path / "oven.db").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("low = 1.0", "low = 10.0", "line 7, inputs.pressure.low: Expected two finite bounds"),
        ("low = 1e-4", "low = 0.0", "line 10, inputs.rate.low: Expected positive values"),
        ("low = 1.0\n", "", "line 6, inputs.pressure.low: Expected two finite bounds"),
        ("low = 1.0\nhigh = 10.0", "values = [1]", "line 7, inputs.pressure.values: Expected"),
    ],
)
def test_inputs_that_cannot_be_are_refused(
    tmp_path: Path, bo, old: str, new: str, message: str
) -> None:
    assert old in TOML
    (tmp_path / "oven.toml").write_text(TOML.replace(old, new))
    code, out, err = bo("suggest", "oven.toml")
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1
    assert not (tmp_path / "oven.db").exists()


def test_a_family_that_cannot_have_so_many_inputs_is_refused(tmp_path: Path, bo) -> None:
    inputs = "".join(f"[inputs.x{i}]\nlow = 0\nhigh = 1\n" for i in range(4))
    (tmp_path / "c.toml").write_text(f"{TOML}{inputs}{SURROGATE}")
    code, _, err = bo("suggest", "c.toml")
    assert code == 2 and "line 28, surrogate: " in err


def test_the_template_names_every_family() -> None:
    from bo_stream.cli.app import TEMPLATE
    from bo_stream.surrogates.registry import FAMILIES

    text = TEMPLATE.read_text().partition("[surrogate]")[2].partition("[acquisition]")[0]
    exported = [name for name, one in FAMILIES.items() if one.__name__ in bo_stream.__all__]
    assert not [name for name in exported if name not in text.replace(",", " ").split()]


def test_the_template_names_every_key() -> None:
    from bo_stream.cli.app import TEMPLATE

    lines = [line.removeprefix("# ") for line in TEMPLATE.read_text().splitlines()]
    keys = set(CampaignConfig.model_fields) - {"targets"}
    assert not [k for k in keys if not any(one.startswith((f"{k} = ", f"[{k}")) for one in lines)]
