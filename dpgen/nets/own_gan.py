"""Generators and critics of your own: the critic is trained on private records, the generator is what is released."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from dpgen.facts import Fact
from dpgen.nets.bank import RecordGradients
from dpgen.nets.gan import critic_loss
from dpgen.nets.generic import GenericBank, require_unmixed
from dpgen.nets.own import OwnClass, close, require_means

GENERATOR, CRITIC = ("sample",), ("score",)
"""Methods of an `GeneratorNetwork` and an `CriticNetwork`."""

_RECORDS = 4


class GeneratorNetwork(Protocol):
    """What a generator of your own is: a class of `nn.Module` that others can import.

    It is built as `cls(d=d, **generator_options)`; where records have labels as `cls(d=d, categories=c, **generator_options)`.
    It never sees a record, so BatchNorm and dropout are allowed.

    Attributes:
        latent: how many standard normals a record is made of, at least 1.
    """

    latent: int

    def sample(self, z: Tensor) -> Tensor:
        """Records (n, d) made of z (n, latent + c), the one-hot labels last: in [0, 1], or any numbers for points."""


class CriticNetwork(Protocol):
    """What a critic of your own is: a class of `nn.Module` that others can import, built like a `GeneratorNetwork`.

    What draws random numbers (dropout) or looks at other records (BatchNorm) is refused. It is trained on private records and
    is not released.
    """

    def score(self, x: Tensor) -> Tensor:
        """Score (b,) of records x (b, d + c), the one-hot labels last: of each row from that row alone, high for real ones."""


class OwnGenerator(nn.Module):
    """A generator of your own behind the interface of `dpgen.nets.gan.Generator`.

    The class is built and tried on random noise first: what could not be released is refused before anything is spent.

    Arguments:
        d: columns of a record, label not counted.
        network: the class, see `GeneratorNetwork`, or the import path of one that is imported already.
        network_options: keyword arguments of the class.
        categories: number of labels, 0 without.
        image_shape: of images.
        output: "sigmoid" (values in [0, 1], which is checked) or "identity".

    Raises:
        ValueError: a class that cannot be imported or built, or that is no `GeneratorNetwork`.
        ImportError: a path whose class has not been imported.
    """

    module: Any

    def __init__(
        self,
        d: int,
        *,
        network: type[nn.Module] | str,
        network_options: Mapping[str, Any] | None = None,
        categories: int = 0,
        image_shape: tuple[int, ...] | None = None,
        output: str = "sigmoid",
    ) -> None:
        super().__init__()
        self._own = _own_class(network, GENERATOR, network_options, d, categories)
        self.d, self.categories, self.image_shape, self.output = d, categories, image_shape, output
        self.module = self._own.built(seed=0)
        self.latent = self._own.require_latent(self.module)
        self._own.require_parameters(self.module)
        self._unused = (copy.deepcopy(self.module),)  # in a tuple, for it is no part of this one
        self.facts = (Fact.OWN_GENERATOR(path=self._own.path),)
        self._try()

    def _try(self) -> None:
        """Try it on random noise, and one that is built again with its values."""
        again = self._own.built(seed=1)
        self._own.take_over(again, self.module.state_dict())
        z, own = self._noise(), self._own
        x, other = (own.called(module.train(False), "sample", (z,), (len(z), self.d)) for module in (self.module, again))
        if self.output == "sigmoid":
            require_means(own, x)
        if not torch.equal(x, own.called(self.module, "sample", (z,), (len(z), self.d))):
            raise own.refusal("its sample is another one when it is taken again in eval(): it must be a function of z alone")
        if not close(x, other):
            raise own.refusal(
                "built again, with the same parameters and buffers, it is another one: what it draws must be one of these"
            )
        with torch.random.fork_rng(devices=[]):  # of dropout
            trained = own.called(copy.deepcopy(self._unused[0]).train(), "sample", (z,), (len(z), self.d))
        if not trained.requires_grad:
            raise own.refusal("its sample has no gradient, so nothing can be learnt: it must not be computed under no_grad")
        self.module.train()

    def _noise(self) -> Tensor:
        """Random noise and labels (4, latent + categories), the same each time."""
        z = torch.randn(_RECORDS, self.latent, generator=torch.Generator().manual_seed(0))
        return self._coded(z, torch.arange(_RECORDS) % max(self.categories, 1))

    def _coded(self, z: Tensor, labels: Tensor | None) -> Tensor:
        if not self.categories:
            return z
        assert labels is not None
        return torch.cat([z, one_hot(labels, self.categories).to(z)], 1)

    def initialize(self, generator: torch.Generator) -> None:
        """Build the class anew from public randomness."""
        self.module.load_state_dict(self._own.drawn(generator).state_dict())

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """Records (m, d), followed by the one-hot labels (m, categories) if there are any."""
        coded = self._coded(z, labels)
        x: Tensor = self.module.sample(coded)
        return torch.cat([x, coded[:, self.latent :]], 1) if self.categories else x

    def architecture(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this generator."""
        names = ("d", "categories", "image_shape", "output")
        described = {name: getattr(self, name) for name in names}
        return {"network": self._own.path, "network_options": self._own.options, **described}

    def released(self, values: Mapping[str, Tensor]) -> "OwnGenerator":
        """The generator with these values, not tried again: what has been paid for is released."""
        made = OwnGenerator.__new__(OwnGenerator)
        nn.Module.__init__(made)
        made.__dict__.update({name: value for name, value in vars(self).items() if not name.startswith("_") or name == "_own"})
        made.module, made._unused = copy.deepcopy(self._unused[0]), self._unused
        made.load_state_dict(values)
        return made

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **options: Any) -> Any:
        """See `nn.Module`.

        Raises:
            ImportError: the class has changed since the values were saved.
        """
        self._own.require_same_shapes(state_dict, self.state_dict(), inside="module.")
        return super().load_state_dict(state_dict, *args, **options)


class _Scored(nn.Module):
    """A critic with the losses of an adversarial network."""

    module: Any

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def score(self, x: Tensor) -> Tensor:
        scores: Tensor = self.module.score(x)
        return scores

    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        return critic_loss(self.score(x), real=True)

    def fake_loss(self, x: Tensor, z: Tensor) -> Tensor:
        return critic_loss(self.score(x), real=False)


class OwnCriticBank(GenericBank):
    """A critic of your own; its gradients per record are materialised by `torch.func`, and nothing of it is released.

    The class is built and tried on random records first: what could not be trained privately is refused.

    Arguments:
        d: columns of a record, label not counted.
        network: the class, see `CriticNetwork`, or the import path of one that is imported already.
        network_options: keyword arguments of the class.
        categories: number of labels, 0 without.

    Raises:
        ValueError: a class that cannot be imported or built, or that is no `CriticNetwork`.
        ImportError: a path whose class has not been imported.
    """

    template: _Scored

    def __init__(
        self,
        d: int,
        *,
        network: type[nn.Module] | str,
        network_options: Mapping[str, Any] | None = None,
        categories: int = 0,
    ) -> None:
        self._own = own = _own_class(network, CRITIC, network_options, d, categories)
        module = own.built(seed=0)
        require_unmixed(module)
        own.require_parameters(module)
        super().__init__(1, _Scored(module))
        self.facts = (Fact.OWN_CRITIC(path=own.path),)
        x = torch.rand(_RECORDS, d, generator=torch.Generator().manual_seed(0))
        if categories:
            x = torch.cat([x, one_hot(torch.arange(_RECORDS) % categories, categories).to(x)], 1)
        with torch.no_grad():
            own.per_record(self.template.module, "score", (x,))
            own.try_gradients(self, "score", x, x.new_zeros(_RECORDS, 1))

    def initialize(self, generator: torch.Generator) -> None:
        """Build the class anew from public randomness."""
        self.template.module.load_state_dict(self._own.drawn(generator).state_dict())
        super().initialize(generator)

    def fake_gradients(self, x: Tensor, bounds: Sequence[int]) -> RecordGradients:
        """See `dpgen.nets.gan.CriticBank.fake_gradients`."""
        return self.record_gradients("fake_loss", x, bounds, x.new_zeros(len(x), 1))

    def score(self, x: Tensor, bounds: Sequence[int]) -> Tensor:
        """See `dpgen.nets.gan.CriticBank.score`."""
        return self._call("score")(self.theta[0].detach(), x)


def _own_class(
    network: type[nn.Module] | str, methods: tuple[str, ...], options: Mapping[str, Any] | None, d: int, categories: int
) -> OwnClass:
    return OwnClass(network, methods, options, d=d, **({"categories": categories} if categories else {}))
