"""Diffusion (DPDM, Dockhorn et al. 2023): a U-Net takes noise off digits. `examples/diffusion.py EPSILON DIR`: MNIST."""

import sys

import lightning as L
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import dpgen


class Denoiser(L.LightningModule):
    """F(cos(t) x + sin(t) n, t, y) is trained to be cos(t) n - sin(t) x, of images x of classes y and noise n; F is a U-Net."""

    def __init__(self, side: int, w: int = 24) -> None:
        super().__init__()
        self.save_hyperparameters()
        layers = [nn.Conv2d(2, w, 4, 2, 1), nn.Conv2d(w, 2 * w, 4, 2, 1), *(nn.Conv2d(2 * w, 2 * w, 3, 1, 1) for _ in range(2))]
        layers += [nn.ConvTranspose2d(2 * w, w, 4, 2, 1), nn.Conv2d(w, w, 3, 1, 1)]
        blocks = ((layer, nn.GroupNorm(4, layer.out_channels), nn.Linear(26, layer.out_channels)) for layer in layers)
        self.blocks = nn.ModuleList(map(nn.ModuleList, blocks))
        self.canvas, self.last = nn.Linear(26, side**2), nn.ConvTranspose2d(w, 1, 4, 2, 1)

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        waves = t.flatten(1) * 2.0 ** torch.arange(8.0)
        code = torch.cat([waves.sin(), waves.cos(), nn.functional.one_hot(y, 10)], 1)
        h, seen = torch.cat([x, self.canvas(code).view_as(x)], 1), {}
        for i, (layer, norm, told) in enumerate(self.blocks):
            seen[i] = h = nn.functional.silu(norm(layer(h)) + told(code)[:, :, None, None]) + seen.get(4 - i, 0.0)  # shortcuts
        return self.last(h)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        x, y = (v.repeat_interleave(4, 0) for v in batch)  # a record's loss is the mean over its noisy copies
        t, n = (0.5 + 1.2 * torch.randn(len(x), 1, 1, 1)).exp().atan(), torch.randn_like(x)
        return (self(t.cos() * x + t.sin() * n, t, y) - (t.cos() * n - t.sin() * x)).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=4e-3)

    @torch.no_grad()
    def sample(self, y: Tensor, steps: int = 20) -> Tensor:
        x, angles = torch.randn(len(y), 1, self.hparams.side, self.hparams.side), torch.linspace(1.5, 0.0, steps + 1)
        for t, turn in zip(angles, -angles.diff()):  # from noise to images
            x = turn.cos() * x - turn.sin() * self(x, t.expand(len(y), 1, 1, 1), y)
        return x > 0


epsilon, *root = sys.argv[1:] or ["10"]
batch, steps, micro = (500, 300, 16) if root else (200, 30, 256)
records = dpgen.data.load_mnist(data_root=root[0]) if root else dpgen.data.load_digits()
images, plain = (2.0 * records.x - 1).view(-1, 1, *records.image_shape) / 0.6, {"logger": False, "enable_checkpointing": False}
made = Denoiser(images.shape[-1]), DataLoader(TensorDataset(images, records.labels), batch_size=batch)
with dpgen.quiet_training():  # averaging the last weights costs no epsilon
    trainer = L.Trainer(max_steps=steps, accelerator="cpu", callbacks=[EMAWeightAveraging(decay=0.97)], **plain)
    module, loader, trainer = dpgen.make_private(*made, trainer, epsilon=float(epsilon), max_grad_norm=0.3, micro_batch=micro)
    trainer.fit(module, loader)
print(dpgen.release(module, "diffusion_model"))
print("\n".join("".join(".#"[int(pixel)] for pixel in row) for row in torch.cat(tuple(module.sample(torch.arange(10))), 2)[0]))
