"""The common interface: every sampler keeps its contract, is saved as a public object, and refuses bad users."""

from pathlib import Path

import pytest
import torch
from finite_cases import EXCESS, dirichlet, ldp_excess, sampler, users
from torch import Tensor

from dpgen.systems.finite.boxes import ParkSampler
from dpgen.systems.finite.kernels import MechanismSampler, MinimaxSampler
from dpgen.systems.finite.local_draws import SAMPLERS
from dpgen.systems.finite.sampler import FiniteSampler, load_mechanism

Q = dirichlet(6, seed=0)
ALL = {
    **{name: sampler(name, 1.5, Q) for name in SAMPLERS},
    "mechanism": MechanismSampler(MinimaxSampler(1.5, Q).kernel()),
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
    one, many = mechanism.sample(p[0], k=3), mechanism.sample(p, k=2)
    assert (one.shape, many.shape, many.dtype) == ((3,), (2, len(p)), torch.int64)
    assert mechanism.sample(p[0], k=0).shape == (0,)
    assert bool(((many >= 0) & (many < 6)).all())
    with pytest.raises(TypeError, match="source must be a SecureSource, got Generator"):
        mechanism.sample(p, source=torch.Generator())  # type: ignore[arg-type]


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
    for use in (mechanism.apply, mechanism.sample):
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
        (good.replace('"minimax"', '"maximin"'), "kind 'maximin'; this version reads format 1 and the kinds"),
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
