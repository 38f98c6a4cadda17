"""What the latent GPs are functions of: columns found by name, groups, and where inducing points start."""

import math

import pytest
import torch
from sklearn.decomposition import PCA

from src.data.batch import split_of
from src.data.facts import Facts
from src.models.auxiliary import Learned, ObjectAngle, VideoTime, columns, principal_scores
from src.runs.errors import UserError
from tests.models.builders import far_curve, little_views

VIEWS = Facts((6,), 12, 12, aux=("object", "angle"), objects=4)
BALL = Facts((6,), 8, 8, aux=("video", "time"), group="video", group_size=5)
TABLE = Facts((3,), 12, 12)


def test_an_input_is_the_vector_of_the_object_and_then_the_angle() -> None:
    aux = ObjectAngle(VIEWS, latent_dim=2, object_dim=2)
    with torch.no_grad():
        aux.vectors.copy_(torch.arange(8.0).reshape(4, 2))
    told = torch.tensor([[3.0, 0.5], [1.0, 2.5]])
    assert aux.size == 3
    torch.testing.assert_close(aux(torch.empty(2, 6), told), torch.tensor([[6.0, 7.0, 0.5], [2.0, 3.0, 2.5]]))


def test_columns_are_found_by_their_names_whatever_their_order() -> None:
    turned = Facts((6,), 12, 12, aux=("angle", "other", "object"), objects=4)
    aux, same = ObjectAngle(turned, 2, object_dim=2), ObjectAngle(VIEWS, 2, object_dim=2)
    with torch.no_grad():
        aux.vectors.copy_(torch.arange(8.0).reshape(4, 2))
        same.vectors.copy_(aux.vectors)
    x = torch.empty(1, 6)
    expected = same(x, torch.tensor([[3.0, 0.5]]))
    torch.testing.assert_close(aux(x, torch.tensor([[0.5, 9.0, 3.0]])), expected)
    assert [c.tolist() for c in columns(turned, torch.tensor([[0.5, 9.0, 3.0]]), "object", "angle")] == [[3.0], [0.5]]


def test_vectors_start_at_the_scores_of_the_objects_pictures() -> None:
    data = little_views()
    data.setup()
    assert data.objects is not None
    aux = ObjectAngle(data.facts, 2, object_dim=2)
    aux.initialise(data)
    pixels = data.objects.double() / 255
    u, s, v = torch.linalg.svd(pixels - pixels.mean(0), full_matrices=False)
    largest = v.gather(1, v.abs().argmax(1, keepdim=True)).squeeze(1)
    torch.testing.assert_close(aux.vectors.detach(), (u * s * largest.sign())[:, :2].float(), rtol=1e-4, atol=1e-5)
    reference = PCA(2).fit_transform(pixels.numpy())
    torch.testing.assert_close(principal_scores(data.objects, 2).abs(), torch.from_numpy(reference).float().abs())


def test_vectors_start_at_random_if_asked_for_by_the_seed_of_the_data() -> None:
    data = little_views()
    data.setup()
    many = Facts((6,), 12, 12, aux=("object", "angle"), objects=4000)
    aux, again = (ObjectAngle(many, 2, object_dim=2, start="random") for _ in range(2))
    torch.manual_seed(0)
    aux.initialise(data)
    torch.manual_seed(1)
    again.initialise(data)
    torch.testing.assert_close(aux.vectors, again.vectors)
    assert aux.vectors.std().item() == pytest.approx(1.5, rel=0.05)
    data.seed = 1
    again.initialise(data)
    assert not torch.equal(aux.vectors, again.vectors)
    with pytest.raises(UserError, match=r"model\.aux\.start=ones is neither pca nor random"):
        ObjectAngle(VIEWS, 2, start="ones")  # type: ignore[arg-type]


def test_more_dimensions_than_the_pictures_have_are_refused() -> None:
    data = little_views()
    data.setup()
    with pytest.raises(UserError, match=r"model\.aux\.object_dim=5 exceeds the 4 principal components"):
        ObjectAngle(data.facts, 2, object_dim=5).initialise(data)


def test_inducing_times_start_evenly_over_a_part_of_the_video() -> None:
    data = little_views()
    data.setup()
    for start, expected in ((None, [0.0, 2.0, 4.0]), ([1.0, 2.0], [1.0, 1.5, 2.0])):
        assert VideoTime(BALL, 2, start).inducing(3, data.train, torch.empty(0)).flatten().tolist() == expected
    for wrong in ([1.0], [2.0, 1.0], [-1.0, 2.0], [0.0, 5.0]):
        with pytest.raises(UserError, match="must be two times between 0 and 4, the earlier first"):
            VideoTime(BALL, 2, wrong)


def test_inducing_points_stand_in_turn_at_every_angle_near_training_objects() -> None:
    """Near: one normal number per point times N^(-1/5) of the sd of each column over the training views."""
    data = little_views()
    data.setup()
    aux = ObjectAngle(data.facts, 2, object_dim=2, num_angles=4)
    aux.initialise(data)
    torch.manual_seed(5)
    points = aux.inducing(6, data.train, torch.empty(12, 6))
    torch.testing.assert_close(points[:, 2], torch.tensor([0, 1, 2, 3, 0, 1]) * math.pi / 2)
    assert data.train.aux is not None
    torch.manual_seed(5)
    rows, normal = torch.randint(12, (6,)), torch.randn(6, 1)
    vectors = aux.vectors.detach()[data.train.aux[:, 0].long()]
    torch.testing.assert_close(points[:, :2], vectors[rows] + 12**-0.2 * vectors.std(0) * normal)


def test_points_share_one_function_unless_they_are_grouped() -> None:
    aux = ObjectAngle(VIEWS, 2)
    assert not aux.grouped and VideoTime.grouped
    assert aux.groups(None, 4, torch.device("cpu")).tolist() == [[0, 1, 2, 3]]


def test_groups_are_the_frames_of_each_video() -> None:
    aux = torch.tensor([[7.0, 1], [3, 0], [7, 0], [3, 2], [3, 1]])
    rows = VideoTime(BALL, latent_dim=2).groups(aux, 5, aux.device)
    assert rows.tolist() == [[1, 3, 4], [0, 2, -1]]


def test_the_input_of_a_frame_is_its_time_in_the_precision_of_the_image() -> None:
    aux = VideoTime(BALL, latent_dim=2)
    times = aux(torch.empty(2, 6, dtype=torch.float64), torch.tensor([[7.0, 1], [3, 4]]))
    assert times.tolist() == [[1.0], [4.0]] and times.dtype == torch.float64 and aux.size == 1


def test_inducing_times_cover_the_video_from_the_first_frame_to_the_last() -> None:
    aux = VideoTime(BALL, latent_dim=2)
    train = split_of(torch.zeros(8, 6))
    torch.testing.assert_close(aux.inducing(5, train, torch.empty(8, 6)).flatten(), torch.arange(5.0))
    torch.testing.assert_close(aux.inducing(3, train, torch.empty(8, 6)).flatten(), torch.tensor([0.0, 2.0, 4.0]))


def test_learned_inputs_start_with_mean_0_and_variance_1() -> None:
    torch.manual_seed(0)
    aux, x = Learned(TABLE, latent_dim=2, hidden=[7]), far_curve(12)
    inducing = aux.inducing(4, split_of(x), x)
    inputs = aux(x, None)
    assert aux.size == 2 and inputs.shape == (12, 2)
    torch.testing.assert_close(inputs.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(inputs.std(0), torch.ones(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(inducing, inputs[:4].detach())


def test_columns_that_are_missing_are_named() -> None:
    with pytest.raises(
        UserError, match="needs the auxiliary columns object and angle; the dataset has none, so no object"
    ):
        ObjectAngle(TABLE, 2)
    with pytest.raises(UserError, match="the dataset has object and angle, so no video"):
        VideoTime(VIEWS, 2)
    with pytest.raises(UserError, match="the dataset has video and time, so no angle"):
        columns(BALL, None, "time", "angle")
    with pytest.raises(UserError, match="needs the auxiliary columns of its points: video and time"):
        VideoTime(BALL, 2)(torch.empty(2, 6), None)
    with pytest.raises(UserError, match="would ignore the auxiliary columns object and angle"):
        Learned(VIEWS, 2)
