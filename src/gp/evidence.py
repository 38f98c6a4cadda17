"""The marginal likelihood log N(x | 0, K) of a GP, summed over outputs that share K. Eq. 2 of the SAS paper.

The direct form is for training: its gradient needs no second factorisation. The blocked form is for the evaluation of
tens of thousands of points: its one Cholesky factor takes half the memory of the covariance.
"""

import math
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.autograd.function import once_differentiable

from src.gp.linalg import cholesky, solve_lower, strict_cholesky
from src.runs.bars import bar

LOG_2PI = math.log(2 * math.pi)
COLUMNS = 1024  # of the factor at a time: wide enough for the products to run at the machine's speed
BAR = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"


def gaussian_log_density(log_det: Tensor, squares: Tensor, num_points: int, num_outputs: int) -> Tensor:
    """sum_d log N(x_d | 0, K), Eq. 2, from log|K| and `squares` = tr(x^T K^-1 x)."""
    return -0.5 * (num_outputs * log_det + squares + num_points * num_outputs * LOG_2PI)


def log_density(x: Tensor, k: Tensor) -> tuple[Tensor, float]:
    """sum_d log N(x_d | 0, K) of x [N, D] and K [N, N], Eq. 2, and the jitter it took.

    O(N^3); through the factor's own gradient it takes almost three times as long and half as much memory again.
    """
    with torch.no_grad():
        chol, jitter = cholesky(k)
    return LogDensity.apply(x, k, chol), jitter


class LogDensity(torch.autograd.Function):
    """With alpha = K^-1 x the gradient is d/dK = (alpha alpha^T - D K^-1) / 2; x is data and has none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: Tensor, chol: Tensor) -> Tensor:
        """Eq. 2."""
        alpha = torch.cholesky_solve(x, chol)
        ctx.save_for_backward(alpha, chol)
        log_det = 2 * chol.diagonal().log().sum()
        return gaussian_log_density(log_det, (x * alpha).sum(), *x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        """One inverse from the factor, and one product."""
        alpha, chol = ctx.saved_tensors
        inverse = torch.cholesky_inverse(chol)
        return None, torch.addmm(inverse, alpha, alpha.mT, beta=-alpha.shape[1]).mul_(grad / 2), None


@torch.no_grad()
def blocked_log_density(x: Tensor, z: Tensor, kernel: Kernel, noise: Tensor, columns: int = COLUMNS) -> float:
    """sum_d log N(x_d | 0, K + noise I), Eq. 2, of x [N, D] at z [N, Q] in their precision, `columns` at a time.

    O(N^3 / 3 + N^2 D) time and N^2 / 2 numbers: a block of columns is filled when its turn comes, and only the part
    below its diagonal block is kept. x is overwritten. There is no jitter: the value is that of this noise.
    """
    num_data, num_outputs = x.shape
    done: list[Tensor] = []  # blocks of the factor, each below its diagonal block
    log_det = squares = x.new_zeros((), dtype=torch.float64)
    with bar(None, "exact evidence", blocked_work(num_data, columns), bar_format=BAR, leave=True) as work:
        for start in range(0, num_data, columns):
            block = covariance_block(z[start:], kernel, noise, columns)  # [N - start, b]
            for earlier in done:
                rows = earlier[len(earlier) - len(block) :]
                block.addmm_(rows, rows[: block.shape[1]].mT, alpha=-1)
                work.update(len(block))
            work.update(len(block))
            chol = strict_cholesky(block[: block.shape[1]])
            block = torch.linalg.solve_triangular(chol.mT, block[len(chol) :], upper=True, left=False)  # frees the rest
            whitened = solve_lower(chol, x[start : start + len(chol)])
            x[start + len(chol) :].addmm_(block, whitened, alpha=-1)
            log_det = log_det + 2 * chol.diagonal().log().sum(dtype=torch.float64)
            squares = squares + whitened.square().sum(dtype=torch.float64)
            done.append(block)
    return gaussian_log_density(log_det, squares, num_data, num_outputs).item()


def blocked_work(num_data: int, columns: int) -> int:
    """The number of rows of products of the blocked form, all of which take the same time."""
    return sum((num_data - start) * (done + 1) for done, start in enumerate(range(0, num_data, columns)))


def blocked_memory(num_data: int, num_outputs: int, dtype: torch.dtype) -> int:
    """The bytes that the blocked form takes: half of K, four blocks of columns while one is made, and x."""
    return (num_data**2 // 2 + 4 * num_data * COLUMNS + num_data * num_outputs) * dtype.itemsize


def covariance_block(z: Tensor, kernel: Kernel, noise: Tensor, columns: int) -> Tensor:
    """The first columns of K + noise I at z, filled a square at a time, since kernels make several copies."""
    block = torch.cat([kernel(rows, z[:columns]).to_dense() for rows in z.split(columns)])
    block.diagonal().add_(noise)
    return block
