"""Networks of your own: found by import path, tried before anything is spent, released as weights and JSON.

Gradients per record are those of `per_record`.
"""

import copy
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.nn.parameter import is_lazy

from dpgen.facts import Fact
from dpgen.nets.bank import ModelBank, Noise
from dpgen.nets.per_record import PerRecord, in_one_line, unseen
from dpgen.nets.trials import UnlikeAlone, settle
from dpgen.privacy.clipping import Factor, RecordGradients, segments


class Network(Protocol):
    """A network of your own: a class of `nn.Module` that others can import, built as `cls(d=d, **network_options)`.

    An encoder with a decoder, for example: `loss` uses both, `sample` the decoder alone. d counts the columns of a record;
    where labels are columns, their one-hot code comes last.

    What draws random numbers of its own (dropout) or looks at other records (BatchNorm) is refused: the random numbers of a
    record are z. Parameters with `requires_grad=False` and buffers are public, and stay as they were built.

    Attributes:
        latent: how many standard normals a record has, at least 1.
    """

    latent: int

    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        """Loss (b,) of records x (b, d), float32, with secret z (b, latent): of each row from that row alone.

        Bits are 0 or 1, grey and colour values in [0, 1]. A class without `sample` is a classifier, also built with
        `categories`: the second argument is the label (b,), int64, and the weights are released.
        """

    def sample(self, z: Tensor) -> Tensor:
        """Mean values (n, d) in [0, 1] of n new records, from public z (n, latent) alone."""


class GeneratorNetwork(Protocol):
    """A generator of your own: a class of `nn.Module`, built as `cls(d=d, **generator_options)`, and `categories=c`.

    It never sees a record, so BatchNorm and dropout are allowed.

    Attributes:
        latent: how many standard normals a record is made of, at least 1.
    """

    latent: int

    def sample(self, z: Tensor) -> Tensor:
        """Records (n, d) made of z (n, latent + c), the one-hot labels last: in [0, 1], or any numbers for points."""


class CriticNetwork(Protocol):
    """A critic of your own: a class of `nn.Module`, built like a `GeneratorNetwork`, trained on private records, not released.

    What draws random numbers (dropout) or looks at other records (BatchNorm) is refused.
    """

    def score(self, x: Tensor) -> Tensor:
        """Score (b,) of records x (b, d + c), the one-hot labels last: of each row from that row alone, high for real ones."""


NETWORK, GENERATOR, CRITIC = ("loss", "sample"), ("sample",), ("score",)
"""Methods of each of them."""

_TAKEN = {"loss": "xz", "sample": "z", "score": "x"}  # their arguments
_RECORDS = 5  # that they are tried on

# -- import paths ------------------------------------------------------------------------------------------------------


def import_path(network: Any) -> str:
    """`package.module:Class` of a class that others can import, not one of a notebook, a script or a function.

    >>> import_path(torch.nn.Linear)
    'torch.nn.modules.linear:Linear'
    """
    if not isinstance(network, type):
        raise ValueError(f"network is {network!r}; it must be a class of nn.Module, or its import path package.module:Class")
    module, name = network.__module__, network.__qualname__
    if module == "__main__" or _in_module(sys.modules.get(module), name) is not network:
        raise ValueError(
            f"network is {name} of {module}, which nobody can import by that name, so it could not be released: define it at "
            "the top of a module of its own (a file mynets.py)"
        )
    return f"{module}:{name}"


def imported(path: str, methods: Sequence[str] = ()) -> type[nn.Module]:
    """The class with these methods at an import path, which a person has typed: its module is imported."""
    module, _, name = path.partition(":")
    if module == "__main__" or not (name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ValueError(f"network is {path!r}; it must be package.module:Class, of a module that others can import")
    try:
        found = getattr(import_module(module), name, None)
    except Exception as error:
        remedy = "it must be installed, or its folder on PYTHONPATH"
        raise ValueError(f"network is {path!r}; {module} cannot be imported ({in_one_line(error)}): {remedy}") from error
    if found is None:
        raise ValueError(f"network is {path!r}; {module} has no {name}")
    _require_network(path, found, methods)
    import_path(found)
    return found


_OFFERED: ContextVar[tuple[type, ...]] = ContextVar("networks", default=())


@contextmanager
def offered(networks: Sequence[type]) -> Iterator[None]:
    """Let models that are loaded inside use these classes."""
    for network in networks:
        _require_network(repr(network), network)
    token = _OFFERED.set(tuple(networks))
    try:
        yield
    finally:
        _OFFERED.reset(token)


def known(path: str, methods: Sequence[str] = NETWORK) -> type[nn.Module]:
    """The class that a file names, of those that are `offered` or imported already; nothing is imported, whatever it says."""
    module, _, name = path.partition(":")
    given = [network for network in _OFFERED.get() if network.__name__ == name]
    given.sort(key=lambda network: f"{network.__module__}:{network.__qualname__}" != path)  # others may have moved
    found = given[0] if given else _in_module(sys.modules.get(module), name)
    try:
        _require_network(path, found, methods)
    except ValueError:
        raise ImportError(
            f"the model needs the network {path!r}, which has not been imported, and names in files are not: import its module "
            f"first, or give the class, load(path, networks=[{name}]), or --network {path}"
        ) from None
    assert isinstance(found, type)
    return found


def _in_module(module: ModuleType | None, name: str) -> Any:
    """The attribute of a module that is loaded already; None without it. Modules that import on access are not asked."""
    return vars(module).get(name) if isinstance(module, ModuleType) else None


def _require_network(path: str, found: Any, methods: Sequence[str] = ()) -> None:
    """Refuse what is no class of `nn.Module` with these methods."""
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise ValueError(f"network is {path}; it must be a class of nn.Module")
    for name in methods:
        if not callable(getattr(found, name, None)):
            raise ValueError(f"network is {path}; it must have the method {name}({', '.join(_TAKEN[name])})")


# -- a class and its options -------------------------------------------------------------------------------------------


class OwnClass:
    """A class of your own, its `options` of JSON's types and the `sizes` that are not 0, and the trials that it must pass."""

    def __init__(
        self, network: type[nn.Module] | str, methods: Sequence[str], options: Mapping[str, Any] | None, **sizes: int
    ) -> None:
        self.path = network if isinstance(network, str) else import_path(network)
        self.kind = known(network, methods) if isinstance(network, str) else network
        _require_network(self.path, self.kind, methods)
        try:
            self.options: dict[str, Any] = json.loads(json.dumps(dict(options or {}), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"network_options is {options!r}; it must map names to numbers, texts, lists and mappings: {in_one_line(error)}"
            ) from error
        self.sizes = {name: size for name, size in sizes.items() if size}

    def refusal(self, text: str) -> ValueError:
        """Errors of the class, in words."""
        return ValueError(f"network is {self.path}; {text}")

    def built(self, *, seed: int) -> nn.Module:
        """A network from public randomness; the global generator stays as it is."""
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                return self.kind(**self.sizes, **self.options)
        except Exception as error:
            given = ", ".join(f"{name}={value!r}" for name, value in {**self.sizes, **self.options}.items())
            raise self.refusal(f"it cannot be built with {given}: {in_one_line(error)}") from error

    def trainable(self) -> nn.Module:
        """A network, unless its parameters have unknown shapes or none of them is to be trained."""
        module = self.built(seed=0)
        lazy = [name for name, value in module.named_parameters() if is_lazy(value)]
        if lazy:
            raise self.refusal(f"the shape of {lazy[0]} is not known when it is built: lazy layers cannot be trained here")
        if not any(value.requires_grad for value in module.parameters()):
            raise self.refusal("it has no parameter that needs a gradient: there is nothing to train")
        return module

    def draw_into(self, module: nn.Module, generator: torch.Generator) -> None:
        """Give a network the values of one that a public generator decides."""
        seed = int(torch.randint(2**31, (), generator=generator))
        module.load_state_dict(self.built(seed=seed).state_dict())

    def latent_of(self, module: nn.Module) -> int:
        """The number of normals that it takes."""
        latent = getattr(module, "latent", None)
        if not isinstance(latent, int) or isinstance(latent, bool) or latent < 1:
            raise self.refusal(f"its attribute latent is {latent!r}, and must be a whole number >= 1")
        return latent

    def called(self, module: nn.Module, method: str, arguments: tuple[Tensor, ...], shape: tuple[int, ...]) -> Tensor:
        """The values that a method returns, refused unless they are finite numbers of this shape."""
        given = " and ".join(f"{name} {tuple(value.shape)}" for name, value in zip(_TAKEN[method], arguments))
        try:
            made = getattr(module, method)(*arguments)
        except Exception as error:
            raise self.refusal(f"its {method} fails on {given}: {in_one_line(error)}") from error
        if not isinstance(made, Tensor) or made.shape != shape or not made.is_floating_point():
            found = f"{tuple(made.shape)} of {made.dtype}" if isinstance(made, Tensor) else type(made).__name__
            raise self.refusal(f"its {method} of {given} is {found}; it must be {shape} of floating point")
        if not bool(torch.isfinite(made).all()):
            raise self.refusal(f"its {method} of {given} is not finite")
        return made

    def tried(self, method: str, *arguments: Tensor, shape: tuple[int, ...], training: bool = True) -> Tensor:
        """The values of a method, refused unless they are a function of its arguments, the parameters and the buffers."""
        module, again = (self.built(seed=seed).train(training) for seed in (0, 1))
        try:
            again.load_state_dict(module.state_dict())
        except RuntimeError as error:
            raise self.refusal(f"built again it has other parameters: {in_one_line(error)}") from error
        with torch.no_grad():
            values, rebuilt = (self.called(one, method, arguments, shape) for one in (module, again))
        if not torch.allclose(values, rebuilt, rtol=1e-3, atol=1e-5):
            raise self.refusal(
                f"its {method} is another one when it is built again with the same parameters and buffers: it must be a "
                f"function of {' and '.join(_TAKEN[method])} and of these alone, without dropout"
            )
        return values

    def tried_samples(self, z: Tensor, d: int, *, bounded: bool, training: bool) -> None:
        """Refuse samples (n, d) that are no function of z, or that leave [0, 1] where they are `bounded`."""
        x = self.tried("sample", z, shape=(len(z), d), training=training)
        if bounded and not bool(((x >= 0) & (x <= 1)).all()):
            raise self.refusal(f"its sample has values from {x.min():.3g} to {x.max():.3g}; they must lie in [0, 1]")


class _Own(nn.Module):
    """A network of a class of your own, whose values may be loaded from a file."""

    _own: Any  # an `OwnClass`

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **options: Any) -> Any:
        """See `nn.Module`; a class that has changed since the values were saved is an `ImportError`."""
        before, now = ({n: tuple(v.shape) for n, v in state.items()} for state in (state_dict, self.state_dict()))
        names = sorted({**now, **before}, key="theta".__eq__)  # parameters by their own names first
        changed = next((name for name in names if before.get(name) != now.get(name)), None)
        if changed is not None:
            raise ImportError(
                f"the network {self._own.path} is not the one that was released: the shape of {changed.partition('.')[2]} "
                f"is {now.get(changed)}, and was {before.get(changed)}"
            )
        return super().load_state_dict(state_dict, *args, **options)


# -- banks -------------------------------------------------------------------------------------------------------------


class GenericBank(_Own, ModelBank):
    """k models of a class of your own, with the gradients of `PerRecord`.

    Parameters that need no gradient, and buffers, are public and stay as they are: what a call changes of them is undone.
    """

    def __init__(self, k: int, own: OwnClass) -> None:
        template = own.trainable()
        per_record = PerRecord(template)
        super().__init__(k, per_record.shapes)
        self.template, self._own, self._per_record = template.requires_grad_(False), own, per_record
        self.facts = (Fact.OWN_NETWORK(path=own.path),)

    def initialize(self, generator: torch.Generator) -> None:
        """A network from public randomness in all k models, plus public noise of 1 % of each parameter's spread."""
        self._own.draw_into(self.template, generator)
        for name in self.shapes:
            value = self.template.get_parameter(name)
            jitter = torch.randn(self.k, *value.shape, generator=generator).to(value)
            spread = float(value.std()) if value.numel() > 1 else 0.0
            self.part(name).copy_(value + 0.01 * spread * jitter)

    def network(self, cluster: int = 0) -> Any:
        """One of the models, as a network of its own."""
        made = copy.deepcopy(self.template)
        for name in self.shapes:
            made.get_parameter(name).data = self.part(name)[cluster]
        return made

    def record_gradients(
        self, method: str, bounds: Sequence[int], *inputs: Tensor, loss: Callable[[Tensor], Tensor] = torch.Tensor.clone
    ) -> RecordGradients:
        """Gradients of losses of the values (b,) that a method of the template gives records, the rows of `inputs`."""

        def run(*records: Tensor) -> Tensor:
            return loss(getattr(self.template, method)(*records)).sum()

        made = []
        for c, a, b in list(segments(bounds)) or [(0, 0, 0)]:
            with self._holding(c), unseen():
                rows = (values[a:b] for values in inputs)
                own = self._per_record
                made.append(own.of_private(own.factors, f"{method} of {self._own.path}", run, *rows))
        return RecordGradients([_joined(parts) for parts in zip(*made, strict=True)], bounds)

    @contextmanager
    def _holding(self, cluster: int) -> Iterator[None]:
        """Let the template have the parameters of one model; what a call changes of its buffers is undone."""
        values, kept = self._per_record.values, [(part, dict(part._buffers)) for part in self.template.modules()]
        before = {name: value.data for name, value in values.items()}
        try:
            for part, buffers in kept:
                part._buffers.update({name: None if value is None else value.clone() for name, value in buffers.items()})
            for name, value in values.items():
                value.data = self.part(name)[cluster]
                value.requires_grad_()
            torch.clear_autocast_cache()  # which knows a parameter by its name, not by its values
            yield
        finally:
            for name, value in values.items():
                value.requires_grad_(False)
                value.data = before[name]
            for part, buffers in kept:
                part._buffers.clear()
                part._buffers.update(buffers)

    @torch.no_grad()
    def _try(self, method: str, *inputs: Tensor) -> None:
        """Refuse a method that mixes records, or whose gradient cannot be taken record by record."""
        self._own.tried(method, *inputs, shape=(len(inputs[0]),))
        GenericBank.initialize(self, torch.Generator().manual_seed(0))
        try:
            with self._holding(0):
                mixes = settle(self._per_record, lambda *records: getattr(self.template, method)(*records).sum(), *inputs)
        except UnlikeAlone as error:
            raise self._own.refusal(f"its {method} {error}") from error
        if mixes:
            warnings.warn(f"{self._own.path}: its {method} mixes records, with {mixes}; each is taken by itself", stacklevel=4)


def _joined(parts: Sequence[Factor]) -> Factor:
    """One factor of the rows of several clusters."""
    inputs = [f.inputs for f in parts if f.inputs is not None]
    return parts[0]._replace(outputs=torch.cat([f.outputs for f in parts]), inputs=torch.cat(inputs) if inputs else None)


class OwnBank(GenericBank):
    """k networks of a class of your own, see `Network`.

    Arguments:
        k: number of models.
        d: columns of a record, appended categories included.
        network: the class, or the import path of one that is imported already.
        network_options: keyword arguments of the class, of JSON's types: tuples reach it as lists.

    Raises:
        ValueError: a class that cannot be imported or built, or, when training begins, one that is no `Network`.
        ImportError: a path whose class has not been imported.
    """

    def __init__(
        self, k: int, d: int, *, network: type[nn.Module] | str, network_options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(k, OwnClass(network, NETWORK, network_options, d=d))
        self.d, self._latent = d, self._own.latent_of(self.template)

    def settle(self) -> None:
        public = torch.Generator().manual_seed(0)
        x = (torch.rand(_RECORDS, self.d, generator=public) < 0.5).float()
        z = torch.randn(_RECORDS, self._latent, generator=public)
        self._own.tried_samples(z, self.d, bounded=True, training=True)
        self._try("loss", x, z)

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        return self.record_gradients("loss", bounds, x, noise(x.shape[0], self._latent).to(x))

    @torch.no_grad()
    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        made: Tensor = self.network(cluster).sample(torch.randn(n, self._latent, generator=generator).to(self.theta))
        return made

    def architecture(self) -> dict[str, Any]:
        return {"k": self.k, "d": self.d, "network": self._own.path, "network_options": self._own.options}

    def released(self) -> "OwnBank":
        """Networks with these values that have never seen a record: a release is what its file holds, and nothing else.

        They are not tried again: what has been paid for is released.
        """
        made = OwnBank(self.k, self.d, network=self._own.kind, network_options=self._own.options)
        state = self.state_dict()
        made.load_state_dict({name: state[name] for name in made.state_dict()})
        return made


class OwnClassifierBank(GenericBank):
    """One classifier of a class of your own, whose `loss(x, y)` sees labels y; its weights are released.

    Arguments:
        d: columns of a record, the one-hot label included, whose `categories` columns come last.
    """

    classifies = True

    def __init__(
        self, d: int, categories: int, *, network: type[nn.Module] | str, network_options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(1, OwnClass(network, NETWORK[:1], network_options, d=d - categories, categories=categories))
        self.d, self.categories = d, categories

    def settle(self) -> None:
        x = torch.rand(_RECORDS, self.d - self.categories, generator=torch.Generator().manual_seed(0))
        self._try("loss", x, torch.arange(_RECORDS) % self.categories)

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        return self.record_gradients("loss", bounds, x[:, : -self.categories], x[:, -self.categories :].argmax(1))

    def architecture(self) -> dict[str, Any]:
        return {"k": 1, "d": self.d, "network": self._own.path, "options": self._own.sizes | self._own.options}


class OwnCriticBank(GenericBank):
    """A critic of your own, see `CriticNetwork`; nothing of it is released. d leaves out labels."""

    def __init__(
        self,
        d: int,
        *,
        network: type[nn.Module] | str,
        network_options: Mapping[str, Any] | None = None,
        categories: int = 0,
    ) -> None:
        super().__init__(1, OwnClass(network, CRITIC, network_options, d=d, categories=categories))
        self.d, self.categories, self.facts = d, categories, (Fact.OWN_CRITIC(path=self._own.path),)

    def settle(self) -> None:
        x = torch.rand(_RECORDS, self.d, generator=torch.Generator().manual_seed(0))
        self._try("score", _coded(x, torch.arange(_RECORDS), self.categories))

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        return self._gradients(x, bounds, real=True)

    def fake_gradients(self, x: Tensor, bounds: Sequence[int]) -> RecordGradients:
        """See `dpgen.nets.gan.CriticBank.fake_gradients`."""
        return self._gradients(x, bounds, real=False)

    def _gradients(self, x: Tensor, bounds: Sequence[int], *, real: bool) -> RecordGradients:
        from dpgen.nets.gan import critic_loss  # other networks do without

        return self.record_gradients("score", bounds, x, loss=partial(critic_loss, real=real))

    def score(self, x: Tensor, bounds: Sequence[int]) -> Tensor:
        """See `dpgen.nets.gan.CriticBank.score`."""
        made: Tensor = self.network().score(x)
        return made


def _coded(values: Tensor, labels: Tensor | None, categories: int) -> Tensor:
    """Values (n, d), followed by the one-hot codes (n, categories) of labels, if there are any."""
    return (
        values
        if labels is None or not categories
        else torch.cat([values, one_hot(labels % categories, categories).to(values)], 1)
    )


class OwnGenerator(_Own):
    """A generator of your own, see `GeneratorNetwork`, behind the interface of `dpgen.nets.gan.Generator`.

    An `output` "sigmoid" has values in [0, 1], which is checked. d leaves out labels.
    """

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
        self._own = OwnClass(network, GENERATOR, network_options, d=d, categories=categories)
        self.module: Any = self._own.trainable()
        self.d, self.categories, self.image_shape, self.output = d, categories, image_shape, output
        self.latent, self.facts = self._own.latent_of(self.module), (Fact.OWN_GENERATOR(path=self._own.path),)

    def settle(self) -> None:
        """Refuse a class that is no `GeneratorNetwork`, by random noise."""
        own, z = self._own, torch.randn(_RECORDS, self.latent, generator=torch.Generator().manual_seed(0))
        z = _coded(z, torch.arange(_RECORDS), self.categories)
        own.tried_samples(z, self.d, bounded=self.output == "sigmoid", training=False)
        with torch.random.fork_rng(devices=[]):  # of dropout
            trained = own.called(own.built(seed=0), "sample", (z,), (len(z), self.d))
        if not trained.requires_grad:
            raise own.refusal("its sample has no gradient, so nothing can be learnt: it must not be computed under no_grad")

    def initialize(self, generator: torch.Generator) -> None:
        """Build the class anew from public randomness."""
        self._own.draw_into(self.module, generator)

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """Records (m, d), followed by the one-hot labels (m, categories) if there are any."""
        made: Tensor = _coded(self.module.sample(_coded(z, labels, self.categories)), labels, self.categories)
        return made

    def architecture(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this generator."""
        described = {name: getattr(self, name) for name in ("d", "categories", "image_shape", "output")}
        return {"network": self._own.path, "network_options": self._own.options, **described}
