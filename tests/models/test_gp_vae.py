"""GP-VAE: Pearce's bound, whatever the order of the frames, and what it refuses."""

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

from src.data.images import Digits
from src.data.module import DataModule
from src.data.moving_ball import MovingBall
from src.gp.kernels import ObjectAngleKernel
from src.models.auxiliary import VideoTime
from src.models.gp_vae import GPVAE, product
from src.runs.errors import UserError
from src.runs.specs import make
from tests.configs import composed
from tests.models.builders import first_batch, started
from tests.models.rotated import OBJECTS, small_rotated_mnist


@pytest.fixture(scope="module")
def videos() -> MovingBall:
    data = MovingBall(batch_videos=3, steps_per_epoch=2, num_train_videos=4, num_test_videos=2)
    data.setup()
    return data


def built(data: DataModule, *overrides: str) -> GPVAE:
    model: GPVAE = started(data, "model=gp_vae", *overrides)
    return model


def test_the_divergence_is_the_printed_one(videos: MovingBall) -> None:
    """-KL = sum over videos and channels of log Z - E_q[log N(z | y, s2)], Pearce's two terms."""
    model, batch = built(videos).double(), first_batch(videos)
    order = batch.index.argsort()
    x = model.as_float(batch.x[order])
    pseudo = model.latents(x)
    y, s2 = (t.unflatten(0, (3, 30)).mT for t in (pseudo.mean, pseudo.variance))  # [videos, L, 30]
    k = model.kernel(torch.arange(30.0).double()[:, None]).to_dense()
    log_z = MultivariateNormal(torch.zeros(30).double(), k + s2.diag_embed()).log_prob(y).sum()
    gain = torch.linalg.solve(k + s2.diag_embed(), k).mT  # [videos, L, 30, 30]
    mean = (gain @ y.unsqueeze(-1)).squeeze(-1)
    variance = (k - gain @ k).diagonal(dim1=-2, dim2=-1)
    cross_entropy = (Normal(y, s2.sqrt()).log_prob(mean) - variance / (2 * s2)).sum()
    q, kl, _ = model.posterior(batch.x, batch.aux)
    torch.testing.assert_close(-kl, log_z - cross_entropy, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(q.mean[order], mean.mT.flatten(0, 1), rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(q.variance[order], variance.mT.flatten(0, 1), rtol=1e-8, atol=1e-9)


def test_the_order_of_the_frames_does_not_matter(videos: MovingBall) -> None:
    model, batch = built(videos), first_batch(videos)
    shuffle = torch.randperm(len(batch.x))
    q, kl, _ = model.posterior(batch.x, batch.aux)
    assert batch.aux is not None
    shuffled, same, _ = model.posterior(batch.x[shuffle], batch.aux[shuffle])
    torch.testing.assert_close(kl, same)
    torch.testing.assert_close(q.mean[shuffle], shuffled.mean)


def test_videos_that_are_not_whole_are_encoded_by_the_frames_there_are(videos: MovingBall) -> None:
    model = built(videos).double()
    x, aux = videos.test.x, videos.test.aux
    assert aux is not None
    part = torch.cat([torch.arange(30), torch.arange(35, 47)])
    q = model.encode(x[part], None, aux[part])
    torch.testing.assert_close(q.mean[:30], model.encode(x[:30], None, aux[:30]).mean)
    torch.testing.assert_close(q.variance[30:], model.encode(x[35:47], None, aux[35:47]).variance)


def test_frames_of_a_video_inform_each_other(videos: MovingBall) -> None:
    model, aux = built(videos), videos.test.aux
    assert aux is not None
    with torch.no_grad():
        together = model.encode(videos.test.x[:30], None, aux[:30]).variance
        alone = torch.cat([model.encode(videos.test.x[i : i + 1], None, aux[i : i + 1]).variance for i in range(30)])
    assert (together < alone).all()


def test_the_mean_over_batches_of_videos_is_the_loss_of_all(videos: MovingBall) -> None:
    """Videos share nothing, so with the same noise the loss of all is the mean of those of single videos."""
    model = built(videos).double()
    x, aux = videos.train.x, videos.train.aux
    assert aux is not None
    kls = [model.posterior(x[i : i + 30], aux[i : i + 30])[1] for i in range(0, 120, 30)]
    torch.testing.assert_close(torch.stack(kls).sum(), model.posterior(x, aux)[1])


def test_groups_are_the_frames_of_each_video() -> None:
    aux = torch.tensor([[7.0, 1], [3, 0], [7, 0], [3, 2], [3, 1]])
    rows = VideoTime().groups(aux, 5, aux.device)
    assert rows.tolist() == [[1, 3, 4], [0, 2, -1]]


def test_the_object_kernel_is_its_formula() -> None:
    torch.manual_seed(0)
    kernel = ObjectAngleKernel()
    assert kernel.lengthscale.item() == pytest.approx(1)
    kernel.lengthscale = 0.7
    a, b = 3 * torch.randn(4, 9).double(), 3 * torch.randn(5, 9).double()
    k = kernel(a, b).to_dense()
    for i in range(4):
        for j in range(5):
            periodic = torch.exp(-2 * torch.sin((a[i, 8] - b[j, 8]).abs() / 2) ** 2 / kernel.lengthscale.squeeze() ** 2)
            torch.testing.assert_close(k[i, j], periodic * (a[i, :8] @ b[j, :8]))
    torch.testing.assert_close(kernel(a, diag=True), kernel(a).to_dense().diagonal())
    turned = b + torch.tensor([0.0] * 8 + [2 * torch.pi], dtype=torch.float64)
    torch.testing.assert_close(kernel(a, turned).to_dense(), k)


def test_the_product_of_normals_is_bayes_rule() -> None:
    first, second = (Normal(torch.tensor([m]), torch.tensor([s])) for m, s in ((1.0, 2.0), (-1.0, 0.5)))
    both = product(*(torch.distributions.Independent(n, 1) for n in (first, second)))
    z = torch.linspace(-3, 3, 7)[:, None]
    difference = first.log_prob(z) + second.log_prob(z) - Normal(both.mean, both.stddev).log_prob(z)
    torch.testing.assert_close(difference, difference[:1].expand(7, 1), rtol=0, atol=1e-4)


def test_float32_is_near_float64(videos: MovingBall) -> None:
    model, batch = built(videos), first_batch(videos)
    torch.manual_seed(0)
    _, single, _ = model.posterior(batch.x, batch.aux)
    _, double, _ = model.double().posterior(batch.x, batch.aux)
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=0)


ROTATED = ("dataset=rotated_mnist", f"model.aux.num_objects={OBJECTS}")


def test_a_whole_set_is_one_gp_that_the_checkpoint_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_rotated_mnist(monkeypatch, "full")
    model, train = built(data, *ROTATED).double(), data.train
    model.objective(first_batch(data)).loss.backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    assert train.aux is not None and data.test.aux is not None
    with torch.no_grad():
        before = model.generate(data.test.aux)
        model.finalise(data)
        expected, _, _ = model.posterior(train.x, train.aux)
        seen = model.encode(train.x[:20], torch.arange(20), train.aux[:20])
        unseen = model.encode(data.test.x, None, data.test.aux)
        told = model.generate(data.test.aux)
    torch.testing.assert_close(seen.mean, expected.mean[:20])
    torch.testing.assert_close(seen.variance, expected.variance[:20])
    assert (
        (before.mean == 0).all() and (told.variance < before.variance).all() and (unseen.variance < told.variance).all()
    )


def test_a_set_that_is_too_large_or_comes_in_batches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_rotated_mnist(monkeypatch)
    with pytest.raises(UserError, match=r"exact GP of all 180 points at once.*dataset\.batch_size=full"):
        built(data, *ROTATED)
    spec = composed("model=gp_vae", *ROTATED)["model"]
    large: GPVAE = make(spec, shape=data.shape, num_data=60_000, _recursive_=False)
    with pytest.raises(UserError, match="at most 5000 points"):
        large.check(data)


def test_data_without_auxiliary_inputs_are_refused() -> None:
    data = Digits(batch_size=64, max_train=100, max_test=10)
    data.setup()
    with pytest.raises(UserError, match="GPVAE needs auxiliary inputs"):
        built(data)


def test_auxiliary_inputs_of_another_kind_are_refused(videos: MovingBall) -> None:
    with pytest.raises(UserError, match="only dataset=rotated_mnist has"):
        built(videos, "dataset=rotated_mnist")
