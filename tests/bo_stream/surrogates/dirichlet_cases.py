"""Labelled points, classifiers of them, and comparisons."""

import torch
from torch import Tensor

from bo_stream import DirichletClassifier
from bo_stream.testing.base import close

BOX = torch.tensor([[-1.0, 2.0], [1.0, 5.0]], dtype=torch.float64)
FAMILIES = {
    "wiski": {"grid_size": 9},
    "wiski on many nodes": {"grid_size": 23},  # 529: an eigenbasis pays from 500 on
    "hsgp": {"num_features": 40, "main_effects": False},
    "hsgp, features given": {
        "num_features": 40,
        "main_effects": False,
        "lengthscales": [0.3, 0.3],
    },
}
SMALL = ["wiski", "hsgp"]


def data(n: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three classes in stripes."""
    generator = torch.Generator().manual_seed(seed)
    U = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    X = BOX[0] + (BOX[1] - BOX[0]) * (0.02 + 0.96 * U)
    return X, (3.0 * U[:, 0] + 0.5 * (5.0 * U[:, 1]).sin()).clamp(0.0, 2.9).long()


def built(family: str, X: Tensor, y: object, **kw: object) -> DirichletClassifier:
    options = {**FAMILIES[family], **kw}
    name = family.split()[0].removesuffix(",")
    return DirichletClassifier(X, y, surrogate=name, bounds=BOX, **options)


def assert_alike(a: DirichletClassifier, b: DirichletClassifier, tolerance: float = 1e-10) -> None:
    """Evidence, joint latent posterior and probabilities, whatever the order of the classes."""
    Z, order = data(7, seed=9)[0], [b.classes.index(label) for label in a.classes]
    assert a.num_observed == b.num_observed and set(a.classes) == set(b.classes)
    close(a.log_evidence(), b.log_evidence(), tolerance)
    close(a.model.typical_noise(), b.model.typical_noise()[order], tolerance)
    for one, two in zip(a.latent(Z), b.latent(Z), strict=True):
        close(one, two[:, order], tolerance)
    close(a.predict_proba(Z, 4096), b.predict_proba(Z, 4096)[:, order], 1e-2)
    p = a.posterior(Z, output_indices=[0]).distribution.covariance_matrix
    close(p, b.posterior(Z, output_indices=[order[0]]).distribution.covariance_matrix, tolerance)


def varied(model: DirichletClassifier) -> DirichletClassifier:
    """With other hyperparameters for every class."""
    with torch.no_grad():
        kernel = model.model.covar_module
        spread = torch.linspace(0.7, 1.5, model.num_outputs, dtype=torch.float64)
        kernel.outputscale = spread.reshape(kernel.outputscale.shape)
        kernel.base_kernel.lengthscale = 0.3 * spread.reshape(-1, 1, 1)
    return model
