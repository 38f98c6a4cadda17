"""Rotated MNIST is the published dataset, image for image, and what is tested is never trained on."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage

from src.data import rotated_mnist
from src.data.batch import Split
from src.data.fetching import idx_bytes
from src.data.rotated_mnist import RotatedMNIST, draw, rotations
from src.models.auxiliary import principal_scores
from src.runs.errors import UserError
from tests.configs import composed

Reference = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def threes(data_root: Path, data_file: Callable[[str], Path]) -> RotatedMNIST:
    data_file(RotatedMNIST.files.folder)
    data = RotatedMNIST(data_root, batch_size=256)
    data.setup()
    return data


@pytest.fixture(scope="module")
def reference(data_file: Callable[[str], Path]) -> Reference:
    with np.load(data_file("rotated_mnist3_reference.npz")) as file:
        return dict(file)


@pytest.fixture
def two_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RotatedMNIST:
    """Ten objects, of which eight in the pool, of 6 and of 3, from noise in place of MNIST."""
    rng = np.random.default_rng(0)
    images, digits = rng.integers(0, 256, (600, 28, 28), np.uint8), rng.integers(0, 10, 600, np.uint8)
    files = {"train-images-idx3-ubyte": idx_bytes(images), "train-labels-idx1-ubyte": idx_bytes(digits)}
    monkeypatch.setattr(RotatedMNIST, "contents", lambda self: files)
    monkeypatch.setattr(rotated_mnist, "OBJECTS", 10)
    monkeypatch.setattr(rotated_mnist, "POOL", 8)
    data = RotatedMNIST(tmp_path, batch_size=4, digits=[6, 3])
    data.setup()
    return data


def parts(split: Split) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, objects and angles."""
    assert split.aux is not None and split.aux.dtype == split.storage.dtype == torch.float32
    objects, angles = split.aux.numpy().T
    return split.all().x.numpy(), objects, angles


def labels(split: Split) -> list[int]:
    assert split.y is not None and split.y.dtype == torch.int64
    return split.y.tolist()


def assert_is_reference(split: Split, images: np.ndarray, aux: np.ndarray) -> None:
    x, objects, angles = parts(split)
    assert np.array_equal(objects, aux[:, 0])
    assert np.array_equal(angles, aux[:, 1].astype(np.float32))
    np.testing.assert_allclose(x[:, 0], images[..., 0], rtol=0, atol=1e-6)


def test_test_and_eval_are_the_published_files(threes: RotatedMNIST, reference: Reference) -> None:
    assert_is_reference(threes.test, reference["test_images"], reference["test_aux"])
    assert_is_reference(threes.eval, reference["eval_images"], reference["eval_aux"])


def test_training_has_the_published_views(threes: RotatedMNIST, reference: Reference) -> None:
    _, objects, angles = parts(threes.train)
    seen = np.delete(np.radians(22.5 * np.arange(16)).astype(np.float32), 7)
    mask = np.zeros((360, 15), bool)
    mask[objects.astype(int), np.searchsorted(seen, angles)] = True
    assert np.array_equal(mask.ravel(), reference["train_mask"])


def test_training_images_are_the_objects_turned(threes: RotatedMNIST) -> None:
    x, objects, angles = parts(threes.train)
    for row in (0, 1, 4049):
        image = threes.objects[int(objects[row])].numpy() / 255
        turned = ndimage.rotate(image, np.degrees(angles[row].astype(float)), reshape=False)
        np.testing.assert_allclose(x[row, 0], turned, rtol=0, atol=1e-5)


def test_scores_are_the_published_ones_up_to_sign(threes: RotatedMNIST, reference: Reference) -> None:
    scores, published = principal_scores(threes.objects, 8).numpy(), reference["object_pca"]
    aligned = scores * np.sign((scores * published).sum(0))
    np.testing.assert_allclose(aligned, published, rtol=0, atol=0.0085)
    np.testing.assert_allclose(aligned[:, :4], published[:, :4], rtol=0, atol=1e-3)


def test_the_counts_of_digit_3(threes: RotatedMNIST) -> None:
    assert [len(split) for split in (threes.train, threes.test, threes.eval)] == [4050, 270, 640]
    x = threes.train.all().x
    assert threes.facts.shape == (1, 28, 28) and threes.objects.shape == (400, 28, 28)
    assert x.min() < -0.2 and x.max() > 1.2  # not clipped


def test_a_single_digit_is_labelled_by_object(threes: RotatedMNIST) -> None:
    for split in (threes.train, threes.test, threes.eval):
        assert labels(split) == parts(split)[1].tolist()


def test_the_draws_are_those_of_pythons_random_in_the_published_order() -> None:
    random.seed(0)
    images = random.sample(range(6131), 400)
    test_angle = random.sample(list(np.linspace(0, 360, 17)[:-1]), 1)[0]
    train, test = random.sample(range(5400), 4050), random.sample(range(360), 270)
    draws = draw([6131])
    assert test_angle == 157.5 and draws.images == [images]
    assert draws.test.tolist() == [[row, 7] for row in test]
    assert [15 * row + angle - (angle > 7) for row, angle in draws.train.tolist()] == train


def test_what_is_tested_is_never_trained_on() -> None:
    draws = draw([6131, 5918])
    (test_angle,) = set(draws.test[:, 1].tolist())
    assert set(draws.train[:, 1].tolist()) == set(range(16)) - {test_angle}
    assert not set(draws.eval[:, 0].tolist()) & set(torch.cat([draws.train, draws.test])[:, 0].tolist())
    for views in draws[1:]:
        assert isinstance(views, torch.Tensor) and len(views.unique(dim=0)) == len(views)


def test_rotation_in_a_stack_is_rotation_of_each_image() -> None:
    objects = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8))
    stack = rotations(objects)
    assert stack.shape == (3, 16, 28, 28) and stack.dtype == torch.float32
    for row, k in ((0, 0), (1, 4), (2, 11)):
        alone = ndimage.rotate(objects[row].numpy() / 255, 22.5 * k, reshape=False)
        np.testing.assert_allclose(stack[row, k], alone, rtol=0, atol=1e-6)
    np.testing.assert_allclose(stack[0, 0], objects[0] / 255, rtol=0, atol=1e-6)


def test_every_digit_has_its_own_objects(two_digits: RotatedMNIST) -> None:
    assert [len(s) for s in (two_digits.train, two_digits.test, two_digits.eval)] == [180, 12, 64]
    for split, places in ((two_digits.train, range(8)), (two_digits.test, range(8)), (two_digits.eval, (8, 9))):
        objects = parts(split)[1].astype(int)
        assert {object % 10 for object in objects} <= set(places)
        assert labels(split) == np.where(objects < 10, 6, 3).tolist()
    assert len(np.unique(parts(two_digits.test)[2])) == 1


def test_scores_are_the_projections_on_the_principal_axes(two_digits: RotatedMNIST) -> None:
    pixels = two_digits.objects.flatten(1).numpy() / 255
    _, _, axes = np.linalg.svd(pixels - pixels.mean(0), full_matrices=False)
    axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])[:, None]
    expected = (pixels - pixels.mean(0)) @ axes[:5].T
    np.testing.assert_allclose(principal_scores(two_digits.objects, 5), expected, rtol=0, atol=1e-5)


def test_the_dataset_does_not_depend_on_the_seed(two_digits: RotatedMNIST) -> None:
    again = RotatedMNIST(two_digits.root, batch_size=4, digits=[6, 3], seed=1)
    again.setup()
    for first, second in ((two_digits.train, again.train), (two_digits.test, again.test)):
        assert first.aux is not None and second.aux is not None
        assert torch.equal(first.all().x, second.all().x) and torch.equal(first.aux, second.aux)


def test_batches_keep_images_and_views_together(two_digits: RotatedMNIST) -> None:
    for batch in two_digits.train_dataloader():
        assert batch.aux is not None and two_digits.train.aux is not None
        assert torch.equal(batch.aux, two_digits.train.aux[batch.index])
        assert torch.equal(batch.x, two_digits.train.all().x[batch.index])


@pytest.mark.parametrize("digits", [[], [3, 3], [10], [-1, 3]])
def test_digits_that_do_not_exist_are_refused(digits: list[int]) -> None:
    with pytest.raises(UserError, match=r"dataset\.digits=.* must be some of the digits 0 to 9"):
        RotatedMNIST("data", batch_size=256, digits=digits)


def test_the_config_is_the_published_setting() -> None:
    config = composed("dataset=rotated_mnist")
    assert config["trainer"]["max_epochs"] == 1000
    assert config["dataset"]["digits"] == [3] and config["dataset"]["batch_size"] == 256
