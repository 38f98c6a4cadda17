# %% [markdown]
# # Comparing models
#
# Train several models with several seeds, and read the table, the curves and the comparison that the report makes.
# The sweep is small on purpose: scikit-learn's digits, and 20 epochs.
#
# ## A sweep
#
# `-m` runs every combination of the values. `plan` shows them first, without training anything. A VAE has no active
# set, so it runs once per seed, not once per active set.

# %%
# !python -m src.plan model=sas,bayesian_sas,vae active_set=a50,a200 seed=0,1 dataset=digits trainer.max_epochs=20

# %% [markdown]
# The same words train the cells. The last lines are the result; `| tail` leaves out the rest. Type the command again
# and it finishes what is missing, or shows the finished table.

# %%
# !python -m src.train -m model=sas,bayesian_sas,vae active_set=a50,a200 seed=0,1 dataset=digits trainer.max_epochs=20 \
#     2> progress.txt | tail -14

# %% [markdown]
# Each cell is the mean ± sd over seeds, with the number of runs in brackets. All metrics are of test images. RMSE,
# MAE and NLPD are better the lower they are; the NLPD is signed, so negative values are good. A star marks the best
# value, a dagger a value that is significantly worse. Two seeds are few: what has no dagger is not shown to be equal.
#
# ## The report
#
# `report` reads the records of the runs, and writes one page (`index.html`), tables and figures. Choose rows, columns
# and metrics for a table of your own: any setting can be a row.

# %%
# !python -m src.report --rows model,active_set --columns metric --metric rmse,nlpd,accuracy_1nn

# %% [markdown]
# Among its figures are the latent planes side by side: test images, coloured by digit, on the predictive standard
# deviation of the decoder (grey). After 20 epochs, the GP decoders separate the digits better than the VAE, as the
# 1-NN accuracies say.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from src import load

figure, axes = plt.subplots(figsize=(10, 4))
axes.imshow(plt.imread("outputs/report/figures/latents-digits.png"))
axes.axis("off")
plt.show()

# %% [markdown]
# ## Your own numbers
#
# `tables.csv` has one line per cell in full precision, ready for pandas.

# %%
table = pd.read_csv("outputs/report/tables.csv")
errors = table[(table.table == "settings") & (table.metric == "rmse")].set_index("row")[["mean", "sd", "runs"]]
errors.round(4)

# %% [markdown]
# The picture shows what the table says: the size of the active set matters more than the choice between point and
# Gaussian latents.

# %%
figure, axes = plt.subplots(figsize=(6, 2.2))
axes.errorbar(errors["mean"], errors.index, xerr=errors["sd"], fmt="o", capsize=3)
axes.set(xlabel="RMSE of test images, mean ± sd")
axes.invert_yaxis()
plt.show()

# %% [markdown]
# ## The runs behind a number
#
# Each run loads from its folder, with metrics, config and history. Here are the learning curves of one seed. The
# losses of the models are bounds of different kinds, so compare their shapes, not their heights.

# %%
runs = [load(folder) for folder in sorted(Path("outputs").glob("*-digits-*s0-*"))]
figure, axes = plt.subplots(figsize=(6, 3))
for run in runs:
    axes.plot(run.history["loss"], label=run.folder.name.rpartition("-s0-")[0])
axes.set(xlabel="epoch", ylabel="loss, nats per pixel")
axes.xaxis.get_major_locator().set_params(integer=True)
axes.legend(fontsize=8)
plt.show()

# %% [markdown]
# `--compare` shows which settings differ between two runs, beside their metrics. Name a run by its folder, its name,
# or its fingerprint.

# %%
a, b = (run.folder.name for run in runs if "a200" in run.folder.name)
# !python -m src.report --compare {a} {b}

# %% [markdown]
# More: [the report](../report.md), [evaluation](../evaluation.md), [clusters and searches](../cluster.md).
