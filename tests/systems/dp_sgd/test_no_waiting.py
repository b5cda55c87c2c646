"""No step asks a device for a number: run on the device `meta`, whose tensors have a shape but no values."""

import contextlib
from typing import Any

import lightning as L
import own_modules
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dpgen
from dpgen.nets.per_record import PerRecord
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.sampling import Batch, PoissonMask
from dpgen.systems.dpgan.fit import DPGAN
from dpgen.systems.dpgan.plan import DPGANConfig, DPGANPlan
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

D, K, B = 16, 3, 11
NETS, GAN = {"hidden": 3, "latent": 1}, {"fakes": 8}
CONFIGS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "vae": (DPGM, NETS),
    "vae dpnorm": (DPGM, NETS | {"clipping": "dpnorm"}),
    "vae dpnorm, micro-batches": (DPGM, NETS | {"clipping": "dpnorm", "micro_batch": 4}),
    "rbm fixed": (DPGM, {"hidden": 3, "component": "rbm", "clipping": "fixed"}),
    "conv_vae": (DPGM, NETS | {"component": "conv_vae", "frequencies": 0}),
    **{f"own {name}": (DPGM, {"network": f"own_networks:{name}"}) for name in ("Good", "Convolutional", "Classifier")},
    "gan": (DPGAN, NETS | GAN),
    "gan, a critic for each label": (DPGAN, NETS | GAN | {"centred": True}),
    "own gan": (DPGAN, GAN | {"network": ("own_gans:Maker", "own_gans:Judge")}),
}


def built(name: str = "vae") -> Any:
    kind, options = CONFIGS[name]
    plan, config = (DPGMPlan, DPGMConfig) if kind is DPGM else (DPGANPlan, DPGANConfig)
    sizes: Any = {"sampling_rate": 0.5, "steps": 6, "noise_multiplier": 1.0, "sigma_count": 5.0}
    module = kind(d=D, plan=plan(**sizes), config=config(**options), n_classes=K, image_shape=(4, 4))
    module.policy = module.config.clipping_callback(module.plan)
    module.policy.begin(module.bank.k)
    module.bank.begin_step()
    module.serve(Curator(Ledger(None, delta=1e-5)))
    module.measure(D)  # a device is waited for when training begins
    return module


def rebind(own: PerRecord) -> None:
    """To parameters that have moved: those of a device without values are others."""
    own.values = {name: own.module.get_parameter(name) for name in own.values}


def move(module: Any, device: str) -> None:
    """As `module.to(device)` would; a device without values has nothing to copy."""
    module.bank.theta = nn.Parameter(torch.zeros(module.bank.theta.shape, device=device))
    for name, buffer in dict(module.bank.named_buffers(recurse=False)).items():
        setattr(module.bank, name, torch.zeros(buffer.shape, dtype=buffer.dtype, device=device))
    if hasattr(module.bank, "template"):
        module.bank.template.to(device)
        rebind(module.bank._per_record)
    if isinstance(module, DPGAN):
        module.generator.to(device)
        module.average = {name: value.to(device) for name, value in module.average.items()}
    module._device = torch.device(device)
    for owner in (module, module.policy):
        for name, value in vars(owner).items():
            if isinstance(value, torch.Tensor):
                setattr(owner, name, torch.zeros(value.shape, dtype=value.dtype, device=device))
    module.partition.sizes = torch.zeros(len(module.partition.sizes))


def step(module: Any, device: str, *, sizes: tuple[int, ...] | None) -> None:
    """Everything between the draw and the new parameters, twice: the first step may move what later ones find in place."""
    ids = torch.zeros(B, dtype=torch.int64, device=device)
    batch = Batch(torch.zeros(B, D, device=device), ids, ids, sizes=sizes)
    curator = Curator(Ledger(None, delta=1e-5))
    module.serve(curator)
    rows = module.configure_optimizers()
    module.optimizers = lambda *_: rows
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
    adam = torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda *rows, **options: adam(*rows, **options | {"fused": None}))


def run(module: Any, sizes: tuple[int, ...] | None) -> None:
    move(module, "meta")
    if hasattr(module.bank, "_chain_generator"):
        module.bank._chain_generator = lambda: torch.Generator()  # this device has none
    step(module, "meta", sizes=sizes)


def drawn(module: Any) -> tuple[int, ...]:
    return (4, 0, 7) if module.bank.k > 1 else (B,)


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_does_not_wait_for_the_device(name: str) -> None:
    module = built(name)
    run(module, drawn(module))


class Tagger(own_modules.Plain):
    """Words to classes through attention and an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.read = nn.Embedding(900, 4), nn.LSTM(4, own_modules.D, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def training_step(self, batch: Any) -> torch.Tensor:
        rows = self.embed(batch[0])
        rows = self.attention(rows, rows, rows, need_weights=False)[0]
        return nn.functional.cross_entropy(self.linear(self.read(rows)[0][:, -1]), batch[1])


@pytest.mark.usefixtures("meta", "quiet")
@pytest.mark.filterwarnings("ignore:what training_step logs")
@pytest.mark.parametrize("kind", [own_modules.Classifier, Tagger])
def test_a_step_of_a_lightning_module_does_not_wait_for_the_device(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(L.LightningModule, "log", lambda *_, **__: None)
    module, runner = kind(), L.Trainer(max_steps=9, accelerator="cpu", logger=False, enable_checkpointing=False)
    x = torch.zeros(B, 5).long() if kind is Tagger else torch.zeros(B, own_modules.D)
    data = TensorDataset(x, torch.arange(B) % 3)
    options: Any = {"noise_multiplier": 1.0, "sampling_rate": 0.5, "loss_noise": 5.0}
    _, loader, _ = dpgen.make_private(module, DataLoader(data, batch_size=2), runner, **options)
    own: Any = runner.callbacks[-1]  # type: ignore[attr-defined]
    own.clip_by(dpgen.callbacks.AutomaticClipping())
    own.policy.begin(1)
    own.serve(own.accountant.curator)
    own.partition.fit(own.records, None, curator=own.accountant.curator)
    own.partitioned, module.trainer = True, runner
    own.measure(1)
    own._loss_change = 0.0  # measured when training begins
    module.to("meta")
    rebind(own.bank.per_record)
    for batch in list(loader)[:2]:
        own.hide(batch._replace(x=batch.x.to("meta")), 0)
        own.backward(own.step(None, 0))
        assert all(value.grad is not None for value in own.bank.per_record.values.values())


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


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", CONFIGS)
def test_steps_on_every_device_give_finite_weights_and_do_not_wait(name: str, device: str) -> None:
    module, mode = built(name).to(device), torch.cuda.set_sync_debug_mode if device == "cuda" else str
    step(module, device, sizes=drawn(module))
    mode("error")
    try:
        step(module, device, sizes=drawn(module))
    finally:
        mode("default")
    assert bool(torch.isfinite(module.bank.theta).all())
