"""DP-SGD: clipped sums of the gradients of a draw, histograms of their norms, and the price of a draw that shares them."""

from typing import Any

import numpy as np
import torch
from conformance import Law, LawRow, Pair, SumRow, pairs_of, swapped
from scipy.special import ndtr
from torch import Tensor

from dpgen.callbacks import Clipping, DPNorm
from dpgen.privacy.clipping import (
    SENSITIVITY,
    Factor,
    Layer,
    RecordGradients,
    automatic_coefficients,
    by_layer,
    clipped_sums,
    flat_coefficients,
    gradient_norms,
    layer_norms,
    sensitivity_of_people,
)
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import WHOLE, BoundedSum, shared_sizes, shares
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.sampling import Epoch, PoissonMask
from dpgen.systems.dp_sgd import module_training
from dpgen.systems.dp_sgd.module_training import loss_sum
from dpgen.systems.dp_sgd.partition import MEANS, SIZES, sign_sums
from dpgen.systems.dp_sgd.plan import EPOCHS, STEPS

D, BOUND = 5, 0.7


def gradients(rng: np.random.Generator, n: int) -> Tensor:
    """Gradients (n, D) from short to far too long, and some that are not finite."""
    rows = rng.normal(size=(n, D)) * 10.0 ** rng.integers(-3, 6, (n, 1))
    rows[rng.random(n) < 0.05] = np.nan
    return torch.from_numpy(rows).float()


def losses(rng: np.random.Generator, n: int) -> Tensor:
    """Losses (n,) from below 0 to far too large, and some that are not finite."""
    return gradients(rng, n)[:, 0]


def at(*norms: float) -> Tensor:
    """Gradients of these norms; a negative one points the other way."""
    return torch.tensor(norms)[:, None] * torch.eye(D)[0]


def factors(rows: Tensor) -> RecordGradients:
    """Rows that are gradients of one cluster, as the engine sees them."""
    return RecordGradients([Factor(rows, None, None, slice(0, D))], [0, len(rows)])


def clipped(coefficients: Any) -> Any:
    """What a step adds up, in units of the clip bound."""

    def sums(rows: Tensor) -> BoundedSum:
        made = factors(rows)
        total = clipped_sums(made, coefficients(gradient_norms(made)), torch.empty(1, D))
        return BoundedSum(total, SENSITIVITY, "clipped gradients")

    return sums


LAYERS = (Layer(0.6, (slice(0, 2), slice(4, 5))), Layer(0.8, (slice(2, 4),)))


def clipped_apart(rows: Tensor, *, layers: tuple[Layer, ...] = LAYERS) -> BoundedSum:
    """What a step adds up of gradients whose layers have bounds of their own, in units of the whole bound."""
    made, owner = by_layer(factors(rows), layers)
    norms = layer_norms(made, owner, len(layers))
    shares = torch.tensor([layer.share for layer in layers])
    weights = torch.where(norms.isfinite().all(1, keepdim=True), shares * flat_coefficients(norms, BOUND * shares), 0.0)
    return BoundedSum(clipped_sums(made, weights[:, owner], torch.empty(1, D)), SENSITIVITY, "clipped gradients")


def norm_histogram(policy: Clipping) -> Any:
    """What an adaptive policy asks of a draw."""
    policy.begin(1)
    return lambda rows: policy.histogram(gradient_norms(factors(rows)), torch.zeros(len(rows), dtype=torch.int64))


def members(rng: np.random.Generator, n: int) -> Tensor:
    """Bits (n, D) of records with the cluster of each behind them."""
    return torch.from_numpy(rng.integers(0, 2, (n, D + 1)))


def pixels(rng: np.random.Generator, n: int) -> Tensor:
    """Images (n, D) of any pixels with the class of each behind them."""
    return torch.from_numpy(np.column_stack([rng.integers(0, 256, (n, D)), rng.integers(0, 2, n)]))


def means(white: int | None = None) -> Any:
    """What networks, of images where white pixels have a value, begin at."""
    options = {} if white is None else {"white": white}
    return lambda rows: sign_sums(rows[:, :D], rows[:, D], 2, **options)


def of_people(made: Any) -> Any:
    """Random neighbours among people with one to three rows each: one of them comes, or stands in for another."""

    def people(rng: np.random.Generator, n: int) -> np.ndarray:
        own = np.empty(n, object)
        own[:] = [made(rng, int(rows)) for rows in rng.integers(1, 4, n)]
        return own

    return pairs_of(people)


def person(*rows: Tensor) -> Any:
    """Pairs that differ in one person with the first rows, who comes, or stands in for one with the second."""

    def tight(relation: Relation) -> Pair:
        own = np.empty(2, object)
        own[:] = rows
        return own[:1], own[1:] if relation == "replace_one" else own[:0]

    return tight


def joined(people: np.ndarray, width: int) -> tuple[Tensor, Tensor]:
    """The rows of all people and what each has of its person."""
    owner = [i for i, rows in enumerate(people) for _ in rows]
    return torch.cat([torch.zeros(0, width), *people]), shares(torch.tensor(owner, dtype=torch.int64))


def averaged(people: np.ndarray) -> BoundedSum:
    """What a step adds up of people: each clipped gradient by its share, in two clusters by the sign of its last entry."""
    rows, share = joined(people, D)
    total = torch.zeros(2, D)
    for c, own in enumerate((rows[:, -1] >= 0, ~(rows[:, -1] >= 0))):
        made = factors(rows[own])
        weights = automatic_coefficients(gradient_norms(made), 0.01) * share[own].float() / WHOLE
        total[c] = clipped_sums(made, weights, torch.empty(1, D))
    return BoundedSum(total, sensitivity_of_people(2), "clipped gradients", of_unit=True)


def clipped_together(people: np.ndarray, *, by_record: bool = False) -> BoundedSum:
    """What a step adds up of people whose gradients are clipped together; or, which is wrong, each by itself."""
    slots = torch.arange(3)
    there = slots < torch.tensor([len(rows) for rows in people], dtype=torch.int64)[:, None]
    rows, _ = joined(people, D)
    places = there.flatten().nonzero()[:, 0]
    made = module_training.of_people([Factor(rows, None, None, slice(0, D))], places, there, [0, len(people)])
    made = factors(rows) if by_record else made
    total = clipped_sums(made, flat_coefficients(gradient_norms(made), torch.tensor(BOUND)), torch.empty(1, D))
    return BoundedSum(total, SENSITIVITY, "clipped gradients")


def sizes_of_people(people: np.ndarray) -> BoundedSum:
    """Sizes of clusters in which every person counts for one."""
    rows, share = joined(people, D + 1)
    return shared_sizes(rows[:, D].long(), 2, share)


def means_of_people(people: np.ndarray) -> BoundedSum:
    """What networks begin at: of every person the average signs."""
    rows, share = joined(people, D + 1)
    return sign_sums(rows[:, :D], rows[:, D].long(), 2, share=share)


def draws(rate: float, *multipliers: float) -> Any:
    """A draw whose parts all count its records: data are the numbers of records that take part for certain, 0 or 1.

    Given the draw, the parts are Gaussians of one count; together they are seen through the one statistic that is sufficient.
    """

    def law(x: np.ndarray, relation: Relation) -> Law:
        curator = Curator(Ledger(None, delta=1e-6, relation=relation))
        granted = curator.draw(STEPS, PoissonMask(rate), {str(i): sigma for i, sigma in enumerate(multipliers)})
        assert granted is not None
        std, edges = sum(s**-2 for s in multipliers) ** -0.5, np.linspace(-40, 40, 16_001)
        # The masses of cells: a function of the answer, so no pair is further apart in them.
        far, near = (np.diff(ndtr((edges - mean) / std)) for mean in (float(x[0]), 0.0))
        with np.errstate(divide="ignore"):
            return Law(curator.ledger.entries()[-1].event, np.log(rate * far + (1 - rate) * near))

    return law


def allocated(sigma: float) -> Any:
    """An epoch of two draws by random allocation whose answers count the records; data as of `draws`."""

    def law(x: np.ndarray, relation: Relation) -> Law:
        curator, epoch = Curator(Ledger(None, delta=1e-6, relation=relation)), Epoch(2)
        for _ in range(2):
            assert curator.draw(EPOCHS, PoissonMask(1 / epoch.steps, epoch=epoch), {"": sigma}) is not None
        edges = np.linspace(-9, 10, 501) * sigma
        far, near = (np.diff(ndtr((edges - mean) / sigma)) for mean in (float(x[0]), 0.0))
        with np.errstate(divide="ignore"):
            return Law(curator.ledger.entries()[-1].event, np.log(0.5 * (np.outer(far, near) + np.outer(near, far)).ravel()))

    return law


def counted(relation: Relation) -> Pair:
    """A record that is there or not; or one that counts up instead of one that counts down."""
    return np.array([1.0]), np.array([0.0 if relation == "add_remove" else -1.0])


def any_counted(rng: np.random.Generator, relation: Relation) -> Pair:
    ends = (0.0, 1.0) if relation == "add_remove" else (-1.0, 1.0)
    return np.array([rng.uniform(*ends)]), np.array([0.0 if relation == "add_remove" else rng.uniform(*ends)])


ADAPTIVE = DPNorm(c_max=8.0, bins=4)
CENTRES = [float(c) for c in ADAPTIVE.centres]
CLUSTER = torch.eye(D + 1)[D]  # a record of zeros in the other cluster
ONES, ZEROS = torch.tensor([[*[1] * D, 0]]), torch.zeros(1, D + 1, dtype=torch.int64)
WHITE = torch.tensor([[*[255] * D, 0]])
ROWS = [
    SumRow("dpgm", (MEANS,), pairs_of(members), swapped(torch.cat([ZEROS, ONES]), ZEROS), sums=means()),
    SumRow("dpgm", (MEANS,), pairs_of(pixels), swapped(torch.cat([ZEROS, WHITE]), ZEROS), sums=means(255)),
    *(
        SumRow("dpgm", (STEPS,), pairs_of(gradients), swapped(at(0.1, 1e4), at(-1e4)), sums=clipped(coefficients))
        for coefficients in (
            lambda norms: flat_coefficients(norms, torch.full_like(norms, BOUND)),
            lambda norms: automatic_coefficients(norms, 0.01),
        )
    ),
    SumRow(
        "dpgm",
        (STEPS,),
        pairs_of(gradients),
        swapped(torch.tensor([[0.1] * D, [1e4] * D]), -1e4 * torch.ones(1, D)),
        sums=clipped_apart,
    ),
    SumRow("dpgm", (STEPS,), of_people(gradients), person(at(1e4, 1e4, 1e4), at(-1e4, -1e4)), sums=averaged),
    SumRow("dpgm", (STEPS,), of_people(gradients), person(at(0.3, 0.3, 0.3), at(-1e4, -1e4)), sums=clipped_together),
    SumRow("dpgm", (SIZES,), of_people(members), person(ONES.float(), ONES.repeat(3, 1) * 0.0 + CLUSTER), sums=sizes_of_people),
    SumRow("dpgm", (MEANS,), of_people(members), person(ONES.float(), ZEROS.float()), sums=means_of_people),
    SumRow("dpgm", (STEPS,), pairs_of(gradients), swapped(at(1.0, CENTRES[0]), at(CENTRES[2])), sums=norm_histogram(ADAPTIVE)),
    SumRow("dpgm", (STEPS,), pairs_of(losses), swapped(torch.tensor([0.5, 9.0]), torch.tensor([-3.0])), sums=loss_sum),
    *(
        LawRow("dpgm", (STEPS,), any_counted, counted, law=draws(*parts), at=(0.2, 1.0), pairs=10, reaches=0.98, why="a grid")
        for parts in ((0.1, 1.5), (0.5, 3.0, 2.0), (0.02, 0.8))
    ),
    LawRow(
        "dpgm",
        (EPOCHS,),
        any_counted,
        counted,
        law=allocated(1.5),
        relations=("add_remove",),
        at=(0.2,),
        pairs=10,
        reaches=0.98,
        why="a grid",
    ),
]
