"""A seeded table with the structure of Parkinsons telemonitoring, in a random order of rows.

Each subject was seen many times over half a year. The score is linear in time between three visits
to a clinic, so that it is a smooth function of who and when, but nothing says which rows belong
together: sixteen noisy, heavy-tailed columns are hardly informative, and the rows come shuffled.
Block-sparse actions help only if they find the subjects by themselves.
"""

import torch
from torch import Tensor

COLUMNS = ("subject", "age", "sex", "day", *(f"voice{k}" for k in range(16)))
SESSION = 6
"""Recordings taken one after another."""


def telemonitoring(subjects: int = 42, sessions: int = 23, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs ``n x 20`` (`COLUMNS`) and scores ``n x 1``, ``n = subjects x sessions x 6``, raw
    units: years, days, points of the score.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    loading = 0.35 * normal(4, 16)
    parts = []
    for subject in range(subjects):
        day = torch.linspace(0.0, 180.0, sessions, dtype=torch.float64) + 2.0 * normal(sessions)
        day = day.repeat_interleave(SESSION) + 0.002 * normal(sessions * SESSION).abs()
        first, second, third = (29.0 + 10.5 * normal(1), *(4.0 * normal(2)))
        score = first + second * day / 90.0 + third * (day - 90.0).clamp_min(0.0) / 90.0
        about = [float(subject), float((65.0 + 9.0 * normal(1)).round()), float(normal(1) < -0.4)]
        voice = (0.7 * normal(1, 4) + normal(len(day), 4)) @ loading + 0.5 * normal(len(day), 16)
        voice[:, :12] = voice[:, :12].exp()
        known = [torch.full_like(day, value) for value in about]
        parts.append(torch.column_stack([*known, day, voice, score]))
    rows = torch.cat(parts)
    rows = rows[torch.randperm(len(rows), generator=generator)]
    return rows[:, :-1].contiguous(), rows[:, -1:].contiguous()
