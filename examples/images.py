"""Images: synthetic digits with labels, what they cost, and a classifier that learns from them alone."""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch.utils.data import TensorDataset

import dpgen

# 1,797 images of 8 x 8 pixels that scikit-learn ships. As uint8 from 0 to 255 they are grey values.
digits = load_digits()
grey, labels = (digits.images * 15.9).astype(np.uint8), digits.target
private = TensorDataset(torch.from_numpy(grey[:1400]), torch.from_numpy(labels[:1400]))

# A mixture of Gaussians for each label. Size and type of the images are public. Epsilon does not cover which classes there are.
release = dpgen.fit(private, "gaussian", epsilon=3.0, delta=1e-5)
print(release)

# Samples come back as the data went in: a Dataset of images and labels.
images, classes = release.sample(1000, random_state=0).tensors
print(images.shape, images.dtype, torch.bincount(classes).tolist())
print(f"the first, of class {classes[0]}:")
for row in images[0].tolist():
    print("".join(" .:*#"[pixel // 52] for pixel in row))

# A classifier that has seen synthetic images only is tested on real ones that were not in the fit.
learned = LogisticRegression(max_iter=500).fit(images.flatten(1).numpy() > 127, classes.numpy())
accuracy = learned.score(grey[1400:].reshape(-1, 64) > 127, labels[1400:])
print(f"accuracy on real images: {accuracy:.2f}; guessing has .10")

# Model, statement and a page with pictures may be shared.
folder = Path(mkdtemp())
release.save(folder / "model")
release.report(folder / "digits.html")
print(f"Files are in {folder}")
