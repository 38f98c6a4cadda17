import pytest
import torch

from src.gp.linalg import JITTER_LADDER, NotPositiveDefiniteError, add_diagonal, cholesky, solve_lower, solve_upper


def test_a_good_matrix_gets_no_jitter() -> None:
    k = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    factor, jitter = cholesky(k)
    torch.testing.assert_close(factor @ factor.mT, k)
    assert jitter == 0


def test_a_singular_matrix_climbs_the_ladder_relative_to_its_scale() -> None:
    vector = torch.linspace(1, 2, 50)[:, None]
    for scale in (1e-4, 1.0, 1e4):
        k = scale * vector @ vector.mT
        factor, jitter = cholesky(k)
        assert jitter in JITTER_LADDER[1:]
        torch.testing.assert_close(factor @ factor.mT, k, rtol=0, atol=2 * jitter * k.diagonal().mean().item())


@pytest.mark.parametrize("bad", [-torch.eye(3), torch.full((3, 3), torch.nan)])
def test_a_hopeless_matrix_gives_up_with_its_size_and_scale(bad: torch.Tensor) -> None:
    with pytest.raises(NotPositiveDefiniteError, match=r"3 x 3 .* mean diagonal (-1|nan)"):
        cholesky(bad)


def test_triangular_solves_and_the_diagonal() -> None:
    k = torch.tensor([[4.0, 2.0], [2.0, 3.0]], dtype=torch.float64)
    b = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    chol, _ = cholesky(k)
    torch.testing.assert_close(chol @ solve_lower(chol, b), b)
    torch.testing.assert_close(chol.mT @ solve_upper(chol.mT, b), b)
    torch.testing.assert_close(add_diagonal(k, 0.5), k + 0.5 * torch.eye(2, dtype=torch.float64))
