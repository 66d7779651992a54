"""The figures on the README and in `docs` are those of the studies' stored tables.

A sentence is written here with the numbers of `docs/comparison`, `docs/mission` and `docs/tables`,
and is on its page word for word. What two pages say therefore agrees.
"""

from pathlib import Path

import pandas as pd
import pytest

from experiments.mission.study import per_step, steps_table
from tests.docs.pages import ROOT, WORDS, missing, stored

DOCS = ROOT / "docs"


# -- numbers of a comparison ---------------------------------------------------------------------


def row(table: str, budget: str, **about: str) -> pd.Series:
    frame = stored(f"comparison/{table}.csv")
    found = frame[frame["budget"] == budget]
    for column, value in about.items():
        found = found[found[column] == value]
    return found.iloc[0]


def rank(table: str, budget: str, method: str) -> str:
    return f"{row(table, budget, method=method)['mean rank']:.1f}"


def rank_range(table: str, budget: str, method: str) -> str:
    one = row(table, budget, method=method)
    return f"{one['low']:.1f} to {one['high']:.1f}"


def share(table: str, budget: str, against: str) -> str:
    return f"{100.0 * row(f'{table}_pairs', budget, against=against)['better']:.0f} %"


def seconds(table: str, budget: str, method: str) -> str:
    return f"{row(table, budget, method=method)['processor s']:#.2g}".rstrip(".").lstrip("0")


def part(table: str, method: str, other: str, budget: str = "n = 10,000") -> str:
    """The processor time of one method as a share of another's."""
    one, more = (row(table, budget, method=name)["processor s"] for name in (method, other))
    return PARTS[round(more / one)]


def times(table: str, budget: str, against: str, kind: str = "pairs") -> str:
    """The factor between the regrets, with its interval."""
    one = row(f"{table}_{kind}", budget, against=against)
    logs = sorted((abs(one["low"]), abs(one["high"])))
    middle, low, high = (f"{10.0**v:#.2g}".rstrip(".") for v in (abs(one["median"]), *logs))
    return f"{middle} ({low} to {high})"


PARTS = {3: "a third", 7: "a seventh", 11: "an eleventh"}

# -- numbers of other studies --------------------------------------------------------------------

STREAMS = stored("tables/streams.csv").set_index("table")
ERRORS = STREAMS.iloc[:-2, 2:].astype(float)
MANY = ERRORS[STREAMS["inputs"].iloc[:-2].astype(int) > 3].drop(columns="WISKI")
ABOVE = MANY.div(MANY.min(axis=1), axis=0) - 1.0
SECONDS = STREAMS.loc["processor seconds, median"]
FIGURES = stored("tables/figures.csv").set_index(["study", "figure"])["value"]
BUDGET = stored("tables/malaria_budget.csv").set_index("Unnamed: 0")
SCHOOLS = stored("tables/schools.csv").set_index("method")


def figure(study: str, name: str) -> str:
    return str(FIGURES[study, name])


def error(table: str, method: str) -> str:
    return str(STREAMS.loc[table, method])


def within(method: str, percent: float) -> str:
    return WORDS[int((ABOVE[method] <= 0.01 * percent).sum())]


def markdown(name: str, best: bool = False) -> list[str]:
    """Rows of a stored table on a page, perhaps with the lowest numbers of each in bold."""
    lines = [list(cells) for cells in stored(f"tables/{name}.csv").fillna("-").to_numpy()]
    lines = [_bold(cells) for cells in lines] if best else lines
    return [
        f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |") for cells in lines
    ]


def _bold(cells: list[str]) -> list[str]:
    about, numbers = cells[:3], [float(cell) for cell in cells[3:] if cell != "-"]
    least = None if about[0].startswith("state") else min(numbers)
    about[2] = f"{int(about[2]):,}" if about[2] != "-" else ""
    about[1] = "" if about[1] == "-" else about[1]
    methods = [c if c == "-" or float(c) != least else f"**{c}**" for c in cells[3:]]
    return [*about, *(["" if c == "-" and about[1] == "" else c for c in methods])]


# -- what pages say ------------------------------------------------------------------------------

CLASSICS, LARGE = ("classics", "n = 100"), "large"
OURS = "bo_stream, exact"
WARPED = rank(*CLASSICS, "bo_stream")
TRUST = {n: rank(LARGE, n, OURS) for n in ("n = 2,000", "n = 10,000")}
CMA = {n: rank(LARGE, n, "CMA-ES") for n in TRUST}
DRIFT = f"error {figure('stream_drift', 'with forget')}, without it " + figure(
    "stream_drift", "without"
)
KIN8NM = f"{error('Kin8nm', 'SVDGP')} and {error('Kin8nm', 'HSGP')}"
ROAD = ERRORS.loc["Road"].drop(["WISKI", "exact GP"]).idxmin()
STATE = error("state at the end, MB, median", "NodeWISKI")
LARGE_BATCHES = "CMA-ES, population 1,000"

README = [
    f"compares {WORDS[len(stored('mission/qUCB/steps.csv'))]} surrogates with qUCB, qLogEI and "
    "Thompson sampling,",
    f"An exact GP takes {row('seconds', '5 s', method='BoTorch SingleTaskGP')['n']:.0f} evaluations"
    " in that time, a campaign on a stream "
    f"{round(row('seconds', '5 s', method='bo_stream')['n'], -3):,.0f}.",
    f"by a factor of {times('seconds', '5 s', LARGE_BATCHES).replace('(', '(95 %: ')}.",
    f"| mean rank {WARPED} of six methods, Optuna's GP {rank(*CLASSICS, 'Optuna GP')} |",
    f"| mean rank {TRUST['n = 2,000']} of four methods after 2,000 and {TRUST['n = 10,000']} after"
    f" 10,000, CMA-ES with restarts {CMA['n = 2,000']} and {CMA['n = 10,000']} |",
    f"| `WISKI` | error {error('Road', 'WISKI')}, the best other {error('Road', ROAD)} |",
    f"| error within 2 % of the lowest on {within('NodeWISKI', 2)} of seven tables |",
    f"| error {KIN8NM}, `NodeWISKI` {error('Kin8nm', 'NodeWISKI')} |",
    f"| {DRIFT} |",
    f"a lower regret than Optuna's GP sampler in {share(*CLASSICS, 'Optuna GP')} of "
    f"{row('classics_pairs', 'n = 100', against='Optuna GP')['runs']} runs, and than BoTorch's "
    f"`SingleTaskGP` in {share(*CLASSICS, 'BoTorch LogEI')},",
]

SURROGATES = [
    f"| mean rank {WARPED} (95 %: {rank_range(*CLASSICS, 'bo_stream')}) of six methods on 13 "
    f"functions, where Optuna's GP has {rank(*CLASSICS, 'Optuna GP')} |",
    f"| a point observed costs {figure('cost', 'HSGP observe')} of a Cholesky factorisation of "
    "1,000 rows with 256 features, after 1,000 points and after 100,000 |",
    f"| mean rank {TRUST['n = 2,000']} (95 %: {rank_range(LARGE, 'n = 2,000', OURS)}) of four "
    f"methods after 2,000 evaluations, CMA-ES with restarts {CMA['n = 2,000']}; "
    f"{TRUST['n = 10,000']} ({rank_range(LARGE, 'n = 10,000', OURS)}) and {CMA['n = 10,000']} "
    "after 10,000, where their ratio is not separated from 1 |",
    f"| error {error('Road', 'WISKI')}, where the best other has {error('Road', ROAD)} and an "
    f"exact GP on 1,000 rows {error('Road', 'exact GP')} |",
    f"| error within 2 % of the lowest on {within('NodeWISKI', 2)} of seven tables, in {STATE} MB"
    " |",
    f"| `SVDGP`; `HSGP` in {PARTS[round(float(SECONDS['SVDGP']) / float(SECONDS['HSGP']))]} of the "
    "time |",
    f"| error on kin8nm {KIN8NM}, where `NodeWISKI` has {error('Kin8nm', 'NodeWISKI')} |",
    f"| {DRIFT} |",
    f"{figure('model_size', 'Skillcraft')} to {figure('model_size', 'Concrete')} inducing points",
    f"| as for `WarpedGP`: mean rank {WARPED} of six methods |",
    f"| mean rank {rank('seconds', '5 s', 'bo_stream')} (95 %: "
    f"{rank_range('seconds', '5 s', 'bo_stream')}) of four methods after five seconds, CMA-ES "
    f"{rank('seconds', '5 s', LARGE_BATCHES)} or {rank('seconds', '5 s', 'CMA-ES')} by its "
    "population |",
    f"| as for `TrustRegionGP`: mean rank {TRUST['n = 2,000']} of four methods after 2,000 "
    f"evaluations, {TRUST['n = 10,000']} after 10,000 |",
    "| a step of `NodeWISKI` of 256 nodes in 6 inputs costs "
    f"{figure('cost', 'NodeWISKI step after 1000')} "
    f"factorisations after 1,000 points, {figure('cost', 'NodeWISKI step after 100000')} after "
    "100,000 |",
    f"| error of a map of prevalence {figure('counts', 'prevalence')}, at random sites "
    f"{figure('counts', 'random')} |",
    f"| `ConstrainedHartmann`: best feasible value "
    f"{float(figure('comparison outcomes', 'ConstrainedHartmann bo_stream')):.3f}, BoTorch's loop "
    f"{float(figure('comparison outcomes', 'ConstrainedHartmann BoTorch')):.3f} |",
    f"| hypervolume of `DTLZ2` {figure('comparison outcomes', 'DTLZ2 bo_stream')}, BoTorch's loop "
    f"{figure('comparison outcomes', 'DTLZ2 BoTorch')}; of `BraninCurrin` "
    f"{figure('comparison outcomes', 'BraninCurrin bo_stream')} and "
    f"{figure('comparison outcomes', 'BraninCurrin BoTorch')} |",
    f"at {WORDS[round(float(SECONDS['WISKI']) / float(SECONDS['NodeWISKI']))]} times the seconds "
    "of `NodeWISKI`",
    f"`SVDGP` is within {100 * ABOVE['SVDGP'].max():.0f} % of the lowest error on all tables",
    f"`NodeWISKI` is within 2 % of it on {within('NodeWISKI', 2)} of these seven, "
    f"{100 * ABOVE.loc['Kin8nm', 'NodeWISKI']:.0f} % above on kin8nm, where 512 nodes are too few, "
    f"and {100 * ABOVE.loc['Robot arm', 'NodeWISKI']:.0f} % on the robot arm",
    f"end with {figure('model_size', 'Concrete')} points on Concrete (927 rows), "
    f"{figure('model_size', 'Skillcraft')} on Skillcraft (3,004) and "
    f"{figure('model_size', 'Elevators')} on Elevators (14,939)",
    f"it has {figure('small_batches', 'VIPS')} inducing points, and `Pruned(VIPS())` has "
    f"{figure('small_batches', 'Pruned')}.",
    f"`VIPS` keeps {figure('small_batches', 'VIPS mended')} points and `Pruned(VIPS())` "
    f"{figure('small_batches', 'Pruned mended')}, at the same error",
    f"{float(BUDGET.loc['coverage', '`CaGP`, 64 actions'].split()[0]):.0f} % coverage where a grid "
    "that is too coarse has "
    f"{float(BUDGET.loc['coverage', '`WISKI`, 16 x 16 nodes'].split()[0]):.0f} %",
    f"its nMSE is {figure('decoupled stream', 'nMSE against SGPR 512')} of SGPR's with as many "
    "inducing points (512), and "
    f"{figure('decoupled stream', 'nMSE against SGPR 2048')} of SGPR's with 2,048",
    f"the error of the map is {figure('counts', 'prevalence')} after 200 sites, where that of the "
    f"variance of the logit is {figure('counts', 'logit')}, of empirical logits "
    f"{figure('counts', 'logits')} and of random sites {figure('counts', 'random')}",
    f"on 203 Ethiopian schools {SCHOOLS.iloc[0, 0]} nats a school, where one pooled rate has "
    f"{SCHOOLS.loc['one pooled rate (beta-binomial)'].iloc[0]}",
    f"its log loss is {figure('counts data', 'CountGP log loss')} nats and its calibration error "
    f"{figure('counts data', 'CountGP calibration')}, where `DirichletClassifier` has "
    f"{figure('counts data', 'DirichletClassifier log loss')} and "
    f"{figure('counts data', 'DirichletClassifier calibration')}",
]

SOBOL = times("noisy", "n = 3,000", "Sobol, regressed").split(" ", 1)
TURBO, TPE, FEW_SOBOL = (
    times("noisy", "n = 300", name).split(" ", 1)
    for name in ("TuRBO-1", "Optuna TPE", "Sobol, regressed")
)

COMPARISON = [
    f"in {share(*CLASSICS, 'Optuna GP')} of the runs beside Optuna's GP sampler, in the median by a"
    f" factor of {times(*CLASSICS, 'Optuna GP')}. On the seven functions apart it is "
    f"{100.0 * row('classics_apart', 'n = 100', against='Optuna GP')['better']:.0f} % and a factor "
    f"of {times(*CLASSICS, 'Optuna GP', 'apart')}.",
    f"with LogEI it is {share(*CLASSICS, 'BoTorch LogEI')} and a factor of "
    f"{times(*CLASSICS, 'BoTorch LogEI')}",
    f"A hundred proposals cost a campaign {seconds(*CLASSICS, 'bo_stream')} processor seconds, "
    f"Optuna's GP {seconds(*CLASSICS, 'Optuna GP')}, BoTorch's loop "
    f"{seconds(*CLASSICS, 'BoTorch LogEI')}, TPE {seconds(*CLASSICS, 'Optuna TPE')}.",
    f"Beside TPE it is {share(*CLASSICS, 'Optuna TPE')} of all runs, beside CMA-ES "
    f"{share(*CLASSICS, 'CMA-ES')}:",
    f"An exact GP takes {row('seconds', '5 s', method='BoTorch SingleTaskGP')['n']:.0f} evaluations"
    " in five seconds.",
    f"has the higher regret in {share('seconds', '5 s', 'CMA-ES')} of the runs.",
    f"in {share('seconds', '5 s', LARGE_BATCHES)} of the runs, in the median by a factor of "
    f"{times('seconds', '5 s', LARGE_BATCHES)}",
    f"in {share('noisy', 'n = 3,000', 'CMA-ES, 100')} of the runs beside CMA-ES with 100 points in "
    f"each generation, by a factor of {times('noisy', 'n = 3,000', 'CMA-ES, 100')}, and in "
    f"{share('noisy', 'n = 3,000', 'CMA-ES')} beside its default population.",
    f"The stream has the lower regret in {share('rotated', '5 s', 'CMA-ES')} of the runs beside the"
    f" default population, and in {share('rotated', '5 s', 'BoTorch SingleTaskGP')} beside an "
    "exact GP.",
    f"in {share('thirty', '30 s', LARGE_BATCHES)} of the runs beside CMA-ES with a population of "
    f"1,000, by a factor of {times('thirty', '30 s', LARGE_BATCHES)}, after ten in "
    f"{share('thirty', '10 s', LARGE_BATCHES)}, by a factor of "
    f"{times('thirty', '10 s', LARGE_BATCHES)}.",
    f"Beside the default population it is {share('thirty', '30 s', 'CMA-ES')} of the runs",
    f"in {share(LARGE, 'n = 2,000', 'CMA-ES')} of the runs beside CMA-ES with restarts, by a factor"
    f" of {times(LARGE, 'n = 2,000', 'CMA-ES')}:",
    f"by a factor of {times(LARGE, 'n = 1,000', 'TuRBO-1')},",
    f"10,000 proposals cost the campaign {seconds(LARGE, 'n = 10,000', OURS)} processor seconds, "
    f"1.3 ms each, and CMA-ES {seconds(LARGE, 'n = 10,000', 'CMA-ES')} seconds.",
    f"A study of 60 trials costs the campaign {seconds('tuning', 'n = 60', 'bo_stream')} processor "
    f"seconds, Optuna's GP {seconds('tuning', 'n = 60', 'Optuna GP')}, TPE "
    f"{seconds('tuning', 'n = 60', 'Optuna TPE')}.",
    f"Sobol points have {SOBOL[0]} times its regret after 3,000 evaluations {SOBOL[1]}.",
    f"TuRBO-1 has {TURBO[0]} times its regret {TURBO[1]}, TPE {TPE[0]} times {TPE[1]}, and "
    f"regressed Sobol points {FEW_SOBOL[0]} times {FEW_SOBOL[1]}.",
    f"the campaign has the lower loss in {share('outcomes', 'n = 60', 'BoTorch')} of the runs, by a"
    f" factor of {times('outcomes', 'n = 60', 'BoTorch')}, after 40 in "
    f"{share('outcomes', 'n = 40', 'BoTorch')}, by a factor of "
    f"{times('outcomes', 'n = 40', 'BoTorch')}.",
    *(
        f"{figure('comparison outcomes', f'{task} bo_stream')} and "
        f"{figure('comparison outcomes', f'{task} BoTorch')}"
        for task in ("ConstrainedHartmann", "ConstrainedGramacy", "BraninCurrin", "DTLZ2")
    ),
    f"ahead of random points in {share('tuning', 'n = 60', 'random points')} of the runs.",
    f"takes {part('lander', OURS, 'TuRBO-1')} of the processor time of TuRBO-1, CMA-ES "
    f"{part('lander', 'CMA-ES', OURS)} of the campaign's.",
    f"in {part(LARGE, OURS, 'TuRBO-1', 'n = 1,000')} of the processor time.",
]


# -- the mission's study -------------------------------------------------------------------------

RULES = ("qUCB", "qLogEI", "Thompson-sampling")
ENDS = {
    rule: stored(f"mission/{rule}/standings.csv").query("budget == '10 s'").set_index("method")
    for rule in RULES
}
STEP = stored("mission/qUCB/steps.csv").set_index("method")
SURVEYS = stored("mission/malaria.csv").set_index(["raster", "surrogate", "policy"])
MAPS, SPENT = SURVEYS["error"], SURVEYS["processor seconds"]


def made(method: str) -> str:
    return f"{ENDS['qUCB']['n'][method]:,.0f}"


def ranks(method: str) -> str:
    one, two, three = (f"{ENDS[rule]['mean rank'][method]:.1f}" for rule in RULES)
    return f"{one}, {two} and {three}"


def step(method: str) -> str:
    known = STEP.loc[method].dropna()
    return f"{known.min():.0f} to {known.max():.0f}"


def mapped(place: str, surrogate: str) -> str:
    """Errors with NIPV and at random."""
    raster = next(name for name in MAPS.index.levels[0] if place in name)
    nipv, random = MAPS[raster, surrogate, NIPV], MAPS[raster, surrogate, ANY]
    return f"{nipv:.4f} and {random:.4f}".replace("0.", ".")


def lasting(surrogate: str) -> str:
    """Processor seconds with NIPV in Benin, Senegal and Nigeria."""
    found = SPENT.xs((surrogate, NIPV), level=("surrogate", "policy"))
    places = [next(n for n in found.index if p in n) for p in ("benin", "senegal", "nigeria")]
    one, two, three = (f"{found[place]:,.0f}" for place in places)
    return f"{one}, {two} and {three}"


RUNS = pd.concat([stored(f"mission/functions_{seed}.csv") for seed in range(10)])
OTHERS = ("SingleTaskGP", "O-SVGP")


def reached(rule: str) -> str:
    """Runs that made all evaluations, and runs."""
    ends = RUNS[RUNS["rule"] == rule].groupby(["method", "task", "seed"])["n"].max()
    return f"{(ends == 1500).sum()} of {len(ends)}"


def slower(rule: str, left_out: tuple[str, ...] = ()) -> str:
    """How much longer steps take from seed 2 on."""
    runs = RUNS[(RUNS["rule"] == rule) & ~RUNS["method"].isin(left_out)]
    here, there = (
        steps_table(per_step([t for _, t in part.groupby(["task", "seed", "method"])], 3))
        for part in (runs[runs["seed"] < 2], runs[runs["seed"] >= 2])
    )
    ratios = there.set_index("method") / here.set_index("method")
    return f"{ratios.min().min():.1f} to {ratios.max().max():.1f}"


NIPV, ANY, GRID = "integrated variance (NIPV)", "random cells", "WISKI, 30 x 30 nodes"
MISSION = [
    f"With qUCB, in 10 processor seconds `SingleTaskGP` makes {made('SingleTaskGP')} evaluations, "
    f"`WISKI` {made('WISKI')}, `OnlineSGPR` {made('OnlineSGPR with VIPS')} and "
    f"`HSGP` {made('HSGP')}.",
    f"A step of `SingleTaskGP` takes {step('SingleTaskGP')} ms in these bins, of `WISKI` "
    f"{step('WISKI')}, of `OnlineSGPR` {step('OnlineSGPR with VIPS')} and of "
    f"`HSGP` {step('HSGP')}.",
    f"O-SVGP takes ten steps of Adam for each batch: {step('O-SVGP')} ms.",
    f"Among eight methods the mean rank of `SingleTaskGP` is {ranks('SingleTaskGP')} with the "
    f"three acquisition functions, of `WISKI` {ranks('WISKI')} and of `HSGP` {ranks('HSGP')}.",
    f"With NIPV the error of `WISKI` in Benin is "
    f"{mapped('benin', GRID).replace(' and', ', at random')}; of `ExactGP` "
    f"{mapped('benin', 'ExactGP')}; of O-SVGP {mapped('benin', 'O-SVGP')}.",
    f"In Senegal they are {mapped('senegal', GRID)}, {mapped('senegal', 'ExactGP')}, "
    f"{mapped('senegal', 'O-SVGP')}; in Nigeria {mapped('nigeria', GRID)}, "
    f"{mapped('nigeria', 'ExactGP')}, {mapped('nigeria', 'O-SVGP')}.",
    f"60 batches by NIPV take `WISKI` {lasting(GRID)} processor seconds in Benin, Senegal and "
    f"Nigeria, `ExactGP` {lasting('ExactGP')}.",
    f"{reached('Thompson sampling')} with Thompson sampling get there, and {reached('qUCB')} with "
    "qUCB",
    f"on another processor, where steps of the streams take {slower('qLogEI', OTHERS)} times as "
    "long",
    f"With Thompson sampling their steps take {slower('Thompson sampling')} times as long as those "
    "of the first two",
    f"With Thompson sampling `WISKI` makes {ENDS['Thompson-sampling']['n']['WISKI']:,.0f} "
    "evaluations",
]


PAGES = {"README.md": README, "docs/surrogates.md": SURROGATES, "docs/comparison.md": COMPARISON}
PAGES["docs/mission.md"] = MISSION
PAGES["docs/index.md"] = README[:1]
TABLES = ("streams", "schools", "malaria_budget", "decoupled_arm")


@pytest.mark.parametrize("page", PAGES)
def test_sentences_have_the_numbers_of_the_stored_tables(page: str) -> None:
    assert not missing(page, PAGES[page])


def test_every_number_of_a_recommendation_is_among_them() -> None:
    for page, column in (("README.md", 2), ("docs/surrogates.md", 2)):
        said = " ".join(" ".join(PAGES[page]).split())
        text = Path(ROOT, page).read_text(encoding="utf-8")
        tables = [part for part in text.split("\n\n") if "| number |" in part]
        for line in [line for part in tables for line in part.splitlines()[2:]]:
            cell = line.split(" | ")[column].removesuffix(" |")
            assert cell in said or cell.endswith("the same cost after 1,000 and 100,000 points")
        assert tables


def test_tables_are_the_stored_ones() -> None:
    text = (DOCS / "surrogates.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if not line.startswith("|---")]
    for name in TABLES:
        for line in markdown(name, best=name == "streams"):
            assert line in rows
