"""The online sparse GP as MATHS 3.1 states it, unwhitened, in 60 digits: slow and obvious.

State: the likelihood ``l(a) = exp(-1/2 (a - m)'Lambda(a - m) + eta'(a - m))`` of the values a at Z,
and its log normaliser under the prior it was formed with. Every bound is the Gaussian integral it
stands for.
"""

# ruff: noqa: E741

from dataclasses import dataclass, field

import mpmath as mp
import numpy as np
import torch


@dataclass
class SE:
    """Squared-exponential ARD kernel with amplitude ``os``."""

    os: float
    ls: list[float]

    def __call__(self, X, Z):
        K = mp.matrix(len(X), len(Z))
        for i, x in enumerate(X):
            for j, z in enumerate(Z):
                pairs = zip(x, z, self.ls, strict=True)
                r2 = sum(((mp.mpf(a) - mp.mpf(b)) / mp.mpf(l)) ** 2 for a, b, l in pairs)
                K[i, j] = mp.mpf(self.os) * mp.exp(-r2 / 2)
        return K


@dataclass
class Oracle:
    """``Z``, ``Lambda``, ``eta`` under ``kernel`` and prior mean ``m``; ``kept`` rows share their
    jitter.
    """

    jitter: float = 1e-8
    Z: list = field(default_factory=list)
    kernel: SE | None = None
    m: float = 0.0
    Lambda: mp.matrix = field(default_factory=lambda: mp.matrix(0, 0))
    eta: mp.matrix = field(default_factory=lambda: mp.matrix(0, 1))
    kappa: mp.mpf = mp.mpf(0)
    bounds: list = field(default_factory=list)

    def prior(self, kernel, Z):
        K = kernel(Z, Z)
        for i in range(len(Z)):
            K[i, i] += mp.mpf(self.jitter) * mp.mpf(kernel.os)
        return K

    def observe(self, X, y, d, Z, kernel, m=0.0):
        """Absorb a batch; ``Z`` rows equal to old ones are the kept points."""
        n, M_a, M_b = len(X), len(self.Z), len(Z)
        K_bb = self.prior(kernel, Z)
        K_inv = inverse(K_bb)
        P = mp.matrix(M_a, M_b)  # K_ab K_bb^-1
        dropped = []
        for i, z in enumerate(self.Z):
            if z in Z:
                P[i, Z.index(z)] = 1
            else:
                dropped.append(i)
                row = kernel([z], Z) * K_inv
                for j in range(M_b):
                    P[i, j] = row[0, j]
        K_fb = kernel(X, Z)
        R = K_fb * K_inv
        e = mp.matrix([mp.mpf(v) - mp.mpf(m) for v in y]) if n else mp.matrix(0, 1)
        d = [mp.mpf(v) for v in d]
        D_inv = mp.diag([1 / v for v in d]) if n else mp.matrix(0, 0)
        const = mp.mpf(0)
        if M_a:
            shift = mp.matrix([mp.mpf(m) - mp.mpf(self.m)] * M_a)
            eta_o = self.eta - self.Lambda * shift
            const = (self.eta.T * shift)[0] - (shift.T * self.Lambda * shift)[0] / 2
        Lambda, eta = mp.matrix(M_b, M_b), mp.matrix(M_b, 1)
        if n and M_b:
            Lambda, eta = Lambda + R.T * D_inv * R, eta + R.T * D_inv * e
        if M_a and M_b:
            Lambda, eta = Lambda + P.T * self.Lambda * P, eta + P.T * eta_o
        bound = const - self.kappa
        for i in range(n):
            q_ii = (K_fb[i, :] * K_inv * K_fb[i, :].T)[0]
            bound -= mp.log(2 * mp.pi * d[i]) / 2 + e[i] ** 2 / d[i] / 2
            bound -= (mp.mpf(kernel.os) - q_ii) / d[i] / 2
        for i in dropped:
            for j in dropped:
                k_ij = kernel([self.Z[i]], [self.Z[j]])[0]
                q_ij = (kernel([self.Z[i]], Z) * K_inv * kernel(Z, [self.Z[j]]))[0]
                bound -= self.Lambda[i, j] * (k_ij - q_ij) / 2
        kappa = mp.mpf(0)
        if M_b:  # log int N(b; m, K_bb) l(b) db
            S = inverse(K_inv + Lambda)
            kappa = (eta.T * S * eta)[0] / 2 + mp.log(mp.det(S * K_inv)) / 2
        self.Z, self.kernel, self.m = [list(z) for z in Z], kernel, m
        self.Lambda, self.eta, self.kappa = Lambda, eta, kappa
        self.bounds.append(bound + kappa)
        return self

    def predict(self, Xs):
        """Mean and covariance as float64 tensors."""
        K_inv = inverse(self.prior(self.kernel, self.Z))
        S = inverse(K_inv + self.Lambda)
        K_sb = self.kernel(Xs, self.Z)
        W = K_sb * K_inv
        mean = [v + mp.mpf(self.m) for v in W * S * self.eta]
        cov = self.kernel(Xs, Xs) - W * K_sb.T + W * S * W.T
        return to_tensor(mean), to_tensor(cov)


def inverse(K):
    return K**-1 if K.rows else K


def to_tensor(values):
    """mpmath matrix or list to a float64 tensor."""
    if isinstance(values, mp.matrix):
        rows = np.array(values.tolist(), dtype=float).reshape(values.rows, values.cols)
        return torch.from_numpy(rows)
    return torch.tensor([float(v) for v in values], dtype=torch.float64)
