"""DPGM as a Lightning module: what a step releases, what is refused, and that resuming never under-reports."""

import contextlib
import math
import os
import signal
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import tiny
import torch
from lightning.pytorch.callbacks import Callback
from refusals import refused
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from dpgen.callbacks import AutomaticClipping, DPNorm, PrivacyAccountant
from dpgen.callbacks.accountant import Checkpoint, Preemption, SealedCheckpointIO
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Ledger, LedgerError
from dpgen.privacy.noise import DeviceSource, SecureSource
from dpgen.privacy.sampling import Batch, PoissonLoader
from dpgen.systems.dp_sgd import sums as private_sums
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

pytestmark = pytest.mark.usefixtures("quiet")

D, K, N = 6, 2, 40
TINY = {"hidden": 3, "latent": 1}


def records() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(N, D, generator=generator) < 0.5).to(torch.uint8), torch.arange(N) % K


def plan(**options: Any) -> DPGMPlan:
    sigmas = {"noise_multiplier": 1.0, "sigma_count": 5.0, "sigma_sum": 2.0, "sigma_means": 4.0}
    return DPGMPlan(**{"sampling_rate": 0.5, "steps": 6} | sigmas | options)


def untrained(config: DPGMConfig | None = None, **options: Any) -> DPGM:
    return DPGM(d=D, plan=plan(**options), config=config or DPGMConfig(**TINY), n_classes=K)


def loader(rate: float = 0.5) -> PoissonLoader:
    return PoissonLoader(*records(), sampling_rate=rate)


def trainer(*callbacks: Callback, steps: int = 6) -> L.Trainer:
    return tiny.trainer(*callbacks, steps=steps)


def fitted(ledger: Ledger | None = None, config: DPGMConfig | None = None, **options: Any) -> tuple[DPGM, Ledger]:
    ledger, module = ledger or Ledger(None, delta=1e-5), untrained(config, **options)
    clipping = module.config.clipping_callback(module.plan)
    trainer(PrivacyAccountant(Curator(ledger)), clipping, steps=module.plan.steps).fit(module, loader())
    return module, ledger


# -- one step --------------------------------------------------------------------------------------------------------


def test_a_step_is_divided_by_the_expected_number_of_records_never_by_the_drawn_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every sum 10^4, beside which the noise is small."""
    monkeypatch.setattr(private_sums, "clipped_sums", lambda gradients, weights, out, **_: out.fill_(1e4))
    config = DPGMConfig(**TINY, optimizer="sgd", lr=0.25, clipping="fixed", clip_bound=3.0)
    module = untrained(config)
    before = module.bank.theta.detach().clone()
    trainer(accountant(), config.clipping_callback(module.plan), steps=1).fit(module, loader())
    moved, expected = before - module.bank.theta.detach(), (0.5 * module.partition.counts).clamp_min(1.0)
    assert torch.allclose(moved, (0.25 * 3e4 / expected)[:, None].expand_as(moved), rtol=1e-2)


def released(monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[DPNorm, list[tuple[str, torch.dtype, Tensor]]]:
    """The policy of a short training, and what its draws released: name, type of the sums, noisy values."""
    given, gaussian = [], Draw.gaussian

    def seen(draw: Draw, name: str, sums: BoundedSum, **options: Any) -> Tensor:
        dtype, noisy = sums.values.dtype, gaussian(draw, name, sums, **options)
        given.append((name, dtype, noisy.clone()))
        return noisy

    monkeypatch.setattr(Draw, "gaussian", seen)
    policy = DPNorm(noise_multiplier=10.0, window=2)
    module = untrained(DPGMConfig(**TINY, clipping="dpnorm", **options))
    trainer(accountant(), policy, steps=2).fit(module, loader())
    return policy, given


@pytest.mark.filterwarnings("ignore:DPNorm")
def test_bounds_are_chosen_by_noisy_norms_only(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, given = released(monkeypatch)
    noisy = [values for name, _, values in given if name == "norms"]
    assert [name for name, _, _ in given] == ["norms", "gradients"] * 2
    assert all(torch.equal(kept, values.double()) for kept, values in zip(policy.released, noisy, strict=True))


@pytest.mark.filterwarnings("ignore:DPNorm")
def test_sums_of_several_parts_are_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    for micro_batch, dtype in ((16, torch.float64), (512, torch.float32)):
        _, given = released(monkeypatch, micro_batch=micro_batch)
        assert {kind for name, kind, _ in given[-4:] if name == "gradients"} == {dtype}


class Skipping(DPGM):
    """The twin that leaves clusters without records alone."""

    def noisy_sums(self, batch: Batch, draw: Draw, out: Tensor | None = None, *, averaged: bool = False) -> Tensor:
        sums = super().noisy_sums(batch, draw, out, averaged=averaged)
        return sums * (torch.bincount(batch.cluster, minlength=self.bank.k) > 0)[:, None]


@pytest.mark.parametrize(("kind", "noisy"), [(DPGM, True), (Skipping, False)])
def test_clusters_without_records_in_a_draw_release_noise_too(kind: type[DPGM], noisy: bool) -> None:
    nobody = torch.zeros(0, dtype=torch.int64)
    module = kind(d=D, plan=plan(), config=DPGMConfig(**TINY), n_classes=K)
    found = tiny.released(module, Batch(torch.zeros(0, D), nobody, nobody), policy=AutomaticClipping())
    assert bool((found != 0).any(1).all()) == noisy


@pytest.mark.parametrize(
    ("weight", "record", "moved"), [(1e6, 1.0, 1.0), (-1e6, 1.0, 0.0), (1e6, math.nan, 0.0), (math.nan, 1.0, 0.0)]
)
def test_a_policy_cannot_exceed_the_sensitivity(weight: float, record: float, moved: float) -> None:
    """Coefficients far too large release what clipping at 1 would; those below 0 or no number weigh nothing."""

    class Greedy(AutomaticClipping):
        def coefficients(self, norms: Tensor, cluster: Tensor) -> Tensor:
            return torch.full_like(norms, weight)

    one, cluster = torch.full((1, D), record), torch.tensor([1])
    found = tiny.released(untrained(noise_multiplier=1e-6), Batch(one, cluster, cluster), policy=Greedy())
    assert float(found.norm()) == pytest.approx(moved, abs=1e-2)


def test_what_a_policy_returns_in_another_shape_is_refused() -> None:
    class Short(AutomaticClipping):
        def coefficients(self, norms: Tensor, cluster: Tensor) -> Tensor:
            return torch.ones(1)

        def scale(self) -> Tensor:
            return torch.ones(K + 1)

    module, cluster = untrained(), torch.tensor([0, 1])
    with refused("Short.coefficients()", "(1,)", paid=True):  # a policy of somebody else is asked in a step
        tiny.released(module, Batch(torch.ones(2, D), cluster, cluster), policy=Short())
    with refused("Short.scale()", "(3,)"):
        module.averaging()


class Halved(AutomaticClipping):
    """Of somebody else: each record by half of what it may weigh."""

    def coefficients(self, norms: Tensor, cluster: Tensor) -> Tensor:
        return super().coefficients(norms, cluster) / 2


class OfTheDraw(AutomaticClipping):
    """A twin that weighs records by the median norm of all of them."""

    def coefficients(self, norms: Tensor, cluster: Tensor) -> Tensor:
        return (norms.median() / norms).clamp_max(1.0) / norms


def test_a_policy_of_ones_own_is_named_by_the_statement() -> None:
    module, ledger = untrained(), Ledger(None, delta=1e-5)
    trainer(PrivacyAccountant(Curator(ledger)), Halved()).fit(module, loader())
    (named,) = [text for text in module.statement(ledger).assumptions if "clipping policy" in text]
    assert f"{__name__}:Halved weighs a record by its own norm and by released values alone" in named
    assert not AutomaticClipping().facts


def test_a_policy_that_weighs_a_record_by_others_is_refused_before_anything_is_spent() -> None:
    spent = Ledger(None, delta=1e-5)
    refuse("OfTheDraw.coefficients", PrivacyAccountant(Curator(spent)), OfTheDraw())
    assert not spent.entries()
    refuse("2 of Clipping (Halved, AutomaticClipping)", accountant(), Halved(), AutomaticClipping())


# -- training --------------------------------------------------------------------------------------------------------


def test_a_network_of_your_own_trains_behind_the_same_interface() -> None:
    config = DPGMConfig(network="own_networks:Good", network_options={"hidden": 3})
    module, ledger = untrained(config, sigma_means=None), Ledger(None, delta=1e-5)
    before = module.bank.theta.detach().clone()
    trainer(PrivacyAccountant(Curator(ledger))).fit(module, loader())
    assert not torch.equal(before, module.bank.theta)
    released = module.release(ledger)
    assert torch.equal(released.bank.theta, module.bank.theta)
    assert released.samples(9, random_state=0).x.shape == (9, D)


# -- refusals --------------------------------------------------------------------------------------------------------


def refuse(words: str, *callbacks: Callback, data: Any = None, config: DPGMConfig | None = None) -> None:
    with refused(words):
        trainer(*callbacks).fit(untrained(config), data or loader())


def accountant(**options: Any) -> PrivacyAccountant:
    return PrivacyAccountant(Curator(Ledger(None, **{"delta": 1e-5} | options)))


def test_a_shuffled_loader_is_refused() -> None:
    refuse("PoissonLoader", accountant(), data=DataLoader(TensorDataset(*records()), batch_size=4, shuffle=True))


REFUSED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "PrivacyAccountant": ([], {}),
    "sampling_rate 0.25": ([accountant], {"data": loader(0.25)}),
    "sampling 'allocation'": (
        [accountant],
        {"data": PoissonLoader(*records(), sampling_rate=0.5, sampling="allocation")},
    ),
    "labels": ([accountant], {"data": PoissonLoader(records()[0], sampling_rate=0.5)}),
    "clipping='auto'": ([accountant, DPNorm], {}),
    "clipping='dpnorm'": ([accountant], {"config": DPGMConfig(clipping="dpnorm", **TINY)}),
    "delta": ([lambda: accountant(delta=1e-7)], {}),
    "replace_one": ([lambda: accountant(relation="replace_one")], {}),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_fit_the_plan_is_refused(words: str) -> None:
    callbacks, options = REFUSED[words]
    refuse(words, *(make() for make in callbacks), **options)


def test_a_fixed_bound_needs_no_callback() -> None:
    module = untrained(DPGMConfig(clipping="fixed", clip_bound=0.5, **TINY))
    trainer(accountant()).fit(module, loader())
    scale = module.policy.scale()
    assert scale is not None
    assert scale.tolist() == [0.5, 0.5]


def test_another_ledger_is_refused() -> None:
    """A statement from a ledger that misses what was spent would claim too little."""
    module, ledger = fitted()
    other = Ledger(None, delta=1e-5)
    with refused("ledger"):
        module.release(other)
    with refused("ledger"):
        trainer(PrivacyAccountant(Curator(other)), steps=9).fit(module, loader())
    assert module.release(ledger).statement.epsilon == ledger.epsilon()


# -- checkpoint and resume -------------------------------------------------------------------------------------------


class StopAt(Callback):
    """Dies like a killed process right after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise KeyboardInterrupt


class SaveAt(Callback):
    def __init__(self, step: int, path: Path) -> None:
        self.step, self.path = step, path

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


def start(ledger: Ledger, *callbacks: Callback, ckpt: Path | None = None) -> tuple[DPGM, DPNorm]:
    module = untrained(DPGMConfig(clipping="dpnorm", **TINY), sigma_norm=2.0)
    policy = DPNorm(noise_multiplier=2.0, window=3)
    run = trainer(PrivacyAccountant(Curator(ledger)), policy, *callbacks)
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        run.fit(module, loader(), ckpt_path=ckpt)
    return module, policy


@pytest.mark.filterwarnings("ignore:DPNorm")
def test_resume_counts_replayed_steps_and_restores_state(tmp_path: Path) -> None:
    ledger = Ledger(None, delta=1e-5, path=tmp_path / "ledger.jsonl")
    first, policy = start(ledger, SaveAt(2, tmp_path / "a.ckpt"), SaveAt(4, tmp_path / "b.ckpt"), StopAt(4))
    after_crash = ledger.epsilon()
    ledger.close()

    ledger = Ledger.open(tmp_path / "ledger.jsonl")
    assert ledger.epsilon() == after_crash, "the ledger survives bit for bit"
    states, restored = SealedCheckpointIO().load_checkpoint(tmp_path / "b.ckpt")["callbacks"], DPNorm(window=3)
    restored.load_state_dict(next(value for key, value in states.items() if key.startswith("DPNorm")))
    assert torch.equal(restored.bounds, policy.bounds)
    assert all(torch.equal(a, b) for a, b in zip(restored.released, policy.released, strict=True))
    seen: dict[str, Any] = {}

    class Look(Callback):
        def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
            seen["counts"] = pl_module.partition.counts.clone()  # type: ignore[union-attr]
            seen["step"] = trainer.global_step

    start(ledger, Look(), ckpt=tmp_path / "a.ckpt")
    assert seen["step"] == 2
    assert torch.equal(seen["counts"], first.partition.counts)
    steps = {e.note: e.count for e in ledger.entries()}
    assert steps["training steps"] == 4 + 4, "two replayed steps are charged again"
    assert steps["cluster sizes"] == 1, "the partition is not paid twice"
    assert ledger.epsilon() > after_crash


def allocated(path: Path, *callbacks: Callback, ckpt: Path | None = None) -> DPGM:
    """Six steps at q = 1/2, three epochs of random allocation, with a ledger in a file that may be there already."""
    module = untrained(sampling="allocation")
    ledger = Ledger.open(path) if path.exists() else Ledger(None, delta=1e-5, path=path)
    draws = PoissonLoader(*records(), sampling_rate=0.5, sampling="allocation")
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        trainer(PrivacyAccountant(Curator(ledger)), *callbacks, steps=6).fit(module, draws, ckpt_path=ckpt)
    ledger.close()
    return module


@pytest.mark.parametrize(
    ("place", "kind", "said"), [("meta", DeviceSource, True), ("meta", SecureSource, False), ("cpu", DeviceSource, False)]
)
def test_the_statement_says_where_noise_is_drawn(place: str, kind: type[SecureSource], said: bool) -> None:
    """A module that takes itself to be elsewhere, up to its first step."""

    class EndedError(Exception):
        pass

    class Elsewhere(DPGM):
        device = torch.device(place)  # type: ignore[assignment]

        def training_step(self, *_: Any) -> None:
            raise EndedError

    module = Elsewhere(d=D, plan=plan(), config=DPGMConfig(**TINY), n_classes=K)
    curator = Curator(Ledger(None, delta=1e-5), source=kind())
    with pytest.raises(EndedError):
        trainer(PrivacyAccountant(curator)).fit(module, loader())
    assert (Fact.DEVICE_NOISE in {fact.fact for fact in module.facts}) == said


def paid_epochs(path: Path) -> int:
    with Ledger.open(path) as ledger:
        return {e.note: e.count for e in ledger.entries()}["training epochs"]


def test_epochs_of_random_allocation_are_charged_as_a_whole_and_not_parted(tmp_path: Path) -> None:
    """A signal ends training at the end of an epoch; a resumed run goes on there and pays for the epochs that are left."""
    path, ckpt = tmp_path / "l.jsonl", tmp_path / "last.ckpt"

    class Signal(Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
            if trainer.global_step == 3:
                os.kill(os.getpid(), signal.SIGUSR1)

    allocated(path, Signal(), Preemption(), Checkpoint(ckpt, every=1))
    assert SealedCheckpointIO().load_checkpoint(ckpt)["global_step"] == 4
    assert paid_epochs(path) == 2
    module = allocated(path, Checkpoint(ckpt, every=1), ckpt=ckpt)
    assert module.global_step == 6
    assert paid_epochs(path) == 3
    assert {Fact.SECRET_ALLOCATION, Fact.SECRET_SAMPLING} & {said.fact for said in module.facts} == {Fact.SECRET_ALLOCATION}


def test_an_epoch_that_a_checkpoint_parts_is_paid_for_twice(tmp_path: Path) -> None:
    """Its second half is drawn anew, so that a record may be in both."""
    path = tmp_path / "l.jsonl"
    allocated(path, SaveAt(3, tmp_path / "a.ckpt"), StopAt(3))
    allocated(path, ckpt=tmp_path / "a.ckpt")
    assert paid_epochs(path) >= 4


@pytest.mark.filterwarnings("ignore:DPNorm")
def test_an_older_ledger_or_a_foreign_one_is_refused_on_resume(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(None, delta=1e-5, path=path)
    before = path.read_bytes()
    start(ledger, SaveAt(4, tmp_path / "a.ckpt"), StopAt(4))
    ledger.close()
    path.write_bytes(before)
    with refused("checkpoint", error=LedgerError):
        start(Ledger.open(path), ckpt=tmp_path / "a.ckpt")
    with refused("checkpoint", error=LedgerError):
        start(Ledger(None, delta=1e-5), ckpt=tmp_path / "a.ckpt")


@pytest.mark.filterwarnings("ignore:DPNorm")
def test_no_secret_is_in_the_checkpoint(tmp_path: Path) -> None:
    start(Ledger(None, delta=1e-5, path=tmp_path / "l.jsonl"), SaveAt(4, tmp_path / "a.ckpt"), StopAt(4))
    saved = SealedCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")
    tensors = [v for v in torch.utils._pytree.tree_leaves(saved) if isinstance(v, Tensor)]
    assert all(v.shape[:1] != (N,) for v in tensors), "nothing per record is saved"


def test_two_runs_draw_different_noise_under_one_seed() -> None:
    L.seed_everything(0, verbose=False)
    first, _ = fitted()
    L.seed_everything(0, verbose=False)
    second, _ = fitted()
    assert not torch.equal(first.bank.theta, second.bank.theta)


# -- mixtures ----------------------------------------------------------------------------------------------------------


def test_weights_are_positive_parts_and_sum_to_one() -> None:
    model = tiny.mixture()
    assert torch.allclose(model.weights, torch.tensor([0.75, 0.0, 0.25]))
    model.counts = torch.tensor([-1.0, -2.0, 0.0])
    assert torch.allclose(model.weights, torch.full((3,), 1 / 3))


def test_clusters_appear_in_proportion_to_their_weights() -> None:
    samples = tiny.mixture().samples(4000, random_state=0)
    shares = torch.bincount(samples.cluster, minlength=3) / 4000
    assert torch.allclose(shares, torch.tensor([0.75, 0.0, 0.25]), atol=0.04)
    assert samples.x.dtype == torch.uint8
    assert set(samples.x.unique().tolist()) <= {0, 1}
    assert samples.cluster[:50].unique().numel() > 1, "records are in random order"


def test_pixels_have_the_means_of_their_component() -> None:
    model = tiny.mixture()
    for bias, expected in ((-50.0, 0), (50.0, 1)):
        model.bank.part("decoder.1.bias")[2].fill_(bias)
        assert set(model.samples(20, clusters=[2]).x.unique().tolist()) == {expected}
    mean = model.samples(3000, random_state=0, clusters=[0]).x.float().mean(0)
    truth = model.means(0, 3000, torch.Generator().manual_seed(1)).mean(0)
    assert torch.allclose(mean, truth, atol=0.06)


def test_chosen_clusters_only_even_if_their_size_is_negative() -> None:
    model = tiny.mixture()
    assert set(model.samples(50, clusters=[1]).cluster.tolist()) == {1}
    assert set(model.samples(200, clusters=[0, 2], random_state=0).cluster.tolist()) == {0, 2}


def test_rounding_to_the_nearer_bit_is_a_function_of_the_mean() -> None:
    model = tiny.mixture()
    drawn, nearest = model.samples(200, random_state=1), model.samples(200, random_state=1, rounding="threshold")
    assert torch.equal(drawn.cluster, nearest.cluster)
    assert not torch.equal(drawn.x, nearest.x)


def test_labels_from_the_cluster_or_from_columns_or_none() -> None:
    by_cluster = tiny.mixture().samples(30)
    assert by_cluster.labels is not None
    assert torch.equal(by_cluster.labels, by_cluster.cluster)
    assert tiny.mixture(labelled_by=None).samples(30).labels is None

    model = tiny.mixture(labelled_by="columns", categories=4)
    model.bank.part("decoder.1.bias")[0, -4:] = torch.tensor([0.0, 0.0, 90.0, 0.0])
    samples = model.samples(30, clusters=[0])
    assert samples.labels is not None
    assert set(samples.labels.tolist()) == {2}
    assert samples.x.shape == (30, tiny.D), "label columns are not part of the record"


def test_unknown_clusters_are_refused() -> None:
    for clusters in ([], [3], [-1], [0, 7]):
        with refused("[0, 3)"):
            tiny.mixture().samples(5, clusters=clusters)
