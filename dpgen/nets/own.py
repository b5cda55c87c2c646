"""Networks of your own: found by import path, tried before anything is spent, released as weights and JSON.

Gradients per record are those of `per_record`.
"""

import copy
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import one_hot
from torch.nn.parameter import is_lazy

from dpgen.facts import Fact
from dpgen.nets.bank import Factor, ModelBank, Noise, RecordGradients, segments
from dpgen.nets.gan import critic_loss
from dpgen.nets.per_record import Bound, PerRecord, UnlikeAlone, hidden, unseen


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
        raise ValueError(f"network is {path!r}; {module} cannot be imported ({_line(error)}): {remedy}") from error
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


def _line(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


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
                f"network_options is {options!r}; it must map names to numbers, texts, lists and mappings: {_line(error)}"
            ) from error
        self.sizes = {name: size for name, size in sizes.items() if size}

    def refusal(self, text: str) -> ValueError:
        """What is wrong with the class."""
        return ValueError(f"network is {self.path}; {text}")

    def built(self, *, seed: int) -> nn.Module:
        """A network from public randomness; the global generator stays as it is."""
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                return self.kind(**self.sizes, **self.options)
        except Exception as error:
            given = ", ".join(f"{name}={value!r}" for name, value in {**self.sizes, **self.options}.items())
            raise self.refusal(f"it cannot be built with {given}: {_line(error)}") from error

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
            raise self.refusal(f"its {method} fails on {given}: {_line(error)}") from error
        if not isinstance(made, Tensor) or made.shape != shape or not made.is_floating_point():
            found = f"{tuple(made.shape)} of {made.dtype}" if isinstance(made, Tensor) else type(made).__name__
            raise self.refusal(f"its {method} of {given} is {found}; it must be {shape} of floating point")
        if not bool(torch.isfinite(made).all()):
            raise self.refusal(f"its {method} of {given} is not finite")
        return made

    def try_samples(self, module: nn.Module, z: Tensor, d: int, *, bounded: bool) -> nn.Module:
        """Refuse samples (n, d) that are no function of z, the parameters and the buffers; returns a second such network."""
        again = self.built(seed=1).train(module.training)
        try:
            again.load_state_dict(module.state_dict())
        except RuntimeError as error:
            raise self.refusal(f"built again it has other parameters: {_line(error)}") from error
        x, rebuilt = (self.called(one, "sample", (z,), (len(z), d)) for one in (module, again))
        if bounded and not bool(((x >= 0) & (x <= 1)).all()):
            raise self.refusal(f"its sample has values from {x.min():.3g} to {x.max():.3g}; they must lie in [0, 1]")
        self._require_equal("sample", x, rebuilt)
        return again

    def try_records(self, module: nn.Module, again: nn.Module, method: str, *arguments: Tensor) -> None:
        """Refuse a method whose value of a record depends on other records, or which keeps what it saw."""
        kept = {name: value.clone() for name, value in module.state_dict().items()}
        values = self.called(module, method, arguments, (len(arguments[0]),))
        rows = zip(*(a.split(1) for a in arguments))
        if not _close(values, torch.cat([self.called(module, method, row, (1,)) for row in rows])):
            raise self.refusal(
                f"a record's {method} is another one beside other records, or when it is taken again: it must be a function of "
                f"{' and '.join(_TAKEN[method])} alone, row by row (GroupNorm or LayerNorm for BatchNorm, no dropout)"
            )
        after = module.state_dict()
        changed = [n for n in {**kept, **after} if n not in kept or not torch.equal(kept[n], after[n])]
        if changed:
            raise self.refusal(f"its {method} changes {changed[0]}, which would carry records into the release")
        self._require_equal(method, values, self.called(again, method, arguments, values.shape))

    def _require_equal(self, method: str, values: Tensor, rebuilt: Tensor) -> None:
        if not _close(values, rebuilt):
            raise self.refusal(
                f"its {method} is another one when it is built again with the same parameters and buffers: it must be a "
                f"function of {' and '.join(_TAKEN[method])} and of these alone"
            )


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


def _close(a: Tensor, b: Tensor) -> bool:
    """Whether values agree but for rounding."""
    return torch.allclose(a, b, rtol=1e-3, atol=1e-5)


# -- banks -------------------------------------------------------------------------------------------------------------


class GenericBank(_Own, ModelBank):
    """k models of a class of your own, with the gradients of `PerRecord`.

    Parameters that need no gradient, and buffers, are public and stay as they are: what a call changes of them is undone.
    """

    def __init__(self, k: int, own: OwnClass, template: nn.Module) -> None:
        template = copy.deepcopy(template)
        per_record = PerRecord(template)
        super().__init__(k, per_record.shapes)
        self.template, self._own, self._per_record = template.requires_grad_(False), own, per_record

    def initialize(self, generator: torch.Generator) -> None:
        """A network from public randomness in all k models, plus public noise of 1 % of each parameter's spread."""
        self._own.draw_into(self.template, generator)
        for name in self.shapes:
            value = self.template.get_parameter(name)
            jitter = torch.randn(self.k, *value.shape, generator=generator).to(value)
            spread = float(value.std()) if value.numel() > 1 else 0.0
            self.part(name).copy_(value + 0.01 * spread * jitter)

    def call(self, method: str) -> Callable[..., Tensor]:
        """The method as a function of one model's parameters (p,) and its arguments."""
        bound = Bound(self.template, getattr(self.template, method))
        # Copies, so that no call leaves anything of its records in what is saved.
        fixed = {name: value.clone() for name, value in self.template.named_buffers()}
        fixed |= {name: value.detach() for name, value in self.template.named_parameters() if name not in self.shapes}

        def call(row: Tensor, *arguments: Tensor) -> Tensor:
            own = {name: row[columns].unflatten(0, self.shapes[name]) for name, columns in self.columns.items()}
            values = {f"module.{name}": value for name, value in (fixed | own).items()}
            made: Tensor = functional_call(bound, values, arguments)
            return made

        return call

    def record_gradients(
        self, method: str, bounds: Sequence[int], *inputs: Tensor, loss: Callable[[Tensor], Tensor] = torch.Tensor.clone
    ) -> RecordGradients:
        """Gradients of losses of the values (b,) that a method of the template gives records, the rows of `inputs`."""

        def run(*records: Tensor) -> Tensor:
            return loss(getattr(self.template, method)(*records)).sum()

        made = []
        for c, a, b in list(segments(bounds)) or [(0, 0, 0)]:
            with self._holding(c), unseen():
                try:
                    made.append(self._per_record.factors(run, *(values[a:b] for values in inputs)))
                except Exception as error:  # also of a slope
                    raise hidden(f"{method} of {self._own.path}", error) from None
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

    def _try(self, method: str, again: nn.Module, *inputs: Tensor) -> None:
        """Refuse a method that mixes records, or whose gradient cannot be taken record by record."""
        self._own.try_records(self.template, again, method, *inputs)
        with torch.no_grad():
            GenericBank.initialize(self, torch.Generator().manual_seed(0))
        try:
            with self._holding(0):
                self._per_record.settle(lambda *records: getattr(self.template, method)(*records).sum(), *inputs)
        except UnlikeAlone as error:
            raise self._own.refusal(f"its {method} {error}") from error


def _joined(parts: Sequence[Factor]) -> Factor:
    """One factor of the rows of several clusters."""
    inputs = [f.inputs for f in parts if f.inputs is not None]
    return parts[0]._replace(outputs=torch.cat([f.outputs for f in parts]), inputs=torch.cat(inputs) if inputs else None)


class OwnBank(GenericBank):
    """k networks of a class of your own, see `Network`.

    The class is built and tried on random records first: what could not be trained privately, or not be released, is refused
    before anything is spent.

    Arguments:
        k: number of models.
        d: columns of a record, appended categories included.
        network: the class, or the import path of one that is imported already.
        network_options: keyword arguments of the class, of JSON's types: tuples reach it as lists.

    Raises:
        ValueError: a class that cannot be imported or built, or that is no `Network`.
        ImportError: a path whose class has not been imported.
    """

    def __init__(
        self, k: int, d: int, *, network: type[nn.Module] | str, network_options: Mapping[str, Any] | None = None
    ) -> None:
        own = OwnClass(network, NETWORK, network_options, d=d)
        self._make(own, k, d, own.trainable())
        public = torch.Generator().manual_seed(0)
        x = (torch.rand(_RECORDS, d, generator=public) < 0.5).float()
        z = torch.randn(_RECORDS, own.latent_of(self.template), generator=public)
        with torch.no_grad():
            self._try("loss", own.try_samples(self.template, z, d, bounded=True), x, z)

    def _make(self, own: OwnClass, k: int, d: int, template: nn.Module) -> None:
        GenericBank.__init__(self, k, own, template)
        self.d, self._unused = d, (copy.deepcopy(template),)  # in a tuple, for it is no part of this one
        self.facts = (Fact.OWN_NETWORK(path=own.path),)

    @property
    def _latent(self) -> int:
        return self._own.latent_of(self.template)

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        return self.record_gradients("loss", bounds, x, noise(x.shape[0], self._latent).to(x))

    @torch.no_grad()
    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        z = torch.randn(n, self._latent, generator=generator).to(self.theta)
        return self.call("sample")(self.theta[cluster], z)

    def architecture(self) -> dict[str, Any]:
        return {"k": self.k, "d": self.d, "network": self._own.path, "network_options": self._own.options}

    def released(self) -> "OwnBank":
        """The same values in networks that have never seen a record: a release is what its file holds, and nothing else.

        They are not tried again: what has been paid for is released.
        """
        made = OwnBank.__new__(OwnBank)
        made._make(self._own, self.k, self.d, *self._unused)
        kept = made.state_dict().keys()
        made.load_state_dict({name: value for name, value in self.state_dict().items() if name in kept})
        return made


class OwnClassifierBank(GenericBank):
    """One classifier of a class of your own, whose `loss(x, y)` sees labels y; its weights are released.

    Arguments:
        d: columns of a record, the one-hot label included, whose `categories` columns come last.
    """

    def __init__(
        self, d: int, categories: int, *, network: type[nn.Module] | str, network_options: Mapping[str, Any] | None = None
    ) -> None:
        own = OwnClass(network, NETWORK[:1], network_options, d=d - categories, categories=categories)
        super().__init__(1, own, own.trainable())
        self.d, self.categories, self.facts = d, categories, (Fact.OWN_NETWORK(path=own.path),)
        x, y = torch.rand(_RECORDS, d - categories, generator=torch.Generator().manual_seed(0)), torch.arange(_RECORDS)
        with torch.no_grad():
            self._try("loss", self.template, x, y % categories)

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        return self.record_gradients("loss", bounds, x[:, : -self.categories], x[:, -self.categories :].argmax(1))

    def architecture(self) -> dict[str, Any]:
        return {"k": 1, "d": self.d, "network": self._own.path, "options": self._own.sizes | self._own.options}

    def weights(self) -> dict[str, Tensor]:
        """The state dict of the network."""
        with self._holding(0):
            return {name: value.detach().clone() for name, value in self.template.state_dict().items()}


class OwnCriticBank(GenericBank):
    """A critic of your own, see `CriticNetwork`, tried like `OwnBank`; nothing of it is released. d leaves out labels."""

    def __init__(
        self,
        d: int,
        *,
        network: type[nn.Module] | str,
        network_options: Mapping[str, Any] | None = None,
        categories: int = 0,
    ) -> None:
        own = OwnClass(network, CRITIC, network_options, d=d, categories=categories)
        super().__init__(1, own, own.trainable())
        self.facts = (Fact.OWN_CRITIC(path=own.path),)
        x = torch.rand(_RECORDS, d, generator=torch.Generator().manual_seed(0))
        if categories:
            x = torch.cat([x, one_hot(torch.arange(_RECORDS) % categories, categories).to(x)], 1)
        with torch.no_grad():
            self._try("score", self.template, x)

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        return self.record_gradients("score", bounds, x, loss=partial(critic_loss, real=True))

    def fake_gradients(self, x: Tensor, bounds: Sequence[int]) -> RecordGradients:
        """See `dpgen.nets.gan.CriticBank.fake_gradients`."""
        return self.record_gradients("score", bounds, x, loss=partial(critic_loss, real=False))

    def score(self, x: Tensor, bounds: Sequence[int]) -> Tensor:
        """See `dpgen.nets.gan.CriticBank.score`."""
        return self.call("score")(self.theta[0].detach(), x)


class OwnGenerator(_Own):
    """A generator of your own, see `GeneratorNetwork`, behind the interface of `dpgen.nets.gan.Generator`.

    Its trials are those of `OwnBank`; an `output` "sigmoid" has values in [0, 1], which is checked. d leaves out labels.
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
        own = OwnClass(network, GENERATOR, network_options, d=d, categories=categories)
        self._make(own, own.trainable(), d=d, categories=categories, image_shape=image_shape, output=output)
        z = torch.randn(_RECORDS, self.latent, generator=torch.Generator().manual_seed(0))
        z = self._coded(z, torch.arange(_RECORDS) % max(categories, 1))
        own.try_samples(self.module.eval(), z, d, bounded=output == "sigmoid")
        with torch.random.fork_rng(devices=[]):  # of dropout
            trained = own.called(copy.deepcopy(self._unused[0]).train(), "sample", (z,), (len(z), d))
        if not trained.requires_grad:
            raise own.refusal("its sample has no gradient, so nothing can be learnt: it must not be computed under no_grad")
        self.module.train()

    def _make(self, own: OwnClass, module: nn.Module, **described: Any) -> None:
        nn.Module.__init__(self)
        self._own, self._described, self.module = own, described, module
        self.d, self.categories, self.image_shape = (described[name] for name in ("d", "categories", "image_shape"))
        self.latent, self.facts = own.latent_of(module), (Fact.OWN_GENERATOR(path=own.path),)
        self._unused = (copy.deepcopy(module),)  # in a tuple, for it is no part of this one

    def _coded(self, z: Tensor, labels: Tensor | None) -> Tensor:
        if not self.categories:
            return z
        assert labels is not None
        return torch.cat([z, one_hot(labels, self.categories).to(z)], 1)

    def initialize(self, generator: torch.Generator) -> None:
        """Build the class anew from public randomness."""
        self._own.draw_into(self.module, generator)

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """Records (m, d), followed by the one-hot labels (m, categories) if there are any."""
        coded = self._coded(z, labels)
        x: Tensor = self.module.sample(coded)
        return torch.cat([x, coded[:, self.latent :]], 1) if self.categories else x

    def architecture(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this generator."""
        return {"network": self._own.path, "network_options": self._own.options, **self._described}

    def released(self, values: Mapping[str, Tensor]) -> "OwnGenerator":
        """The generator with these values, not tried again: what has been paid for is released."""
        made = OwnGenerator.__new__(OwnGenerator)
        made._make(self._own, copy.deepcopy(self._unused[0]), **self._described)
        made.load_state_dict(values)
        return made
