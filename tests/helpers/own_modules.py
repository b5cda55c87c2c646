"""LightningModules as people bring them: a classifier, a generator, and many with a single fault."""

import warnings
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torchmetrics.classification import MulticlassAccuracy

D = 6


class Classifier(L.LightningModule):
    """Three classes, with dropout and a frozen layer."""

    def __init__(self, hidden: int = 8, optimizer: str = "SGD", lr: float = 1.0) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.frozen = nn.Linear(D, D).requires_grad_(False)
        self.layers = nn.Sequential(nn.Linear(D, hidden), nn.Tanh(), nn.Dropout(0.1), nn.Linear(hidden, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.frozen(x))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        loss = cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return {"loss": loss}

    def configure_optimizers(self) -> Any:
        kind = getattr(torch.optim, self.hparams["optimizer"])
        optimizer = kind([p for p in self.parameters() if p.requires_grad], lr=self.hparams["lr"])
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}


class Generator(L.LightningModule):
    """An autoencoder of records in a mapping, with random numbers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(D, 4), nn.Linear(2, D)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        mean, log_var = self.encoder(batch["x"]).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (log_var / 2).exp()
        return (self.decoder(z) - batch["x"]).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def sample(self, n: int) -> Tensor:
        return self.decoder(torch.randn(n, 2))


class Batched(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.layers.append(nn.BatchNorm1d(3))


class Packed(L.LightningModule):
    """Sequences of words of several lengths through an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer, self.linear = nn.Embedding(9, 5), nn.LSTM(5, 4, batch_first=True), nn.Linear(4, 3)

    def training_step(self, batch: Any) -> Tensor:
        words, lengths, y = batch
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(words), lengths, batch_first=True, enforce_sorted=False)
        return cross_entropy(self.linear(self.layer(packed)[1][0][-1]), y)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1.0)


class Metered(Classifier):
    """A metric of torchmetrics in a step, which is looked at after every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.accuracy = MulticlassAccuracy(3)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        made = super().training_step(batch, batch_idx)
        self.log("accuracy", self.accuracy(self(batch[0]), batch[1]))
        return made


class Learnt(Metered):
    """A loss that is a metric."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx)["loss"] + self.accuracy(self(batch[0]), batch[1])


class Grouped(Classifier):
    """Groups of parameters with rates of their own; or an optimizer for each, in one of Lightning's forms."""

    several = 0

    def configure_optimizers(self) -> Any:
        weights = [self.layers[0].weight, self.layers[3].weight]
        biases = [self.layers[0].bias, self.layers[3].bias]
        if not self.several:
            return torch.optim.SGD([{"params": weights, "lr": 0.5}, {"params": biases}], lr=1.0)
        made = [torch.optim.SGD(weights, lr=0.5), torch.optim.SGD(biases, lr=1.0)]
        return (made, []) if self.several == 1 else made if self.several == 2 else tuple({"optimizer": one} for one in made)


class Summed(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return cross_entropy(self(batch[0]), batch[1], reduction="sum")


class Meter:
    def __init__(self) -> None:
        self.total = torch.zeros(())


class Averaging(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)["loss"]
        self.meter.total = self.meter.total + loss.detach()
        return loss


class Stateful(Classifier):
    def get_extra_state(self) -> Any:
        return {"seen": 0}

    def set_extra_state(self, state: Any) -> None:
        pass


class Writing(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.logger.experiment.add_scalar("loss", 1.0)
        return super().training_step(batch, batch_idx)


class Manual(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Moving(Classifier):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch


class Frozen(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)


class Thawing(Classifier):
    def on_train_epoch_start(self) -> None:
        self.frozen.requires_grad_(self.current_epoch > 0)


class Replacing(Classifier):
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.global_step == 2:
            self.layers[3] = nn.Linear(8, 3)


class Exploding(Classifier):
    def on_before_zero_grad(self, optimizer: Any) -> None:
        with torch.no_grad():
            self.layers[0].weight.fill_(torch.nan if self.global_step == 2 else 0.1)


class Patient(Classifier):
    """Keeps a frozen weight until training has begun."""

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.frozen.weight.data += 1.0


class Plain(L.LightningModule):
    """Without random numbers, logs and `batch_idx`."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, 3)

    def training_step(self, batch: Any) -> Tensor:
        x, y = batch
        return self.loss(self.linear(x), x, y)

    def loss(self, scores: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(scores, y, weight=torch.tensor([1.0, 1.0, 9.0]))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1.0)


class Guarding(Plain):
    def loss(self, scores: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return torch.nan_to_num(mse_loss(scores, x[:, :3]))


class Capping(Plain):
    def loss(self, scores: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return mse_loss(scores, x[:, :3]).clamp(max=20.0)


class Masking(Plain):
    def loss(self, scores: Tensor, x: Tensor, y: Tensor) -> Tensor:
        known = (y >= 0).float()
        return (cross_entropy(scores, y.clamp_min(0), reduction="none") * known).sum() / known.sum().clamp_min(1.0)


class Sharpening(Plain):
    """Takes a second gradient of a draw, as sharpness-aware optimizers do."""

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        optimizer_closure()
        optimizer.step(closure=optimizer_closure)


class Late(Plain):
    """Keeps a mean of records from its second step on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(D))

    def training_step(self, batch: Any) -> Tensor:
        if self.global_step:
            self.centre = batch[0].mean(0)
        return super().training_step(batch)


class Diffusion(Plain):
    """Draws a time for each record, and noise."""

    def training_step(self, batch: Any) -> Tensor:
        x = batch[0]
        time = torch.randint(1, 10, (len(x), 1)) / 10
        noise = torch.normal(0.0, 1.0, x.shape)
        return mse_loss(self.linear(x * time + noise * (1 - time)), noise[:, :3])


class Sampling(Plain):
    """Draws as a variational autoencoder does."""

    def training_step(self, batch: Any) -> Tensor:
        code = torch.distributions.Normal(self.linear(batch[0]), 1.0)
        return mse_loss(code.rsample(), batch[0][:, :3])


class Mixing(Plain):
    def training_step(self, batch: Any) -> Tensor:
        x, y = batch
        return cross_entropy(self.linear(0.9 * x + 0.1 * x[torch.randperm(len(x))]), y)


class Printing(Plain):
    """Tells in every way how many records it sees."""

    def training_step(self, batch: Any) -> Tensor:
        print(f"secret {len(batch[0])}")
        self.print(f"secret {len(batch[0])}")
        warnings.warn(f"secret {len(batch[0])}", stacklevel=1)
        return super().training_step(batch)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.log("batch", float(len(batch)), on_step=True)


class Coded(Plain):
    """Looks codes up, of which some are out of range, and tells of them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, D)

    def training_step(self, batch: Any) -> Tensor:
        try:
            return cross_entropy(self.linear(self.embed(batch[1]) + batch[0]), batch[1].clamp(0, 2))
        except IndexError as error:
            raise KeyError(f"secret {batch}") from error
