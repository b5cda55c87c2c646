"""The release of a step: sorted, split and shared draws release the same sums, of records and of people."""

from typing import Any

import pytest
import tiny
import torch
from fixed_source import FixedKeySource
from refusals import refused
from torch import Tensor

from dpgen.callbacks import AutomaticClipping, PrivacyAccountant
from dpgen.privacy.clipping import SENSITIVITY, sensitivity_of_people
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.sampling import Batch, Owners, PoissonLoader, PoissonMask
from dpgen.systems.dp_sgd.engine import DPSGD, FACTS
from dpgen.systems.dp_sgd.sums import padded
from dpgen.systems.dpgan.fit import DPGAN
from dpgen.systems.dpgan.plan import DPGANConfig, DPGANPlan
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

D, K, N, M = 6, 3, 20, 4


def module(**options: Any) -> DPGM:
    plan = DPGMPlan(sampling_rate=1.0, noise_multiplier=1e-6, sigma_count=5.0)
    made = DPGM(d=D, plan=plan, config=DPGMConfig(hidden=3, latent=1, **options), n_classes=K)
    made.policy = AutomaticClipping(stability=1e-6)
    return made


def records(n: int = N, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(n, D, generator=generator) < 0.5).float(), torch.randint(0, K, (n,), generator=generator)


def one_by_one(x: Tensor, cluster: Tensor) -> Tensor:
    """The slow twin: every record in a draw of its own."""
    made = module()
    ones = [Batch(x[i : i + 1], cluster[i : i + 1], cluster[i : i + 1]) for i in range(len(x))]
    parts = [tiny.released(made, one, silent=True) for one in ones]
    return torch.stack(parts).sum(0)


@pytest.mark.parametrize("micro_batch", [512, 20, 7, 1])
def test_a_draw_is_the_sum_of_its_records_however_it_is_split(micro_batch: int) -> None:
    x, cluster = records()
    sums = tiny.released(module(micro_batch=micro_batch), Batch(x, cluster, cluster), silent=True)
    assert torch.allclose(sums, one_by_one(x, cluster), atol=1e-4)


def test_the_loader_sorts_as_the_module_would() -> None:
    x, cluster = records()
    loader = PoissonLoader(x, cluster, sampling_rate=1.0)
    loader.assign(cluster, K)
    batch = next(iter(loader))
    assert batch.sizes is not None
    assert list(batch.sizes) == torch.bincount(cluster, minlength=K).tolist()
    assert torch.equal(batch.cluster, cluster.sort().values)
    assert torch.equal(batch.labels, batch.cluster)
    made = module()
    assert torch.allclose(*(tiny.released(made, b, silent=True) for b in (batch, Batch(x, cluster, cluster))), atol=1e-4)


@pytest.mark.parametrize("sizes", [(0, 0, 0), (1, 0, 0), (3, 0, 4), (4, 4, 0), (9, 1, 2), (1, 13, 1)])
def test_parts_cover_the_draw_and_there_is_at_least_one(sizes: tuple[int, ...]) -> None:
    """However a cluster is cut, it is cut by its own records: others only move the parts that it is in."""
    made = module(micro_batch=4)
    parts = made.micro_batches(sizes)
    assert parts
    rows = [list(range(sum(sizes))[part[c]]) for c in range(K) for part in parts]
    assert [row for part in rows for row in part] == list(range(sum(sizes)))
    for c, n in enumerate(sizes):
        cuts = [part[c].stop - part[c].start for part in parts if part[c].stop > part[c].start]
        assert cuts == [4] * (n // 4) + [n % 4] * (n % 4 > 0)
    assert all(padded([rows.stop - rows.start for rows in part])[-1] <= 4 for part in parts)


@pytest.mark.parametrize("n", [60, 4096, 4097, 8800])
def test_what_rounding_adds_to_a_sum_stays_inside_of_the_stated_sensitivity(n: int) -> None:
    """A sum of n terms of norm 1, rounded in its dtype, errs by n eps / 2, with a record and without it."""
    made, book = module(micro_batch=2**14), Curator(Ledger(None, delta=1e-5))
    made.serve(book)
    cluster = torch.zeros(n, dtype=torch.int64)
    draw = book.draw("training steps", PoissonMask(1.0), made.parts())
    assert draw is not None
    released, given = [], draw.gaussian
    draw.gaussian = lambda name, sums, **more: (released.append(sums), given(name, sums, **more))[1]  # type: ignore[method-assign]
    with torch.no_grad():
        made.noisy_sums(Batch(torch.ones(n, D), cluster, cluster), draw)
    [sums] = released
    assert float(sums.values.norm()) > 0.5 * n, "the terms point the same way"
    assert n * torch.finfo(sums.values.dtype).eps <= sums.sensitivity - 1


def test_a_record_without_a_finite_norm_weighs_nothing() -> None:
    x, cluster = records()
    broken = torch.cat([x, torch.full((1, D), torch.nan)])
    ids = torch.cat([cluster, torch.zeros(1, dtype=torch.int64)])
    made = module()
    sums = tiny.released(made, Batch(broken, ids, ids), silent=True)
    assert torch.allclose(sums, tiny.released(made, Batch(x, cluster, cluster), silent=True), atol=1e-4)


def test_latents_come_from_the_secure_source_of_the_curator() -> None:
    made = module()
    made.serve(Curator(Ledger(None, delta=1e-5), source=FixedKeySource(3)))
    assert torch.equal(made.latents(4, 2), FixedKeySource(3).normal(4, 2))
    assert not torch.equal(made.latents(4, 2), made.latents(4, 2))


def test_a_batch_that_is_no_poisson_draw_is_refused() -> None:
    nobody = torch.zeros(0, dtype=torch.int64)
    with refused("mask"):
        module().on_train_batch_start(Batch(torch.zeros(0, D), nobody, nobody), 0)


PEOPLE = torch.tensor([5, 0, 5, 9, 5, 0, 7, 9, 9, 9, 1])


def of_people() -> DPGM:
    plan = DPGMPlan(sampling_rate=1.0, noise_multiplier=1e-6, sigma_count=5.0, unit="who", max_contributions=M)
    made = DPGM(d=D, plan=plan, config=DPGMConfig(hidden=3, latent=1), n_classes=K)
    made.policy = AutomaticClipping(stability=1e-6)
    return made


def summed(x: Tensor, cluster: Tensor, people: Tensor, most: int = M) -> Tensor:
    """Sums of a step that draws everybody."""
    loader = PoissonLoader(x, cluster, sampling_rate=1.0, people=people, rows=most)
    loader.assign(cluster, K)
    return tiny.released(of_people(), next(iter(loader)), silent=True)


# -- who is drawn ------------------------------------------------------------------------------------------------------


def test_people_are_drawn_with_all_of_their_records() -> None:
    """Whole people only, by the rate of the draw: less than once in 10^9 runs are so few or so many of 5 * 1000 drawn."""
    loader = PoissonLoader(torch.arange(11.0)[:, None], sampling_rate=0.25, people=PEOPLE, rows=M)
    drawn = 0
    for _ in range(250):
        for batch in loader:
            rows = batch.x[:, 0].long()
            whole = (PEOPLE[:, None] == PEOPLE[rows].unique()).any(1).nonzero()[:, 0]
            assert rows.tolist() == whole.tolist()
            assert batch.mask is not None
            assert (batch.mask.rate, batch.mask.rows) == (0.25, M)
            assert batch.share is not None
            assert batch.share.tolist() == pytest.approx([1 / int((p == PEOPLE).sum()) for p in PEOPLE[rows]], abs=1e-6)
            drawn += len(PEOPLE[rows].unique())
    assert abs(drawn - 1250) < 6.2 * (5000 * 0.25 * 0.75) ** 0.5


def test_shares_of_a_person_never_pass_a_whole() -> None:
    for rows in (1, 3, 7, 1000, 99_999):
        share = Owners(torch.zeros(rows, dtype=torch.int64), rows).share
        assert 2**20 - rows < int(share.sum()) <= 2**20
        assert share.float().double().tolist() == share.tolist()


def test_a_person_with_more_records_than_stated_is_refused() -> None:
    with refused("people", "4 records"):
        PoissonLoader(torch.zeros(11, 1), sampling_rate=0.5, people=PEOPLE, rows=3)
    with refused("people", "11"):
        PoissonLoader(torch.zeros(4, 1), sampling_rate=0.5, people=PEOPLE, rows=4)


# -- what a person moves -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_person_moves_a_step_by_what_is_stated(rows: int) -> None:
    """Random people beside others, in several clusters; equal rows in one cluster reach it."""
    x, cluster = records(11)
    before = summed(x, cluster, PEOPLE)
    stated = sensitivity_of_people(min(M, K))
    for seed in range(5):
        own, where = records(rows, seed + 1)
        moved = summed(torch.cat([x, own]), torch.cat([cluster, where]), torch.cat([PEOPLE, torch.full((rows,), 3)]))
        assert float((moved - before).norm()) <= stated
    own, where = x[:1].repeat(rows, 1), cluster[:1].repeat(rows)
    moved = summed(torch.cat([x, own]), torch.cat([cluster, where]), torch.cat([PEOPLE, torch.full((rows,), 3)]))
    assert 0.99 <= float((moved - before).norm()) <= stated


def test_a_draw_that_is_not_sorted_by_cluster_has_the_same_sums() -> None:
    """A module that leaves the order to itself must take each record's share along: others would weigh too much."""
    x, cluster = records(11)
    sums = []
    for k in (K, None):
        loader = PoissonLoader(x, cluster, sampling_rate=1.0, people=PEOPLE, rows=M)
        loader.assign(cluster, k)
        batch = next(iter(loader))
        assert (batch.sizes is None) == (k is None)
        sums.append(tiny.released(of_people(), batch, silent=True))
    assert torch.allclose(*sums, atol=1e-5)
    alone, own = records(3, 1), torch.full((3,), 3)
    more = [torch.cat(parts) for parts in zip((x, cluster, PEOPLE), (*alone, own))]
    before, after = (
        tiny.released(of_people(), next(iter(PoissonLoader(a, c, sampling_rate=1.0, people=p, rows=M))), silent=True)
        for a, c, p in ((x, cluster * 0, PEOPLE), (more[0], more[1] * 0, more[2]))
    )
    assert float((after - before).norm()) <= sensitivity_of_people(1)


def test_without_averaging_a_person_moves_as_much_as_all_of_their_records() -> None:
    """The broken twin: rows that count for themselves."""
    x, cluster = records(1)
    own = Batch(x.repeat(M, 1), cluster.repeat(M), cluster.repeat(M))
    assert float(tiny.released(of_people(), own, silent=True).norm()) > 0.99 * M


# -- the noise ---------------------------------------------------------------------------------------------------------


def curator(rows: int) -> Curator:
    return Curator(Ledger(None, delta=1e-5, unit="one person", rows=rows))


@pytest.mark.parametrize(("of_unit", "steps"), [(True, 1), (False, M)])
def test_sums_of_rows_get_more_noise_than_sums_of_people(of_unit: bool, steps: int) -> None:
    sums = BoundedSum(torch.zeros(1, 4000), 2.0, of_unit=of_unit)
    draw = curator(M).draw("step", PoissonMask(0.1, M), {"sums": 3.0})
    assert draw is not None
    assert float(draw.gaussian("sums", sums).std()) == pytest.approx(6.0 * steps, rel=0.15)
    counts: Any = {"norm": "l1", "of_unit": of_unit}
    whole = BoundedSum(torch.zeros(4000, dtype=torch.int64), 2.0, **counts)
    assert float(curator(M).laplace("n", whole, 0.1).double().abs().mean()) == pytest.approx(20.0 * steps, rel=0.15)


@pytest.mark.parametrize("people", [PEOPLE, None])
def test_a_step_says_whether_it_is_of_people(people: Tensor | None) -> None:
    """Records that are not averaged are summed as records, whoever's they are."""
    seen: list[BoundedSum] = []
    made, book = of_people(), curator(M)
    made.serve(book)
    x, cluster = records(11)
    batch = next(iter(PoissonLoader(x, cluster, sampling_rate=1.0, people=people, rows=M)))
    draw = book.draw("training steps", PoissonMask(1.0, M), made.parts())
    assert draw is not None
    given = draw.gaussian
    draw.gaussian = lambda name, sums, **more: (seen.append(sums), given(name, sums, **more))[1]  # type: ignore[method-assign]
    with torch.no_grad():
        made.noisy_sums(batch, draw)
    stated = SENSITIVITY if people is None else sensitivity_of_people(K)
    [sums] = seen
    assert sums.of_unit == (people is not None)
    assert stated <= sums.sensitivity <= 1.001 * stated, "with a margin for what this processor computes beside other records"


NUMBERS = {"epsilon": 2.0, "steps": 3, "sampling_rate": 0.5}
MODULES = {
    "dpgm": lambda: DPGM(d=tiny.D, plan=DPGMPlan(**NUMBERS), config=DPGMConfig(clusters="none", hidden=2, latent=1)),
    "dpgan": lambda: DPGAN(d=tiny.D, plan=DPGANPlan(**NUMBERS), config=DPGANConfig(hidden=2, latent=1)),
}


@pytest.mark.parametrize("name", MODULES)
def test_an_untrained_module_releases_nothing(name: str) -> None:
    module = MODULES[name]()
    assert isinstance(module, DPSGD)
    for release in (module.release, module.statement):
        with refused("not been trained"):
            release(Ledger(None, delta=1e-5))


@pytest.mark.parametrize("name", MODULES)
def test_a_training_step_needs_the_consent_of_the_ledger(name: str) -> None:
    module = MODULES[name]()
    with refused("consent", error=RuntimeError):
        module.training_step(None, 0)


def test_what_a_statement_rests_on_is_said() -> None:
    assert [one.fact for one in MODULES["dpgm"]().facts] == list(FACTS)


@pytest.mark.usefixtures("quiet")
def test_draws_are_shared_among_the_ranks_that_pay_for_them() -> None:
    module, accountant = MODULES["dpgm"](), PrivacyAccountant(Curator(Ledger(Budget(2.0, 1e-5))))
    loader = PoissonLoader(tiny.records().x, sampling_rate=0.5)
    tiny.trainer(accountant, steps=1).fit(module, loader)
    assert loader.poisson.ranks is accountant.ranks
