"""log p(x | z) of tens of thousands of points, exactly: one Cholesky factor in half the memory of the covariance."""

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from tqdm import tqdm

from src.gp.active_set import LOG_2PI
from src.gp.linalg import NotPositiveDefiniteError, solve_lower

BLOCK = 1024  # columns at a time: wide enough for the products to run at the machine's speed
BAR = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"


@torch.no_grad()
def log_evidence(x: Tensor, z: Tensor, kernel: Kernel, noise: Tensor, block: int = BLOCK) -> float:
    """sum_d log N(x_d | 0, K + noise I), Eq. 2 of the SAS paper, of x [N, D] at z [N, Q] in their precision.

    O(N^3 / 3 + N^2 D) time and N^2 / 2 numbers: of every block of columns, filled when its turn comes, only what lies
    below its diagonal block is kept. x is overwritten. There is no jitter: the value is that of this noise.
    """
    num_data, num_outputs = x.shape
    columns: list[Tensor] = []  # of the factor, below their diagonal blocks
    log_det = squares = 0.0
    with tqdm(total=amount(num_data, block), desc="exact evidence", bar_format=BAR, disable=None) as bar:
        for start in range(0, num_data, block):
            column = covariance_column(z[start:], kernel, noise, block)  # [N - start, b]
            for earlier in columns:
                rows = earlier[len(earlier) - len(column) :]
                column.addmm_(rows, rows[: column.shape[1]].mT, alpha=-1)
                bar.update(len(column))
            chol = factor(column[: column.shape[1]])
            column = torch.linalg.solve_triangular(chol.mT, column[len(chol) :], upper=True, left=False)
            whitened = solve_lower(chol, x[start : start + len(chol)])
            x[start + len(chol) :].addmm_(column, whitened, alpha=-1)
            log_det += 2 * chol.diagonal().log().sum(dtype=torch.float64).item()
            squares += whitened.square().sum(dtype=torch.float64).item()
            columns.append(column)
            bar.update(len(column) + len(chol))
    return -0.5 * (num_outputs * log_det + squares + num_data * num_outputs * LOG_2PI)


def amount(num_data: int, block: int) -> int:
    """How many rows of products there are, all of which take the same time."""
    return sum((num_data - start) * (done + 1) for done, start in enumerate(range(0, num_data, block)))


def memory(num_data: int, num_outputs: int, dtype: torch.dtype) -> int:
    """The bytes that it takes: half of K, four blocks of columns while one is made, and x."""
    return (num_data**2 // 2 + 4 * num_data * BLOCK + num_data * num_outputs) * dtype.itemsize


def covariance_column(z: Tensor, kernel: Kernel, noise: Tensor, block: int) -> Tensor:
    """The first `block` columns of K + noise I at z, filled a square at a time: kernels make several copies."""
    column = torch.cat([kernel(rows, z[:block]).to_dense() for rows in z.split(block)])
    column.diagonal().add_(noise)
    return column


def factor(k: Tensor) -> Tensor:
    """The Cholesky factor of a diagonal block."""
    try:
        return torch.linalg.cholesky(k)
    except torch.linalg.LinAlgError as error:
        raise NotPositiveDefiniteError(f"the covariance is not positive definite in {k.dtype}") from error
