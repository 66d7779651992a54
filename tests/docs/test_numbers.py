"""The figures on the README and in `docs` are those of the studies' stored tables.

A sentence is written here with the numbers of `docs/comparison` and `docs/tables`, and is on its
page word for word. What two pages say therefore agrees.
"""

from pathlib import Path

import pandas as pd
import pytest

from tests.docs.pages import ROOT

DOCS = ROOT / "docs"


def stored(name: str) -> pd.DataFrame:
    return pd.read_csv(DOCS / name, dtype=str if name.startswith("tables/") else None)


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


def times(table: str, budget: str, against: str, kind: str = "pairs") -> str:
    """The factor between the regrets, with its interval."""
    one = row(f"{table}_{kind}", budget, against=against)
    logs = sorted((abs(one["low"]), abs(one["high"])))
    middle, low, high = (f"{10.0**v:#.2g}".rstrip(".") for v in (abs(one["median"]), *logs))
    return f"{middle} ({low} to {high})"


# -- numbers of other studies --------------------------------------------------------------------

STREAMS = stored("tables/streams.csv").set_index("table")
ERRORS = STREAMS.iloc[:-2, 2:].astype(float)
MANY = ERRORS[STREAMS["inputs"].iloc[:-2].astype(int) > 3].drop(columns="WISKI")
ABOVE = MANY.div(MANY.min(axis=1), axis=0) - 1.0
SECONDS = STREAMS.loc["processor seconds, median"]
FIGURES = stored("tables/figures.csv").set_index(["study", "figure"])["value"]
BUDGET = stored("tables/malaria_budget.csv").set_index("Unnamed: 0")
SCHOOLS = stored("tables/schools.csv").set_index("method")
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


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
    "1,000 rows, after 1,000 points and after 100,000 |",
    f"| mean rank {TRUST['n = 2,000']} (95 %: {rank_range(LARGE, 'n = 2,000', OURS)}) of four "
    f"methods after 2,000 evaluations, CMA-ES with restarts {CMA['n = 2,000']}; "
    f"{TRUST['n = 10,000']} ({rank_range(LARGE, 'n = 10,000', OURS)}) and {CMA['n = 10,000']} "
    "after 10,000, where their ratio is not separated from 1 |",
    f"| error {error('Road', 'WISKI')}, where the best other has {error('Road', ROAD)} and an "
    f"exact GP on 1,000 rows {error('Road', 'exact GP')} |",
    f"| error within 2 % of the lowest on {within('NodeWISKI', 2)} of seven tables, in {STATE} MB"
    " |",
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
    f"| a step of `NodeWISKI` in 6 inputs costs {figure('cost', 'NodeWISKI step after 1000')} "
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
]


# -- the mission's study -------------------------------------------------------------------------

RULES = ("qUCB", "qLogEI", "Thompson-sampling")
ENDS = {
    rule: stored(f"mission/{rule}/standings.csv").query("budget == '10 s'").set_index("method")
    for rule in RULES
}
STEP = stored("mission/qUCB/steps.csv").set_index("method")
MAPS = stored("mission/malaria.csv").set_index(["raster", "surrogate", "policy"])["error"]


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


NIPV, ANY, GRID = "integrated variance (NIPV)", "random cells", "WISKI, 30 x 30 nodes"
MISSION = [
    f"In 10 processor seconds `SingleTaskGP` makes {made('SingleTaskGP')} evaluations, "
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
    f"{mapped('senegal', 'O-SVGP')}.",
]


# -- the page of VIPS and OIPS -------------------------------------------------------------------

SWEPT = stored("papers/vips_means.csv").set_index(["policy", "table"])
TOYS = stored("papers/vips_batches.csv").set_index(["scenario", "policy", "seed", "batch"])
RIVALS = stored("papers/oips_toys.csv").set_index(["stream", "policy"])
FIXED = [f"FixedSize, m {m}" for m in (10, 20, 30)]


def excess(policy: str, *tables: str) -> str:
    """The range over tables."""
    found = SWEPT.loc[policy, "excess_percent"]
    found = found[list(tables)] if tables else found
    return (
        f"{found.min():.1f} to {found.max():.1f} %" if len(found) > 1 else f"{found.item():.1f} %"
    )


def points(policy: str, *tables: str) -> str:
    found = SWEPT.loc[policy, "points"]
    found = found[list(tables)] if tables else found
    return f"{found.min():.0f} to {found.max():.0f}" if len(found) > 1 else f"{found.item():.0f}"


def toy(what: str, stream: str, policy: str, seed: int, batch: int) -> float:
    return float(TOYS.loc[(stream, policy, seed, batch - 1), what])


def beyond(stream: str, policy: str) -> str:
    return f"{RIVALS.loc[(stream, policy), 'error']:.3f}".lstrip("0")


FULL = "a GP on all rows at once"
VIPS, OIPS = "VIPS, delta 0.05", "OIPS, rho 0.9"
WORST = SWEPT["excess_percent"].groupby("policy", sort=False).max().drop(FULL)
KIN = SWEPT.xs("kin8nm", level="table").filter(like="VIPS, delta", axis=0)
FOUR = "four stages"
PAPER = [
    f"VIPS(.05) ends with {points(VIPS)} points and {excess(VIPS)} of excess error, OIPS(.9) with "
    f"{points(OIPS)} and {excess(OIPS)}, conditional variance to 10 with "
    f"{points('ConditionalVariance, eta 10.0')} and {excess('ConditionalVariance, eta 10.0')}, and "
    f"200 points have {excess('FixedSize, m 200')}.",
    f"Only {' and '.join(WORST.index[WORST < 7.0])} stay below 7 % on all five tables",
    f"On Elevators VIPS(.4) has {points('VIPS, delta 0.4', 'elevators')} points at "
    f"{excess('VIPS, delta 0.4', 'elevators')}, where 50 fixed points have "
    f"{excess('FixedSize, m 50', 'elevators')} and conditional variance to 10 with "
    f"{points('ConditionalVariance, eta 10.0', 'elevators')} points "
    f"{excess('ConditionalVariance, eta 10.0', 'elevators')}.",
    f"On Kin8nm every `delta` ends at the limit of {KIN['points'].min():.0f} points, from "
    f"{KIN['excess_percent'].min():.1f} to {KIN['excess_percent'].max():.1f} % above the GP on all "
    "rows",
    f"`OIPS(.9)` on Bike has {points(OIPS, 'bike')} points at {excess(OIPS, 'bike')}, `OIPS(.8)` "
    f"{points('OIPS, rho 0.8', 'bike')} at {excess('OIPS, rho 0.8', 'bike')}:",
    f"`delta` .4 still leaves {points('VIPS, delta 0.4', 'concrete')} points on Concrete, and on "
    f"Skillcraft 50 fixed points have {excess('FixedSize, m 50', 'skillcraft')} of excess error, "
    f"VIPS(.05) with {points(VIPS, 'skillcraft')} points {excess(VIPS, 'skillcraft')}.",
    f"Seed 0 has {toy('points', 'uniform domain', 'VIPS', 0, 4):.0f} points for its first 60 rows, "
    f"and {toy('points', 'uniform domain', 'VIPS', 0, 5):.0f} after the next batch.",
    f"With 20 points ours ends at {toy('rmse', FOUR, FIXED[1], 42, 4):.2f} where the paper has .3",
    f"In the end VIPS is at {toy('rmse', FOUR, 'VIPS', 42, 4):.2f} and an exact GP at "
    f"{toy('rmse', FOUR, 'exact GP', 42, 4):.2f}.",
    f"Their negative log densities are {toy('nlpd', FOUR, 'VIPS', 42, 4):.2f} and "
    f"{toy('nlpd', FOUR, 'exact GP', 42, 4):.2f} nats (the paper: 1.0 and .9).",
    f"from {toy('points', 'magnetic path 1', 'VIPS', 0, 1):.0f} points to "
    f"{toy('points', 'magnetic path 1', 'VIPS', 0, 5):.0f}",
    f"error {beyond('uniform', 'OIPS')}, {beyond('time series', 'OIPS')} and "
    f"{beyond('uneven', 'OIPS')} on the three, a grid of as many points "
    f"{beyond('uniform', 'grid, times 1.0')}, {beyond('time series', 'grid, times 1.0')} and "
    f"{beyond('uneven', 'grid, times 1.0')}, k-means {beyond('uniform', 'k-means, times 1.0')}, "
    f"{beyond('time series', 'k-means, times 1.0')} and {beyond('uneven', 'k-means, times 1.0')}.",
]

PAGES = {"README.md": README, "docs/surrogates.md": SURROGATES, "docs/comparison.md": COMPARISON}
PAGES["docs/mission.md"] = MISSION
PAGES["docs/papers/vips.md"] = PAPER
TABLES = ("streams", "schools", "malaria_budget", "decoupled_arm")


@pytest.mark.parametrize("page", PAGES)
def test_sentences_have_the_numbers_of_the_stored_tables(page: str) -> None:
    text = " ".join(Path(ROOT, page).read_text(encoding="utf-8").split())
    missing = [one for one in PAGES[page] if " ".join(one.split()) not in text]
    assert not missing


def test_every_number_of_a_recommendation_is_among_them() -> None:
    for page, column in (("README.md", 2), ("docs/surrogates.md", 2)):
        said = " ".join(" ".join(PAGES[page]).split())
        text = Path(ROOT, page).read_text(encoding="utf-8")
        tables = [part for part in text.split("\n\n") if "| number |" in part]
        for line in [line for part in tables for line in part.splitlines()[2:]]:
            cell = line.split(" | ")[column].removesuffix(" |")
            assert cell in said or cell == "the same cost after 1,000 and 100,000 points"
        assert tables


def test_tables_are_the_stored_ones() -> None:
    text = (DOCS / "surrogates.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if not line.startswith("|---")]
    for name in TABLES:
        for line in markdown(name, best=name == "streams"):
            assert line in rows


def test_tables_of_the_papers_toys_are_those_of_their_batches() -> None:
    means = TOYS["points"].groupby(["scenario", "batch"], sort=False).mean()
    shown = stored("papers/vips_figure1.csv").set_index("points after")
    for column in shown:
        batch = int(column.removeprefix("batch ")) - 1
        found = [round(means[stream, batch], 1) for stream in shown.index]
        assert shown[column].tolist() == found
    labels = {"VIPS(.05)": "VIPS", "exact GP": "exact GP"}
    labels |= {f"{name.split()[-1]} points": name for name in FIXED}
    second = stored("papers/vips_figure2.csv").set_index("points: error after")
    third = stored("papers/vips_magnetic.csv").set_index("points: error after")
    for name, policy in labels.items():
        for column, cell in second.loc[f"{name}, ours"].items():
            assert cell == _cell(FOUR, policy, 42, str(column), ".2f")
    for name, policy in (("VIPS(.095)", "VIPS"), ("OIPS(.93)", "OIPS")):
        for column, cell in third.loc[name].items():
            assert cell == _cell("magnetic path 1", policy, 0, str(column), ".1f")


def test_tables_of_policies_are_those_of_their_means() -> None:
    for name, column, how in (
        ("error", "excess_percent", "z.1f"),
        ("density", "excess_nats", "z.2f"),
    ):
        shown = stored(f"papers/vips_{name}.csv").set_index("policy").iloc[:-2]
        for (policy, table), row in SWEPT.iterrows():
            if policy in shown.index:
                assert shown.loc[policy, table] == f"{row['points']:.0f}: {row[column]:{how}}"


def _cell(stream: str, policy: str, seed: int, column: str, how: str) -> str:
    batch = int(column.removeprefix("batch "))
    size, error = (toy(what, stream, policy, seed, batch) for what in ("points", "rmse"))
    return f"{size:.0f}: {error:{how}}" if size == size else f"{error:{how}}"
