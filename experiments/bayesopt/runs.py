"""One run of a study: a surrogate, or a peer, on one problem with one seed."""

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from botorch.utils.sampling import draw_sobol_samples

from acquisitions import build
from bo_stream.campaign.proposing.proposals import Optimiser
from bo_stream.simulation import BOLoop, LoopConfig
from bo_stream.surrogates.registry import in_loops
from experiments.bayesopt.peer_loop import PeerLoop
from experiments.bayesopt.peers.modelled import ModelPeer
from experiments.bayesopt.peers.registry import PEERS, peer
from experiments.common.baselines.registry import FAMILIES
from experiments.common.study import built, quiet
from problems import synthetic


@dataclass(frozen=True)
class BayesoptRun:
    """One surrogate, or a peer, on one problem with one seed; `config` holds seed and steps.

    Surrogate (or peer), problem and acquisition function are given by name and options. ``moved``
    among the problem's says whether its box is moved, by the seed; ``actions`` and ``growth`` among
    the surrogate's are given by the name and options of a policy. ``label`` is what tables call the
    surrogate; ``files`` stands for it in names of files, ``task`` for problem and acquisition,
    empty if the study has one of each.
    """

    label: str
    surrogate: dict[str, Any]
    problem: dict[str, Any]
    acquisition: dict[str, Any]
    config: LoopConfig
    files: str
    task: str = ""
    peer: bool = False

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        parts = (self.task, self.files, str(self.config.seed))
        return "_".join(part for part in parts if part)

    def loop(self) -> BOLoop | PeerLoop:
        """The loop, not started."""
        options, seed = dict(self.problem), self.config.seed
        moved = seed if options.pop("moved", False) else None
        problem = synthetic(**options, seed=seed, moved=moved)
        family = dict(self.surrogate)
        name = family.pop("name")
        if self.peer:
            if issubclass(PEERS[name], ModelPeer):  # it searches as hard as the surrogates do
                c = self.config
                family["optimiser"] = Optimiser(c.num_restarts, c.raw_samples, c.acqf_options)
            return PeerLoop(problem, partial(peer, name, **family), self.config)
        return BOLoop(problem, make_surrogate(name, family), self._build(problem), self.config)

    def execute(self, folder: Path) -> None:
        """Run it, after a throw-away step, so that no timing pays for imports."""
        with quiet():
            replace(self, config=replace(self.config, steps=1)).loop().run()
            loop = self.loop()
            loop.run()
        unsaid = ("config", "files", "task")
        about = {key: value for key, value in asdict(self).items() if key not in unsaid}
        loop.save(folder / f"{self.stem}.csv", **about)

    def _build(self, problem: Any) -> Any:
        options = dict(self.acquisition)
        if "mc_points" in options:
            n, seed = options["mc_points"], self.config.seed
            drawn = draw_sobol_samples(problem.bounds, n=n, q=1, seed=seed).squeeze(-2)
            options["mc_points"] = drawn
        return partial(build, options.pop("name"), **options)


def make_surrogate(name: str, options: dict[str, Any]) -> Any:
    """What makes a surrogate in a loop."""
    return partial(FAMILIES[name], **in_loops(name, built(options)))
