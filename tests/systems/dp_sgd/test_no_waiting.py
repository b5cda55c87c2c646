"""No step asks a device for a number: run on the device `meta`, whose tensors have a shape but no values."""

import contextlib
from typing import Any

import pytest
import torch
from torch import nn

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.sampling import Batch, PoissonMask
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

D, K, B = 16, 3, 11
CONFIGS: dict[str, dict[str, Any]] = {
    "vae": {},
    "vae dpnorm": {"clipping": "dpnorm"},
    "vae dpnorm, micro-batches": {"clipping": "dpnorm", "micro_batch": 4},
    "conv_vae": {"component": "conv_vae", "frequencies": 0},
    "rbm fixed": {"component": "rbm", "latent": DPGMConfig.latent, "clipping": "fixed"},
}


def built(**options: Any) -> DPGM:
    plan = DPGMPlan(sampling_rate=0.5, steps=6, sigma_sgd=1.0, sigma_count=5.0)
    module = DPGM(
        d=D,
        plan=plan,
        config=DPGMConfig(hidden=3, optimizer="sgd", **({"latent": 1} | options)),
        n_classes=K,
        image_shape=(4, 4),
    )
    module.policy = module.config.clipping_callback(module.plan)
    module.policy.begin(K)
    module.bank.begin_step()
    module.serve(Curator(Ledger(None, delta=1e-5)))
    module.measure(D)  # a device is waited for when training begins
    return module


def move(module: DPGM, device: str) -> None:
    """As `module.to(device)` would; a device without values has nothing to copy."""
    module.bank.theta = nn.Parameter(torch.zeros(module.bank.theta.shape, device=device))
    for name, buffer in dict(module.bank.named_buffers()).items():
        setattr(module.bank, name, torch.zeros(buffer.shape, dtype=buffer.dtype, device=device))
    module._device = torch.device(device)
    for owner in (module, module.policy):
        for name, value in vars(owner).items():
            if isinstance(value, torch.Tensor):
                setattr(owner, name, torch.zeros(value.shape, dtype=value.dtype, device=device))
    module.partition.sizes = torch.zeros(K)


def step(module: DPGM, device: str, *, sizes: tuple[int, ...] | None) -> None:
    """Everything between the draw and the new parameters, twice: the first step may move what later ones find in place."""
    ids = torch.zeros(B, dtype=torch.int64, device=device)
    batch = Batch(torch.zeros(B, D, device=device), ids, ids, sizes=sizes)
    curator = Curator(Ledger(None, delta=1e-5))
    module.serve(curator)
    rows = module.configure_optimizers()
    module.optimizers = lambda *_: rows  # type: ignore[method-assign, assignment]
    for _ in range(2):
        module.bank.begin_step()
        draw = curator.draw("training steps", PoissonMask(0.5), module.parts())
        assert draw is not None
        with draw:
            module.descend(module.noisy_sums(batch, draw, out=torch.empty_like(module.bank.theta), averaged=True))


@pytest.fixture
def meta(monkeypatch: pytest.MonkeyPatch) -> None:
    """What exists for CPUs and CUDA only: autocast. Copies from the CPU stay possible."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(torch, "_assert_async", lambda *_: None)


def run(module: DPGM, sizes: tuple[int, ...] | None) -> None:
    move(module, "meta")
    bank: Any = module.bank
    if hasattr(bank, "_chain_generator"):
        bank._chain_generator = lambda: torch.Generator()  # this device has none
    step(module, "meta", sizes=sizes)


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_does_not_wait_for_the_device(name: str) -> None:
    run(built(**CONFIGS[name]), (4, 0, 7))


@pytest.mark.usefixtures("meta")
def test_the_check_catches_a_step_that_waits() -> None:
    """Without the sizes that the loader sends along, the device would be asked for them."""
    with pytest.raises(RuntimeError, match="Meta tensors"):
        run(built(), None)

    class Asking(DPGM):
        def descend(self, gradients: torch.Tensor) -> None:
            assert float(gradients.abs().max()) < 1e9
            super().descend(gradients)

    module = built()
    module.__class__ = Asking
    with pytest.raises(RuntimeError, match=r"item\(\) cannot be called on meta tensors"):
        run(module, (4, 0, 7))


@pytest.mark.gpu
@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_does_not_wait_for_a_real_device(name: str) -> None:
    module = built(**CONFIGS[name]).to("cuda")
    step(module, "cuda", sizes=(4, 0, 7))
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(module, "cuda", sizes=(4, 0, 7))
    finally:
        torch.cuda.set_sync_debug_mode("default")
