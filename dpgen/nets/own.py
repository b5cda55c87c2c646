"""Networks of your own: found by import path, tried before anything is spent, released as weights and JSON."""

import copy
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dpgen.facts import Fact
from dpgen.nets.generic import GenericBank


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
        """Loss (b,) of records x (b, d) in {0, 1}, float32, with secret z (b, latent): of each row from that row alone."""

    def sample(self, z: Tensor) -> Tensor:
        """Mean values (n, d) in [0, 1] of n new records, from public z (n, latent) alone."""


# -- import paths ------------------------------------------------------------------------------------------------------


def import_path(network: Any) -> str:
    """`package.module:Class` of a class that others can import.

    >>> import_path(torch.nn.Linear)
    'torch.nn.modules.linear:Linear'

    Raises:
        ValueError: no class, or one of a notebook, a script or a function.
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


NETWORK = ("loss", "sample")
"""Methods of a `Network`."""


def imported(path: str, methods: Sequence[str] = ()) -> type[nn.Module]:
    """The class at an import path, which a person has typed: its module is imported.

    Raises:
        ValueError: another form, what cannot be imported, or is no network with these methods.
    """
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
    """Let models that are loaded inside use these classes.

    Raises:
        ValueError: one of them is no network.
    """
    for network in networks:
        _require_network(repr(network), network)
    token = _OFFERED.set(tuple(networks))
    try:
        yield
    finally:
        _OFFERED.reset(token)


def known(path: str, methods: Sequence[str] = NETWORK) -> type[nn.Module]:
    """The class that a file names, of those that are `offered` or imported already; nothing is imported, whatever it says.

    Arguments:
        methods: that it must have.

    Raises:
        ImportError: none of them.
    """
    module, _, name = path.partition(":")
    own = [network for network in _OFFERED.get() if f"{network.__module__}:{network.__qualname__}" == path]
    moved = [network for network in _OFFERED.get() if network.__name__ == name]
    found = next(iter([*own, *moved]), None) or _in_module(sys.modules.get(module), name)
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
    """Refuse what is no class of `nn.Module` with these methods.

    Raises:
        ValueError: naming what is missing.
    """
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise ValueError(f"network is {path}; it must be a class of nn.Module")
    missing = [name for name in methods if not callable(getattr(found, name, None))]
    if missing:
        wanted = " and ".join(f"{name}({', '.join(_TAKEN[name])})" for name in methods)
        several = "s" if len(methods) > 1 else ""
        raise ValueError(f"network is {path}; it must have the method{several} {wanted}, and has no {missing[0]}")


_TAKEN = {"loss": "xz", "sample": "z", "score": "x"}
"""Arguments of the methods of networks."""


# -- a class and its options -------------------------------------------------------------------------------------------


class OwnClass:
    """A class of your own with what it is built with.

    Arguments:
        network: the class, or the import path of one that is imported already.
        methods: that it must have.
        options: keyword arguments of the class, of JSON's types: tuples reach it as lists.
        sizes: keyword arguments that follow from the records.

    Raises:
        ValueError: a class that cannot be imported, or has not these methods, or options that are not JSON.
        ImportError: a path whose class has not been imported.
    """

    def __init__(
        self, network: type[nn.Module] | str, methods: Sequence[str], options: Mapping[str, Any] | None, **sizes: int
    ) -> None:
        self.path = network if isinstance(network, str) else import_path(network)
        self.kind = known(network, methods) if isinstance(network, str) else network
        _require_network(self.path, self.kind, methods)
        self.options, self.sizes = _as_json(options or {}), sizes

    def built(self, *, seed: int) -> nn.Module:
        """A network from public randomness; the global generator stays as it is."""
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                return self.kind(**self.sizes, **self.options)
        except Exception as error:
            given = ", ".join(f"{name}={value!r}" for name, value in {**self.sizes, **self.options}.items())
            raise self.refusal(f"it cannot be built with {given}: {_line(error)}") from error

    def drawn(self, generator: torch.Generator) -> nn.Module:
        """A network that a public generator decides."""
        return self.built(seed=int(torch.randint(2**31, (), generator=generator)))

    def refusal(self, text: str) -> ValueError:
        return ValueError(f"network is {self.path}; {text}")

    def require_parameters(self, module: nn.Module) -> None:
        """Refuse parameters of unknown shapes, and a network without any to train."""
        lazy = [name for name, value in module.named_parameters() if is_lazy(value)]
        if lazy:
            raise self.refusal(f"the shape of {lazy[0]} is not known when it is built: lazy layers cannot be trained here")
        if not any(value.requires_grad for value in module.parameters()):
            raise self.refusal("it has no parameter that needs a gradient: there is nothing to train")

    def require_latent(self, module: nn.Module) -> int:
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

    def per_record(self, module: nn.Module, method: str, arguments: tuple[Tensor, ...]) -> Tensor:
        """Values (b,) that a method returns for b records, each from its record alone.

        Raises:
            ValueError: a record has another value beside other records, or values are kept.
        """
        kept = {name: value.clone() for name, value in module.state_dict().items()}
        values = self.called(module, method, arguments, (len(arguments[0]),))
        rows = [tuple(a[i : i + 1] for a in arguments) for i in range(len(values))]
        alone = torch.cat([self.called(module, method, row, (1,)) for row in rows])
        if not close(values, alone):
            rest = ", random numbers from z" if "z" in _TAKEN[method] else ""
            raise self.refusal(
                f"a record's {method} is another one beside other records, or when it is taken again: it must be a function of "
                f"that row of {' and '.join(_TAKEN[method])} alone (GroupNorm or LayerNorm for BatchNorm, no dropout{rest})"
            )
        after = module.state_dict()
        changed = next((n for n in {**kept, **after} if n not in kept or not torch.equal(kept[n], after[n])), None)
        if changed is not None:
            raise self.refusal(f"its {method} changes {changed}, which would carry records into the release")
        return values

    def take_over(self, module: nn.Module, values: Mapping[str, Tensor]) -> None:
        """Load values into a network that was built by the same options."""
        try:
            module.load_state_dict(values)
        except RuntimeError as error:
            raise self.refusal(f"built again it has other parameters: {_line(error)}") from error

    def try_gradients(self, bank: GenericBank, method: str, x: Tensor, z: Tensor) -> None:
        """Take gradients of records x (b, d) once.

        Raises:
            ValueError: `torch.func` cannot take them, or they are 0 or not finite.
        """
        GenericBank.initialize(bank, torch.Generator().manual_seed(0))
        try:
            gradients = bank.record_gradients("loss", x, [0, *[len(x)] * bank.k], z).factors[0].outputs
        except Exception as error:
            said = f"torch.func cannot take the gradient of its {method} record by record: {_line(error)}"
            raise self.refusal(said) from error
        if not bool(torch.isfinite(gradients).all()) or not bool(gradients.any()):
            raise self.refusal(f"on random records the gradient of its {method} is 0 or not finite")

    def require_same_shapes(self, before: Mapping[str, Any], now: Mapping[str, Any], *names: str, inside: str) -> None:
        """Refuse values of a file whose shapes are not those of the class.

        Raises:
            ImportError: the class has changed since the values were saved.
        """
        shapes = [{name: tuple(value.shape) for name, value in state.items()} for state in (before, now)]
        changed = next((n for n in [*names, *shapes[1], *shapes[0]] if shapes[0].get(n) != shapes[1].get(n)), None)
        if changed is not None:
            raise ImportError(
                f"the network {self.path} is not the one that was released: the shape of {changed.removeprefix(inside)} "
                f"is {shapes[1].get(changed)}, and was {shapes[0].get(changed)}"
            )


def _line(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _as_json(options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        made: dict[str, Any] = json.loads(json.dumps(dict(options), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"network_options is {options!r}; it must map names to numbers, texts, lists and mappings: {_line(error)}"
        ) from error
    return made


def close(a: Tensor, b: Tensor) -> bool:
    """Whether values agree but for rounding."""
    return torch.allclose(a, b, rtol=1e-3, atol=1e-5)


# -- bank --------------------------------------------------------------------------------------------------------------


class OwnBank(GenericBank):
    """k networks of a class of your own, see `Network`; gradients per record are materialised by `torch.func`.

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
        self._own, self.d = OwnClass(network, NETWORK, network_options, d=d), d
        template = self._own.built(seed=0)
        self._own.require_latent(template)
        self._own.require_parameters(template)
        super().__init__(k, template)
        self._unused = (copy.deepcopy(template),)  # in a tuple, for it is no part of this one
        self.facts = (Fact.OWN_NETWORK(path=self._own.path),)
        with torch.no_grad():
            x, z = _try(self._own, self.template, d)
            self._own.try_gradients(self, "loss", x, z)

    def initialize(self, generator: torch.Generator) -> None:
        """Build the class anew from public randomness, once for all k models, see `GenericBank.initialize`."""
        self.template.load_state_dict(self._own.drawn(generator).state_dict())
        super().initialize(generator)

    def architecture(self) -> dict[str, Any]:
        return {"k": self.k, "d": self.d, "network": self._own.path, "network_options": self._own.options}

    def released(self) -> "OwnBank":
        """The same values in networks that have never seen a record: a release is what its file holds, and nothing else.

        They are not tried again: what has been paid for is released.
        """
        made = OwnBank.__new__(OwnBank)
        made.__dict__.update({name: getattr(self, name) for name in ("_own", "d", "_unused")})
        GenericBank.__init__(made, self.k, *self._unused)
        made.facts = self.facts
        kept = made.state_dict().keys()
        made.load_state_dict({name: value for name, value in self.state_dict().items() if name in kept})
        return made

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **options: Any) -> Any:
        """See `nn.Module`.

        Raises:
            ImportError: the class has changed since the values were saved.
        """
        names = self.template.state_dict(prefix="template.")
        self._own.require_same_shapes(state_dict, self.state_dict(), *names, inside="template.")
        return super().load_state_dict(state_dict, *args, **options)


_RECORDS = 3


def _try(own: OwnClass, module: nn.Module, d: int) -> tuple[Tensor, Tensor]:
    """Try a network, and one that is built again with its values, on the random records and latents that come back."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(_RECORDS, d, generator=generator) < 0.5).float()
    z = torch.randn(_RECORDS, own.require_latent(module), generator=generator)
    values = {name: value.clone() for name, value in module.state_dict().items()}
    means, losses = _means(own, module, z, d), own.per_record(module, "loss", (x, z))
    if not torch.equal(means, _means(own, module, z, d)):
        raise own.refusal("its sample is another one when it is taken again: it must be a function of z alone")
    again = own.built(seed=1)
    own.take_over(again, values)
    if not close(means, _means(own, again, z, d)) or not close(losses, own.called(again, "loss", (x, z), (len(x),))):
        raise own.refusal(
            "built again, with the same parameters and buffers, it is another one: what it draws must be one of these"
        )
    return x, z


def _means(own: OwnClass, module: nn.Module, z: Tensor, d: int) -> Tensor:
    means = own.called(module, "sample", (z,), (len(z), d))
    require_means(own, means)
    return means


def require_means(own: OwnClass, means: Tensor) -> None:
    """Refuse means of bits outside of [0, 1]."""
    if not bool(((means >= 0) & (means <= 1)).all()):
        raise own.refusal(f"its sample has values from {means.min():.3g} to {means.max():.3g}; they must lie in [0, 1]")
