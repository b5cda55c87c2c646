"""The common interface: every sampler keeps its contract, is saved as a public object, and refuses bad users."""

import copy
import pickle
from functools import partial
from pathlib import Path

import pytest
import torch
from finite_cases import EXCESS, dirichlet, ldp_excess, sampler, users
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.systems.local.boxes import ParkSampler, RelativeMollifier
from dpgen.systems.local.fit import SAMPLERS
from dpgen.systems.local.model import FiniteSampler, load_mechanism
from dpgen.systems.local.plan import LocalPlan

Q = dirichlet(6, seed=0)
ALL = {
    **{name: sampler(name, 1.5, Q) for name in SAMPLERS},
    "bounded": ParkSampler(1.5, Q, density_bounds=(0.1, 4.0)),
}


def test_every_sampler_is_here() -> None:
    assert {type(value) for value in ALL.values()} == set(FiniteSampler.kinds.values())
    assert all(SAMPLERS[name] is FiniteSampler.kinds[name] for name in SAMPLERS)


@pytest.fixture(params=list(ALL))
def mechanism(request: pytest.FixtureRequest) -> FiniteSampler:
    return ALL[request.param]


def test_contract(mechanism: FiniteSampler) -> None:
    p = users(6, seed=9)
    before = p.clone()
    out = mechanism.apply(p)
    assert torch.equal(p, before)
    assert out.dtype == torch.float64
    assert out.shape == p.shape
    assert float((out.sum(1) - 1).abs().max()) <= EXCESS
    assert ldp_excess(out, mechanism.epsilon) <= EXCESS
    assert torch.allclose(mechanism.apply(p[3]), out[3], rtol=1e-15, atol=0)
    assert torch.allclose(mechanism.apply(p.float()), out, rtol=0, atol=1e-6), "float32 in, float64 inside"
    assert torch.allclose(mechanism.apply(p.T.contiguous().T), out, rtol=0, atol=1e-15), "strides do not matter"
    assert mechanism.apply(p[:0]).shape == (0, 6)


def test_draws(mechanism: FiniteSampler) -> None:
    p = users(6, seed=9)
    one, many = (mechanism.sample(x, k=k, secrets=SecureSource()) for x, k in ((p[0], 3), (p, 2)))
    assert (one.shape, many.shape, many.dtype) == ((3,), (2, len(p)), torch.int64)
    assert mechanism.sample(p[0], k=0, secrets=SecureSource()).shape == (0,)
    assert bool(((many >= 0) & (many < 6)).all())
    with pytest.raises(TypeError, match="source must be a SecureSource, got Generator"):
        mechanism.sample(p, secrets=torch.Generator())  # type: ignore[arg-type]


def test_saved_and_loaded(mechanism: FiniteSampler, tmp_path: Path) -> None:
    mechanism.save(tmp_path / "public")
    loaded = load_mechanism(tmp_path / "public")
    assert type(loaded) is type(mechanism)
    assert repr(loaded) == repr(mechanism)
    assert {p.name for p in (tmp_path / "public").iterdir()} == {"mechanism.json", "mechanism.safetensors"}
    p = users(6, seed=1)
    assert torch.equal(loaded.apply(p), mechanism.apply(p))
    again = type(mechanism)(**mechanism.get_params())
    assert torch.equal(again.apply(p), mechanism.apply(p))


@pytest.mark.parametrize(
    ("p", "match"),
    [
        (torch.ones(5) / 5, r"P has shape \(5,\); it must be \(6,\) or \(u, 6\), one column per public category"),
        (torch.full((6,), float("nan")), "entry nan"),
        (torch.tensor([1.2, -0.2, 0, 0, 0, 0]), "entry -0.2"),
        (torch.ones(2, 6), "sum is off 1 by 5"),
    ],
)
def test_bad_users(mechanism: FiniteSampler, p: Tensor, match: str) -> None:
    for use in (mechanism.apply, partial(mechanism.sample, secrets=SecureSource())):
        with pytest.raises(ValueError, match=match):
            use(p)


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_bad_parameters(name: str) -> None:
    for epsilon in (0.0, -1.0, 701.0, float("nan")):
        with pytest.raises(ValueError, match="epsilon is"):
            sampler(name, epsilon, Q)
    with pytest.raises(ValueError, match="n >= 2"):
        sampler(name, 1.0, torch.ones(1))


def test_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no mechanism"):
        load_mechanism(tmp_path)
    ALL["minimax"].save(tmp_path)
    card = tmp_path / "mechanism.json"
    good = card.read_text()
    for bad, match in (
        (good.replace("1.5", "0.5"), "does not match the checksum"),
        (good.replace('"minimax"', '"mechanism"'), "kind 'mechanism'"),
        (good[:20], "damaged mechanism"),
        ("[]", "damaged mechanism"),
    ):
        card.write_text(bad)
        with pytest.raises(ValueError, match=match):
            load_mechanism(tmp_path)
    card.write_text(good)
    (tmp_path / "mechanism.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="checksum"):
        load_mechanism(tmp_path)


# -- bound to users: every draw is paid for and nothing can be saved or seen --------------------------------------------

USERS = dirichlet(5, seed=1, rows=4)
BOUND = RelativeMollifier(0.5, 5)


def test_each_draw_is_charged_once_for_all_users() -> None:
    ledger = LocalPlan(epsilon=1.5, draws=3).open_ledger()
    sampler = BOUND.bind(USERS, Curator(ledger))
    assert sampler.sample(2).shape == (2, 4)
    assert ledger.epsilon() == pytest.approx(1.0, abs=1e-9)
    sampler.sample()
    assert ledger.epsilon() == pytest.approx(1.5, abs=1e-9)
    with pytest.raises(BudgetExceeded, match="mollifier sampler, one draw"):
        sampler.sample()
    assert [(e.note, e.count) for e in ledger.entries()] == [("mollifier sampler, one draw", 3)]


def test_one_user() -> None:
    ledger = LocalPlan(epsilon=0.5).open_ledger()
    assert BOUND.bind(USERS[0], Curator(ledger)).sample().shape == (1,)


def test_nothing_shows_the_distribution() -> None:
    sampler = BOUND.bind(USERS, Curator(LocalPlan(epsilon=0.5).open_ledger()))
    for refuse in (pickle.dumps, copy.copy, copy.deepcopy, lambda s: s.state_dict(), lambda s: s.save("x")):
        with pytest.raises(TypeError, match="cannot be saved"):
            refuse(sampler)
    assert "tensor" not in repr(sampler)
    assert [name for name in dir(sampler) if not name.startswith("_")] == [
        "draw",
        "epsilon",
        "event",
        "mechanism",
        "sample",
        "save",
        "state_dict",
    ]


def test_bad_ledgers_and_users() -> None:
    with pytest.raises(ValueError, match="relation 'add_remove'; a local sampler needs 'replace_one'"):
        BOUND.bind(USERS, Curator(Ledger(Budget(1.0, 1e-5))))
    ledger = LocalPlan().open_ledger()
    with pytest.raises(ValueError, match="P has an entry"):
        BOUND.bind(torch.tensor([1.5, -0.5, 0, 0, 0]), Curator(ledger))
    assert ledger.entries() == []
