# %% [markdown]
# # Your own table
#
# Fit a GP decoder to a table with missing values: see how the rows are related, how each column varies over the
# latent plane, and what the missing values are likely to be. Replace `cells.csv` by a file of your own and the rest
# stays the same.
#
# The table is gene expression of 437 cells of mouse embryos (qPCR; Guo et al., 2010): 48 genes, and the stage of
# development from 1 to 64 cells. `prepare` downloads the file once, into `data/` or the folder named by the
# environment variable `GP_DECODERS_DATA`. Without internet, run it elsewhere and copy that folder.

# %%
# !python -m src.prepare qpcr | cut -d " " -f 1-4

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from src import load

data = Path(os.environ.get("GP_DECODERS_DATA", "data"))
truth = pd.read_csv(data / "tables" / "guo_qpcr.csv", index_col=0).rename_axis("stage").reset_index()
genes = list(truth.columns[1:])
truth.iloc[[0, 100, 200, 300, 400], :7].round(2)

# %% [markdown]
# To have something to fill in, we lose a tenth of the values at random. Empty cells of the file are missing values.

# %%
lost = np.random.default_rng(0).random((len(truth), len(genes))) < 0.1
cells = truth.copy()
cells[genes] = cells[genes].mask(lost)
cells.to_csv("cells.csv", index=False)
print(f"{lost.sum()} of {lost.size} values are missing")

# %% [markdown]
# ## Train
#
# The command line reads the file, standardises each column over its observed values, and holds out a tenth of the
# rows as test data. All numeric columns are observations; `dataset.label` names a column of classes, which the model
# never sees.

# %%
# !python -m src.train model=bayesian_sas active_set=a100 optimizer.lr=0.01 trainer.max_epochs=150 \
#     dataset=table dataset.train=cells.csv dataset.label=stage dataset.name=embryo 2> progress.txt

# %% [markdown]
# Errors are in standard deviations of the columns, so 1 is as bad as guessing the means. `accuracy_1nn` gives each
# test cell the stage of its nearest neighbour in the latent plane.
#
# ## The latent plane
#
# `load` takes the folder of a run. The model knows its columns by name, so it takes the data frame as it is, and
# leaves the stage aside.

# %%
run = load(next(Path("outputs").glob("bayesian_sas-embryo-*")))
z = run.encode(cells).mean
run

# %% [markdown]
# The stages follow each other: from 1 cell (lower right) through 2 and 4 cells to 8 and 16 cells at the top. At 32
# cells the lineages part. Trophectoderm (TE) goes to the left; the inner cell mass (ICM) to the right, where at 64
# cells the primitive endoderm (PE) lies below it and the epiblast (EPI) above.

# %%
colours = dict(zip(truth.stage.unique(), plt.get_cmap("tab10").colors, strict=True))
figure, axes = plt.subplots(figsize=(6.5, 4.5))
for stage, colour in colours.items():
    axes.scatter(*z[truth.stage == stage].T, s=14, color=colour, label=stage)
axes.set(xlabel="$z_1$", ylabel="$z_2$")
axes.legend(title="stage", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# ## Columns over the plane
#
# The decoder predicts all genes at each latent point, in the units of the file. These are like the cycles of a qPCR:
# low (blue) where a gene is expressed. Three markers tell the lineages apart: Id2 is expressed in the trophectoderm,
# Sox2 in the epiblast, Gata4 in the primitive endoderm. The fourth picture is the standard deviation of the decoder
# without noise: it says where the other three can be trusted.

# %%
low, high = z.min(0) - 0.5, z.max(0) + 0.5
across, up = np.meshgrid(np.linspace(low[0], high[0], 40), np.linspace(low[1], high[1], 40))
decoded = run.decode(np.stack([across, up], -1).reshape(-1, 2))
names = list(run.model.facts.columns)

figure, axes = plt.subplots(1, 4, figsize=(12, 2.8), layout="constrained")
for ax, gene in zip(axes, ("Id2", "Sox2", "Gata4"), strict=False):
    shown = ax.pcolormesh(
        across, up, decoded.mean[:, names.index(gene)].reshape(40, 40), cmap="coolwarm", vmin=-2, vmax=2
    )
    ax.set_title(gene)
figure.colorbar(shown, ax=axes[2])
sd = np.sqrt(decoded.variance_without_noise.mean(1)).reshape(40, 40)
figure.colorbar(axes[3].pcolormesh(across, up, sd), ax=axes[3])
axes[3].set_title("sd without noise")
for ax in axes:
    ax.scatter(*z.T, s=1, color="black", alpha=0.4)
plt.show()

# %% [markdown]
# ## Missing values
#
# `impute` predicts what is missing in each row from what is not. Here the truth is known: the predictions (left)
# follow it, with an error well below that of the column means. The standardised errors (right) should follow the
# normal density; they are more peaked, with a few large ones, and about 95 % lie within 1.96 standard deviations as
# they should.

# %%
filled = run.impute(cells)
error, sd = (filled.mean - truth[genes].to_numpy())[lost], np.sqrt(filled.variance[lost])
baseline = (cells[genes].mean().to_numpy() - truth[genes].to_numpy())[lost]
print(f"RMSE: model {np.sqrt((error**2).mean()):.2f}, column means {np.sqrt((baseline**2).mean()):.2f}")
print(f"within 1.96 sd: {(np.abs(error) < 1.96 * sd).mean():.1%}")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
left.scatter(truth[genes].to_numpy()[lost], filled.mean[lost], s=4, alpha=0.4)
left.plot([-3, 3], [-3, 3], color="black", linewidth=0.8)
left.set(xlabel="truth", ylabel="prediction")
right.hist(error / sd, bins=40, density=True, alpha=0.6)
bins = np.linspace(-4, 4, 200)
right.plot(bins, np.exp(-(bins**2) / 2) / np.sqrt(2 * np.pi), color="black", linewidth=0.8)
right.set(xlabel="error / sd", ylabel="density")
plt.show()

# %% [markdown]
# A table without holes is one line away.

# %%
complete = pd.DataFrame(filled.x, columns=names).assign(stage=cells.stage)
print(f"{complete.isna().sum().sum()} values are missing")

# %% [markdown]
# ## Which genes are predictable?
#
# The run drew its own figures. This one sorts the columns by the error on the held-out cells, the worst first: genes
# at the top vary in a way that two latent dimensions do not explain.

# %%
figure, axes = plt.subplots(figsize=(7, 7))
axes.imshow(plt.imread(run.folder / "figures" / "columns.png"))
axes.axis("off")
plt.show()

# %% [markdown]
# More: [tables](../tables.md), [missing values](../missing_values.md). Next: [comparing
# models](comparing_models.ipynb).
