"""A warm start does not lose: what training made is released only where the records prefer it, which is paid for."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.runtime import Runtime
from dpgen.systems.dp_sgd.choice import CHOICE, Judge, trained_is_better, vote_of, vote_sums
from dpgen.systems.dp_sgd.inputs import Inputs
from dpgen.systems.dp_sgd.training import KEPT
from dpgen.systems.dpgm.fit import fit as fit_dpgm
from dpgen.systems.dpgm.model import MixtureModel
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan
from dpgen.systems.marginals.model import ProductMixture

pytestmark = pytest.mark.usefixtures("quiet")


def release(*shares: float, **changes: Any) -> ProductMixture:
    """Classes of bits that are mostly ones or zeros."""
    p = torch.tensor(shares)[:, None].expand(2, tiny.D)
    options: dict[str, Any] = {"n_classes": 2, "noise_multiplier": 2.0} | changes
    return ProductMixture(p, torch.tensor([30.0, 30.0]), statement=tiny.statement(), **options)


RIGHT, HALF, WRONG = release(0.8, 0.2), release(0.5, 0.5), release(0.2, 0.8)


def decided(trained: ProductMixture, start: ProductMixture, *, labelled: bool = True) -> tuple[bool, Ledger]:
    data, ledger = tiny.records(labelled=labelled), Ledger(Budget(9.0, 1e-5))
    x, labels = data.x.repeat(5, 1), None if data.labels is None else data.labels.repeat(5)
    better = trained_is_better(
        trained,
        start,
        Inputs(x, labels),
        n_classes=2 * labelled,
        noise_multiplier=3.0,
        curator=Curator(ledger),
        generator=torch.Generator().manual_seed(0),
    )
    return better, ledger


@pytest.mark.parametrize("labelled", [True, False])
def test_the_model_of_the_records_is_chosen(labelled: bool) -> None:
    assert decided(RIGHT, HALF, labelled=labelled)[0]
    better, ledger = decided(HALF, RIGHT, labelled=labelled)
    assert not better
    assert [(e.note, e.event, e.count) for e in ledger.entries()] == [(CHOICE, gaussian_event(3.0), 1)]


def test_labels_decide_where_there_are_labels() -> None:
    assert decided(RIGHT, WRONG)[0]
    assert not decided(WRONG, RIGHT)[0]


def test_votes_of_equal_models_are_even() -> None:
    vote = vote_of(RIGHT, RIGHT, n_classes=2, generator=torch.Generator().manual_seed(0))
    data = tiny.records()
    assert abs(int(vote(data.x, data.labels).sum())) <= 5 * 2**20


def test_an_answer_that_was_paid_for_and_lost_keeps_the_start() -> None:
    _, ledger = decided(RIGHT, HALF)
    data = tiny.records()
    options: dict[str, Any] = {"n_classes": 2, "noise_multiplier": 3.0, "generator": torch.Generator()}
    assert not trained_is_better(RIGHT, HALF, Inputs.of(data), curator=Curator(ledger), **options)
    assert sum(entry.count for entry in ledger.entries()) == 1


def test_a_record_votes_alone_as_it_does_among_others() -> None:
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(300, 33, generator=generator) < 0.5).to(torch.uint8)
    judge = Judge(x, x[:, 0].long() + x[:, 1].long(), 3, generator)
    answers = judge.answers(x)
    assert set(answers.tolist()) == {0, 1, 2}
    assert torch.equal(answers, torch.cat([judge.answers(row[None]) for row in x]))
    w, b, v, c = judge._weights
    for part in (w, b, v, c):
        assert torch.equal(part * 2**20, (part * 2**20).round()), "sums of products are exact on this grid only"
        assert float(part.abs().max()) <= 8.0


def test_an_image_votes_alone_as_it_does_among_others() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (200, 48), generator=generator).to(torch.uint8)
    judge = Judge(x, (x[:, 0] > 127).long(), 2, generator, white=255)
    answers = judge.answers(x)
    assert float((answers == (x[:, 0] > 127)).double().mean()) > 0.7
    assert torch.equal(answers, torch.cat([judge.answers(row[None]) for row in x]))


def test_a_record_that_is_replaced_may_turn_its_vote_around() -> None:
    vote = vote_of(RIGHT, WRONG, n_classes=2, generator=torch.Generator().manual_seed(0))
    ones, labels = torch.ones(1, tiny.D, dtype=torch.uint8), torch.tensor([0])
    known, unknown = vote_sums(ones, labels, vote), vote_sums(ones, 1 - labels, vote)
    assert float((known.values - unknown.values) * known.step) == known.under("replace_one") == 2.0


def test_no_vote_counts_more_than_one() -> None:
    data = tiny.records()
    loud = vote_sums(data.x[:1], None, lambda x, labels: torch.full((len(x),), 2**40))
    assert float(loud.values[0] * loud.step) == loud.sensitivity == 1.0


def fitted(directory: Path, start: ProductMixture, **options: Any) -> tuple[Any, Ledger]:
    start.save(directory / "release")
    plan = DPGMPlan(epsilon=6.0, steps=3, sampling_rate=0.5)
    config = DPGMConfig(hidden=3, latent=1, warm_start=directory / "release", warm_start_steps=1, **options)
    ledger = plan.open_ledger()
    runtime = Runtime(run_dir=directory, accelerator="cpu", progress_bar=False)
    return fit_dpgm(tiny.records(), plan=plan, config=config, curator=Curator(ledger), runtime=runtime), ledger


def test_the_start_is_released_with_the_statement_of_the_run(tmp_path: Path) -> None:
    model, ledger = fitted(tmp_path, RIGHT)
    assert isinstance(model, ProductMixture)
    assert torch.equal(model.samples(50, random_state=1).x, RIGHT.samples(50, random_state=1).x)
    assert KEPT in model.statement.not_covered
    assert 5.9 < model.statement.epsilon <= 6.0
    assert {m["note"] for m in model.statement.mechanisms} >= {CHOICE, "training steps"}
    assert model.noise_multiplier == 0.0, "what it rests on now is not the one Gaussian of its fit"
    assert RIGHT.noise_multiplier == 2.0
    assert sum(entry.note == CHOICE for entry in ledger.entries()) == 1


def test_a_trained_model_is_released_in_any_case_if_asked_for(tmp_path: Path) -> None:
    model, ledger = fitted(tmp_path, RIGHT, warm_start_keep="trained")
    assert isinstance(model, MixtureModel)
    assert not any(entry.note == CHOICE for entry in ledger.entries())
    assert 5.9 < ledger.epsilon() <= 6.0
