# %% [markdown]
# # First steps
#
# Fit a GP decoder to images of digits, look at its latent space, draw new images from it, and fill in missing pixels.
# Everything here runs on a laptop without internet.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from src import load
from src.estimators import BayesianSAS

digits = load_digits()
images = (digits.images / 16).astype(np.float32)  # [1797, 8, 8], from 0 to 1
train, test, train_labels, test_labels = train_test_split(images, digits.target, test_size=300, random_state=0)
greys = plt.get_cmap("gray").with_extremes(bad="#7fb2e5")  # missing pixels are blue


def strip(images: np.ndarray) -> np.ndarray:
    """Images [n, 8, 8] side by side, with a white margin."""
    return np.hstack(np.pad(images, ((0, 0), (1, 1), (1, 1)), constant_values=1))


# %% [markdown]
# ## Fit
#
# An estimator takes numpy arrays: images as `uint8` or as floats from 0 to 1, tables as floats. Its keywords are
# settings of the command line. This model is Bayesian SAS-GP: Gaussian latents $q(z)$ from an encoder, and a GP
# decoder trained with a new random active set of 200 points in each step.

# %%
model = BayesianSAS(latent_dim=2, active_set=200, max_epochs=100, seed=0, progress=False).fit(train)

# %% [markdown]
# The history has one row per epoch. The loss is the negative of the objective in nats per pixel; it is noisy, because
# each step has another active set. It has flattened after 100 epochs.

# %%
figure, axes = plt.subplots(figsize=(5, 2.5))
axes.plot(model.history_["loss"])
axes.set(xlabel="epoch", ylabel="loss, nats per pixel")
plt.show()

# %% [markdown]
# `score` is the mean log density per pixel of images, decoded from their latent means. The score of training images
# is optimistic, since the decoder conditions on 200 of them.

# %%
print(f"training images {model.score(train):.2f}, test images {model.score(test):.2f} nats per pixel")

# %% [markdown]
# ## Look
#
# `transform` gives the means of $q(z)$. The model never saw a label, and yet most digits have a region of their own.
# Test images (black edges) fall among the training images of their class, except where regions overlap.

# %%
z_train, z_test = model.transform(train), model.transform(test)
figure, axes = plt.subplots(figsize=(4.8, 4))
axes.scatter(*z_train.T, c=train_labels, cmap="tab10", s=6, alpha=0.5, linewidths=0)
points = axes.scatter(*z_test.T, c=test_labels, cmap="tab10", s=14, edgecolors="black", linewidths=0.5)
axes.set(xlabel="$z_1$", ylabel="$z_2$")
bar = figure.colorbar(points, label="digit")
bar.set_ticks(np.arange(0.45, 9, 0.9), labels=range(10))
plt.show()

# %% [markdown]
# `inverse_transform` decodes latent points. On a grid, the means show where the digits live, and how one turns into
# another.

# %%
grid = np.stack(np.meshgrid(np.linspace(-2, 2, 12), np.linspace(2, -2, 12)), -1).reshape(-1, 2)
rows = model.inverse_transform(grid)[:, 0].reshape(12, 12, 8, 8)
figure, axes = plt.subplots(figsize=(4, 4))
axes.imshow(np.vstack([strip(row) for row in rows]), cmap=greys, vmin=0, vmax=1, extent=(-2.2, 2.2, -2.2, 2.2))
axes.set(xlabel="$z_1$", ylabel="$z_2$")
plt.show()

# %% [markdown]
# A GP also knows where it knows nothing. The standard deviation of a pixel, averaged over each decoded image, is
# small near the training points (white) and grows to that of the data away from them, where the decoded images are
# all alike.

# %%
steps = np.linspace(-3, 3, 60)
_, sd = model.inverse_transform(np.stack(np.meshgrid(steps, steps), -1).reshape(-1, 2), return_std=True)
figure, axes = plt.subplots(figsize=(4.8, 4))
uncertainty = sd.mean((1, 2, 3)).reshape(60, 60)
shown = axes.pcolormesh(steps, steps, uncertainty)
axes.scatter(*z_train.T, s=1, color="white", alpha=0.5)
axes.set(xlabel="$z_1$", ylabel="$z_2$")
figure.colorbar(shown, label="mean sd of a pixel")
plt.show()

# %% [markdown]
# ## Move
#
# `model.trained` has what goes beyond scikit-learn. The straight line between two images may cross a region without
# data. The geodesic is the shortest curve under the expected metric of the decoder, and prefers regions that it
# knows.


# %%
def typical(digit: int) -> np.ndarray:
    """The training image whose latent mean is nearest to the median of its class."""
    z = z_train[train_labels == digit]
    return train[train_labels == digit][((z - np.median(z, 0)) ** 2).sum(1).argmin()]


ends = typical(2), typical(6)
straight = model.trained.interpolate(*ends, steps=11, path="straight")
geodesic = model.trained.interpolate(*ends, steps=11, path="geodesic")

# %% [markdown]
# Both paths lead from a typical 2 to a typical 6. On the left they lie on the uncertainty of before (dark: known):
# the geodesic keeps to the dark. On the right are the images that they pass; the mean sd of their pixels is lower
# along the geodesic.

# %%
figure = plt.figure(figsize=(10, 3.2), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=(2, 5))
axes = left.subplots()
axes.pcolormesh(steps, steps, uncertainty)
strips = right.subplots(2, 1)
paths = zip(("straight", "geodesic"), (straight, geodesic), ("white", "orange"), strips, strict=True)
for name, path, colour, row in paths:
    axes.plot(*path.z.T, marker=".", color=colour, label=name)
    row.imshow(strip(path.mean[:, 0]), cmap=greys, vmin=0, vmax=1)
    row.set_title(f"{name}: mean sd {np.sqrt(path.variance).mean():.3f}", fontsize=9)
    row.axis("off")
axes.set(xlim=(-1, 2.5), ylim=(-2.5, 1.5))
axes.legend(labelcolor="white", frameon=False)
plt.show()

# %% [markdown]
# ## Sample
#
# `sample` draws latents from the prior and images from the decoder: with the noise of the likelihood (top), or
# without it (bottom). A latent between two regions gives a mixture of two digits.

# %%
new = model.sample(12, seed=0)
figure, axes = plt.subplots(2, 1, figsize=(9, 1.8))
for row, drawn in zip(axes, (new.x, new.mean), strict=True):
    row.imshow(strip(drawn[:, 0]), cmap=greys, vmin=0, vmax=1)
    row.axis("off")
plt.show()

# %% [markdown]
# ## Impute
#
# NaN means missing, in `fit`, `transform`, `score` and `impute`. We hide a random half of the pixels of each test
# image. Two latent dimensions are for the eye; for predictions we fit another model with four.

# %%
hidden = np.random.default_rng(0).random(test.shape) < 0.5
holed = np.where(hidden, np.nan, test)
wider = BayesianSAS(latent_dim=4, active_set=200, max_epochs=100, progress=False).fit(train)
filled = wider.impute(holed)

# %% [markdown]
# From top to bottom: what the model sees, what it fills in, the standard deviation of what it fills in (black: 0,
# white: 0.5), and the truth.

# %%
sd = np.where(hidden, np.sqrt(filled.variance[:, 0]), 0)
rows = {"seen": holed, "filled in": filled.x[:, 0], "sd": 2 * sd, "truth": test}
figure, axes = plt.subplots(4, 1, figsize=(9, 3.8))
for row, (name, values) in zip(axes, rows.items(), strict=True):
    row.imshow(strip(values[:11]), cmap=greys, vmin=0, vmax=1)
    row.text(-1, 5, name, ha="right", va="center")
    row.axis("off")
plt.show()

# %% [markdown]
# Four dimensions have a lower error than two, and both beat the mean of the training images. Of hidden pixels, 95 %
# should lie within 1.96 standard deviations; fewer do, so these models are somewhat too sure of themselves.

# %%
print(f"mean of the training images: RMSE {np.sqrt(((train.mean(0) - test)[hidden] ** 2).mean()):.3f}")
for name, found in {"2 dimensions": model.impute(holed), "4 dimensions": filled}.items():
    error, sd = (found.mean[:, 0] - test)[hidden], np.sqrt(found.variance[:, 0][hidden])
    print(f"{name}: RMSE {np.sqrt((error**2).mean()):.3f}, within 1.96 sd {(np.abs(error) < 1.96 * sd).mean():.1%}")

# %% [markdown]
# ## Keep
#
# With `outputs="outputs"`, an estimator trains as a run of the command line does: recorded, resumed after an
# interruption, scored (here on its training data), with figures, and in the report. `load` finds it again by its
# folder.

# %%
kept = BayesianSAS(active_set=200, max_epochs=30, progress=False, outputs="outputs").fit(train)

# %%
run = load(kept.trained.folder)
run

# %% [markdown]
# Next: [your own table](your_own_table.ipynb), or [comparing models](comparing_models.ipynb).
