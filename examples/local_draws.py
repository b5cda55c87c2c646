"""Local draws: every user gives away one draw of their own distribution; epsilon protects the whole distribution."""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pandas as pd
import torch

import dpgen
from dpgen.systems import MinimaxSampler

# Simulated clicks of 400 users, who differ in what they like. No row is of a person.
rng = np.random.default_rng(0)
sites = ["news", "sport", "music", "games"]
prior = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)  # what is publicly known of people in general
tastes = rng.dirichlet(5 * prior.numpy(), 400)
log = pd.concat([pd.DataFrame({"who": who, "site": rng.choice(sites, 20, p=taste)}) for who, taste in enumerate(tastes)])

# The mechanism is public. A user who reads one site only gives it away with this probability, else another one.
sampler = MinimaxSampler(epsilon=2.0, prior=prior)
print("keeps", dict(zip(sites, sampler.keeps().numpy().round(2).tolist())), f"worst distance {sampler.worst_case('tv'):.2f}")

# The kernel leaves the prior as it is, and no output is more than e^2 times as likely for one user than for another.
kernel = sampler.kernel()
assert torch.allclose(prior @ kernel, prior)
assert (kernel.max(0).values <= np.exp(2.0 + 1e-9) * kernel.min(0).values).all()

# One draw for each user, by the public prior in a file.
prior_file = Path(mkdtemp()) / "prior.csv"
pd.DataFrame({"site": sites, "probability": prior.numpy()}).to_csv(prior_file, index=False)
release = dpgen.fit(log, "minimax", epsilon=2.0, user="who", category="site", prior_path=prior_file)
print(release)
print(release.sample()["site"].value_counts(normalize=True).round(2).to_dict(), "of", len(log), "clicks")

# Integral privacy: draws of one curator, who protects the whole data set as if it were one record. Here the data are points.
places = pd.DataFrame(rng.normal([2.0, 3.0], 0.4, (2000, 2)).clip(0, 5), columns=["x", "y"])
release = dpgen.fit(places, "mbde", epsilon=4.0, bounds=[[0, 5], [0, 5]], reference="uniform", draws=4, steps=200)
print(release)
print(release.sample())
