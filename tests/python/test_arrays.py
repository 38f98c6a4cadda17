"""What comes in: numpy or torch, one or many, bytes or floats, columns by name; and the sentence for what cannot."""

import numpy as np
import pytest
import torch

from src.data.facts import Facts
from src.python.arrays import aux_of, in_units, latent_points, observations
from src.runs.errors import UserError

GREY = Facts(shape=(1, 4, 5), num_train=10, batch_size=5, levels=256)
COLOUR = Facts(shape=(3, 4, 5), num_train=10, batch_size=5)
TABLE = Facts(
    shape=(2,), num_train=10, batch_size=5, scale="table", columns=("a", "b"), centre=(1.0, 2.0), spread=(2.0, 4.0)
)


@pytest.mark.parametrize(
    ("shape", "single", "count"),
    [((1, 4, 5), True, 1), ((4, 5), True, 1), ((7, 1, 4, 5), False, 7), ((7, 4, 5), False, 7), ((0, 4, 5), False, 0)],
)
def test_grey_images_may_come_with_and_without_their_channel(shape: tuple[int, ...], single: bool, count: int) -> None:
    batch, kind = observations(np.zeros(shape, np.float32), GREY)
    assert batch.x.shape == (count, 1, 4, 5) and kind.single == single and kind.numpy


@pytest.mark.parametrize("shape", [(5, 4), (7, 5, 4), (20,), (7, 20), (2, 3, 4, 5), ()])
def test_other_shapes_are_refused_with_the_shape_that_fits(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"takes \[1, 4, 5\] or, for n points, \[n, 1, 4, 5\]"):
        observations(np.zeros(shape, np.float32), GREY)


def test_colour_images_need_their_channels() -> None:
    with pytest.raises(UserError, match=r"\[4, 5\]"):
        observations(np.zeros((4, 5), np.float32), COLOUR)


def test_bytes_stay_bytes_and_other_integers_are_refused() -> None:
    assert observations(np.zeros((4, 5), np.uint8), GREY)[0].x.dtype == torch.uint8
    with pytest.raises(UserError, match=r"uint8 .* or floats from 0 to 1, not int64"):
        observations(np.zeros((4, 5), np.int64), GREY)
    with pytest.raises(UserError, match="not numbers"):
        observations(np.array([["a"]]), GREY)


def test_floats_up_to_255_are_refused_with_what_to_do() -> None:
    with pytest.raises(UserError, match=r"from 0 to 255: divide them by 255, or pass them as uint8"):
        observations(np.full((4, 5), 200.0), GREY)
    observations(torch.full((4, 5), 200.0) - 300, GREY)  # negative values are no intensities at all


def test_nan_and_a_false_mask_are_missing() -> None:
    x = np.zeros((2, 4, 5), np.float32)
    assert observations(x, GREY)[0].mask is None
    x[0, 1, 2] = np.nan
    mask = np.ones((2, 4, 5), bool)
    mask[1, 3, 3] = False
    found = observations(x, GREY, mask)[0].mask
    assert found is not None
    assert (~found).nonzero().tolist() == [[0, 0, 1, 2], [1, 0, 3, 3]]
    with pytest.raises(UserError, match="mask has 1 rows, but x has 2"):
        observations(x, GREY, mask[0])
    with pytest.raises(UserError, match="infinite values, first in row 1"):
        observations(np.where(mask, 0, np.inf), GREY)


def test_columns_are_standardised_found_by_name_and_given_back_in_their_units() -> None:
    pandas = pytest.importorskip("pandas")
    rows = np.array([[3.0, 10.0], [1.0, 2.0]])
    batch, _ = observations(rows, TABLE)
    assert batch.x.tolist() == [[1.0, 2.0], [0.0, 0.0]]
    frame = pandas.DataFrame(rows[:, ::-1], columns=["b", "a"])
    assert torch.equal(observations(frame, TABLE)[0].x, batch.x)
    assert torch.equal(in_units(batch.x, TABLE), torch.as_tensor(rows))
    assert in_units(torch.ones(1, 2), TABLE, power=2).tolist() == [[4.0, 16.0]]
    with pytest.raises(UserError, match="lacks columns that the model was trained on: b"):
        observations(frame[["a"]], TABLE)
    assert observations(np.array([3, 10], np.uint8), TABLE)[0].x.tolist() == [[1.0, 2.0]]  # plain numbers, no bytes


def test_answers_are_of_the_kind_that_came_in() -> None:
    for x, kind in ((np.zeros((4, 5), np.float32), np.ndarray), (torch.zeros(4, 5), torch.Tensor)):
        answer = observations(x, GREY)[1].answer(torch.ones(1, 3))
        assert isinstance(answer, kind) and answer.shape == (3,)


def test_latent_points_are_one_or_many() -> None:
    assert latent_points([1.0, 2.0], 2)[0].tolist() == [[1.0, 2.0]]
    assert latent_points(np.zeros((5, 2)), 2)[0].shape == (5, 2)
    with pytest.raises(
        UserError, match=r"z has the shape \[3\], but latent points are \[2\] or, for n of them, \[n, 2\]"
    ):
        latent_points(np.zeros(3), 2)
    with pytest.raises(UserError, match="not finite"):
        latent_points([np.nan, 0.0], 2)


def test_auxiliary_columns_are_needed_or_refused() -> None:
    views = Facts(shape=(1, 4, 5), num_train=10, batch_size=5, aux=("object", "angle"))
    with pytest.raises(UserError, match=r"needs aux=\[n, 2\], the columns object, angle"):
        aux_of(None, views, 3)
    with pytest.raises(UserError, match="leave aux out"):
        aux_of(np.zeros((3, 2)), GREY, 3)
    with pytest.raises(UserError, match=r"3 points need \[3, 2\]"):
        aux_of(np.zeros((2, 2)), views, 3)
    assert aux_of(np.zeros(2), views, 1).shape == (1, 2)  # type: ignore[union-attr]
