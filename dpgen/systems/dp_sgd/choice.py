r"""Whether private training made something better of the release that it began from: one noisy sum over the records decides.

Both models are public, so judges learn from their samples for free; a record x then votes with a number in [-1, 1]:

| records | judges | vote of a record |
|---|---|---|
| with labels | a classifier taught by each model | 1 if only that of the trained model is right, -1 if only the other is |
| without | one that tells samples of the two apart | 1 if x looks trained, less the mean of that in samples of both |

The second is the Scheffe test: it takes the model that gives its set of likely records a mass nearer to that of the records.
Votes are summed as whole multiples of 2^-20, one record moves the sum by at most 1, and the trained model is released only
if the noisy sum passes `SURE` standard deviations of its noise. Otherwise the start is released again, unchanged.

Source: Devroye and Lugosi 2001, chapter 6 (Scheffe tests); Bun, Kamath, Steinke, Wu 2019 (private ones).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.release import ImageModel, RecordModel
from dpgen.systems.dp_sgd.inputs import Inputs

CHOICE = "choice between the trained model and its start"
"""Note of the sum that decides."""

SURE = 2.0
"""Standard deviations of its noise that the sum has to pass."""

Vote = Callable[[Tensor, Tensor | None], Tensor]
"""Votes (n,), whole numbers of 2^-20 in [-2^20, 2^20], of records (n, d) and their labels (n,)."""

_ONE = 2**20
_SAMPLES = 20_000
_STEPS = 500
_BATCH = 128
_HIDDEN = 128
_RATE = 3e-3
_ROWS = 4096


class Judge:
    """A classifier of bits, or of bytes, whose answers have the same bits beside any other records.

    One hidden layer; weights and hidden values lie on grids on which all sums of products are exact in float64.

    Arguments:
        x: public records (n, d) to learn from.
        labels: their classes (n,).
        n_classes: classes that it may answer.
        generator: public randomness.
        white: greatest value; bytes count in 256ths, a power of two, so that products stay exact.
    """

    def __init__(self, x: Tensor, labels: Tensor, n_classes: int, generator: torch.Generator, *, white: int = 1) -> None:
        self._unit = 2.0 ** -(white.bit_length() if white > 1 else 0)
        widths = (x.shape[1], _HIDDEN, n_classes)
        shapes = [shape for a, b in pairwise(widths) for shape in ((b, a), (b,))]
        scales = [a**-0.5 for a in widths[:2] for _ in range(2)]
        parameters = [
            nn.Parameter((2.0 * torch.rand(shape, generator=generator) - 1.0) * s) for shape, s in zip(shapes, scales)
        ]
        adam = torch.optim.Adam(parameters, lr=_RATE)
        for step in range(_STEPS):
            rows = torch.randint(len(x), (_BATCH,), generator=generator)
            with torch.enable_grad():
                w, b, v, c = parameters
                answers = (x[rows].float() * self._unit @ w.T + b).relu() @ v.T + c
                gradients = torch.autograd.grad(nn.functional.cross_entropy(answers, labels[rows]), parameters)
            for parameter, gradient in zip(parameters, gradients):
                parameter.grad = gradient
            adam.param_groups[0]["lr"] = _RATE * (1.0 - step / _STEPS)
            adam.step()
        self._weights = [(p.detach().double().clamp(-8.0, 8.0) * _ONE).round() / _ONE for p in parameters]

    def answers(self, x: Tensor) -> Tensor:
        """Classes (n,) of records (n, d)."""
        w, b, v, c = self._weights
        parts = []
        for rows in x.split(_ROWS):
            hidden = ((rows.cpu().double() * self._unit @ w.T + b).relu().clamp_max(64.0) * 2**16).round() / 2**16
            scores = hidden @ v.T + c
            best = scores >= scores.amax(1, keepdim=True)
            parts.append(torch.where(best, torch.arange(len(c)), len(c)).amin(1))  # argmax takes any of equal ones
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)


def vote_of(
    trained: RecordModel | ImageModel, start: RecordModel | ImageModel, *, n_classes: int, generator: torch.Generator
) -> Vote:
    """How records vote for the trained model, from public samples of both; n_classes 0: records have no labels."""
    seeds = torch.randint(2**31, (2,), generator=generator).tolist()
    new, old = (Inputs.of(model.samples(_SAMPLES, random_state=seed)) for model, seed in zip((trained, start), seeds))
    if n_classes and new.labels is not None and old.labels is not None:
        taught = ((s.x, s.labels) for s in (new, old) if s.labels is not None)
        judges = [Judge(x, labels, n_classes, generator, white=new.white) for x, labels in taught]

        def by_answers(x: Tensor, labels: Tensor | None) -> Tensor:
            assert labels is not None
            right, other = (judge.answers(x) == labels.cpu() for judge in judges)
            return _ONE * (right.long() - other.long())

        return by_answers
    judge = Judge(torch.cat([old.x, new.x]), torch.arange(2).repeat_interleave(_SAMPLES), 2, generator, white=new.white)
    share = float(judge.answers(torch.cat([old.x, new.x])).double().mean())

    def by_likeness(x: Tensor, labels: Tensor | None) -> Tensor:
        return _ONE * judge.answers(x) - round(_ONE * share)

    return by_likeness


def vote_sums(x: Tensor, labels: Tensor | None, vote: Vote) -> BoundedSum:
    """Sum (1,) of the votes of all records: a record adds at most 1, a replaced one may turn from -1 to 1."""
    total = vote(x, labels).clamp(-_ONE, _ONE).sum()[None]
    return BoundedSum(total, 1.0, "votes", replaced=2.0, step=1.0 / _ONE)


def trained_is_better(
    trained: RecordModel | ImageModel,
    start: RecordModel | ImageModel,
    inputs: Inputs,
    *,
    n_classes: int,
    noise_multiplier: float,
    curator: Curator,
    generator: torch.Generator,
) -> bool:
    """Whether the records prefer the trained model, charged as one Gaussian of sensitivity 1.

    A run that died between the charge and its release has lost the answer, and keeps the start.

    Arguments:
        inputs: private records, and their labels in [0, n_classes), if they have any.
        noise_multiplier: noise std / sensitivity of the sum.
        generator: public randomness.
    """
    if any(entry.note == CHOICE for entry in curator.ledger.entries()):
        return False
    vote = vote_of(trained, start, n_classes=n_classes, generator=generator)
    sums = vote_sums(inputs.x, inputs.labels, vote)
    noisy = curator.gaussian(CHOICE, sums, noise_multiplier)
    return float(noisy) > SURE * noise_multiplier * sums.sensitivity * curator.rows
