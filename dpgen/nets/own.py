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

from dpgen.nets.generic import GenericBank


class Network(Protocol):
    """What a network of your own is: a class of `nn.Module` that others can import, built as `cls(d=d, **network_options)`.

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


def imported(path: str) -> type[nn.Module]:
    """The class at an import path, which a person has typed: its module is imported.

    Raises:
        ValueError: another form, what cannot be imported, or is no network.
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
    _require_network(path, found)
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


def known(path: str) -> type[nn.Module]:
    """The class that a file names, of those that are `offered` or imported already; nothing is imported, whatever it says.

    Raises:
        ImportError: none of them.
    """
    module, _, name = path.partition(":")
    own = [network for network in _OFFERED.get() if f"{network.__module__}:{network.__qualname__}" == path]
    moved = [network for network in _OFFERED.get() if network.__name__ == name]
    found = next(iter([*own, *moved]), None) or _in_module(sys.modules.get(module), name)
    try:
        _require_network(path, found)
    except ValueError:
        raise ImportError(
            f"the model needs the network {path!r}, which has not been imported, and names in files are not: import its module "
            f"first, or give the class, load(path, networks=[{name}]), or --network {path}"
        ) from None
    assert isinstance(found, type)
    return found


def _in_module(module: ModuleType | None, name: str) -> Any:
    """What a module holds by this name now, without asking it: some import more when they are asked."""
    return vars(module).get(name) if isinstance(module, ModuleType) else None


def _require_network(path: str, found: Any) -> None:
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise ValueError(f"network is {path}; it must be a class of nn.Module")
    missing = [name for name in ("loss", "sample") if not callable(getattr(found, name, None))]
    if missing:
        raise ValueError(f"network is {path}; it must have the methods loss(x, z) and sample(z), and has no {missing[0]}")


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
        kind, path = (known(network), network) if isinstance(network, str) else (network, import_path(network))
        _require_network(path, kind)
        self._kind, self._path, self.d, self._options = kind, path, d, _as_json(network_options or {})
        template = self._built(seed=0)
        _require_parameters(template, path)
        super().__init__(k, template)
        self._unused = (copy.deepcopy(template),)  # in a tuple, for it is no part of this one
        self.assumptions = (
            f"the code of the network {path} takes a record's loss from that record and its latent noise alone and keeps "
            "nothing of it: this was tried on random records, and is no proof",
        )
        _try(self.template, self._built(seed=1), path, d)
        self._try_gradients()

    def _built(self, *, seed: int) -> nn.Module:
        """A network from public randomness; the global generator stays as it is."""
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                return self._kind(d=self.d, **self._options)
        except Exception as error:
            given = ", ".join(f"{name}={value!r}" for name, value in {"d": self.d, **self._options}.items())
            raise _refusal(self._path, f"it cannot be built with {given}: {_line(error)}") from error

    @torch.no_grad()
    def _try_gradients(self) -> None:
        x, z = _random(self.template, self.d)
        super().initialize(torch.Generator().manual_seed(0))
        try:
            gradients = self.record_gradients("loss", x, [0, *[len(x)] * self.k], z).factors[0].outputs
        except Exception as error:
            said = f"torch.func cannot take the gradient of its loss record by record: {_line(error)}"
            raise _refusal(self._path, said) from error
        if not bool(torch.isfinite(gradients).all()) or not bool(gradients.any()):
            raise _refusal(self._path, "on random records the gradient of its loss is 0 or not finite")

    def initialize(self, generator: torch.Generator) -> None:
        """Build the class anew from public randomness, once for all k models, see `GenericBank.initialize`."""
        seed = int(torch.randint(2**31, (), generator=generator))
        self.template.load_state_dict(self._built(seed=seed).state_dict())
        super().initialize(generator)

    def architecture(self) -> dict[str, Any]:
        return {"k": self.k, "d": self.d, "network": self._path, "network_options": self._options}

    def released(self) -> "OwnBank":
        """The same values in networks that have never seen a record: a release is what its file holds, and nothing else.

        They are not tried again: what has been paid for is released.
        """
        made = OwnBank.__new__(OwnBank)
        made.__dict__.update({name: getattr(self, name) for name in ("_kind", "_path", "d", "_options", "_unused")})
        GenericBank.__init__(made, self.k, *self._unused)
        made.assumptions = self.assumptions
        kept = made.state_dict().keys()
        made.load_state_dict({name: value for name, value in self.state_dict().items() if name in kept})
        return made

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **options: Any) -> Any:
        """See `nn.Module`.

        Raises:
            ImportError: the class has changed since the values were saved.
        """
        before, now = ({name: tuple(v.shape) for name, v in state.items()} for state in (state_dict, self.state_dict()))
        names = [*self.template.state_dict(prefix="template."), *now, *before]
        changed = next((name for name in names if before.get(name) != now.get(name)), None)
        if changed is not None:
            raise ImportError(
                f"the network {self._path} is not the one that was released: the shape of {changed.removeprefix('template.')} "
                f"is {now.get(changed)}, and was {before.get(changed)}"
            )
        return super().load_state_dict(state_dict, *args, **options)


def _refusal(path: str, text: str) -> ValueError:
    return ValueError(f"network is {path}; {text}")


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


# -- trial -------------------------------------------------------------------------------------------------------------


_RECORDS = 3


def _random(module: nn.Module, d: int) -> tuple[Tensor, Tensor]:
    """Random bits (3, d) and latents (3, latent), the same each time."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(_RECORDS, d, generator=generator) < 0.5).float()
    return x, torch.randn(_RECORDS, getattr(module, "latent", 1), generator=generator)


def _require_parameters(module: nn.Module, path: str) -> None:
    latent = getattr(module, "latent", None)
    if not isinstance(latent, int) or isinstance(latent, bool) or latent < 1:
        raise _refusal(path, f"its attribute latent is {latent!r}, and must be a whole number >= 1")
    lazy = [name for name, value in module.named_parameters() if is_lazy(value)]
    if lazy:
        raise _refusal(path, f"the shape of {lazy[0]} is not known when it is built: lazy layers cannot be trained here")
    if not any(value.requires_grad for value in module.parameters()):
        raise _refusal(path, "it has no parameter that needs a gradient: there is nothing to train")


@torch.no_grad()
def _try(module: nn.Module, again: nn.Module, path: str, d: int) -> None:
    """Try a network on random records, and whether `again`, built by the same options, is the same with its values."""
    x, z = _random(module, d)
    values = {name: value.clone() for name, value in module.state_dict().items()}
    means, losses = _means(module, path, z, d), _losses(module, path, x, z)
    alone = torch.cat([_losses(module, path, x[i : i + 1], z[i : i + 1]) for i in range(_RECORDS)])
    if not _close(losses, alone):
        raise _refusal(
            path,
            "a record's loss is another one beside other records, or when it is taken again: it must be a function of that row "
            "of x and z alone (GroupNorm or LayerNorm for BatchNorm, no dropout, random numbers from z)",
        )
    if not torch.equal(means, _means(module, path, z, d)):
        raise _refusal(path, "its sample is another one when it is taken again: it must be a function of z alone")
    after = module.state_dict()
    changed = next((n for n in {**values, **after} if n not in values or not torch.equal(values[n], after[n])), None)
    if changed is not None:
        raise _refusal(path, f"its loss changes {changed}, which would carry records into the release")
    try:
        again.load_state_dict(values)
    except RuntimeError as error:
        raise _refusal(path, f"built again it has other parameters: {_line(error)}") from error
    if not _close(means, _means(again, path, z, d)) or not _close(losses, _losses(again, path, x, z)):
        raise _refusal(
            path, "built again, with the same parameters and buffers, it is another one: what it draws must be one of these"
        )


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-3, atol=1e-5)


def _losses(module: nn.Module, path: str, x: Tensor, z: Tensor) -> Tensor:
    return _tried(module, path, "loss", (x, z), (len(x),))


def _means(module: nn.Module, path: str, z: Tensor, d: int) -> Tensor:
    means = _tried(module, path, "sample", (z,), (len(z), d))
    if not bool(((means >= 0) & (means <= 1)).all()):
        raise _refusal(path, f"its sample has values from {means.min():.3g} to {means.max():.3g}; they must lie in [0, 1]")
    return means


def _tried(module: nn.Module, path: str, method: str, arguments: tuple[Tensor, ...], shape: tuple[int, ...]) -> Tensor:
    """What a method returns: finite numbers of this shape."""
    given = " and ".join(f"{name} {tuple(value.shape)}" for name, value in zip("xz"[-len(arguments) :], arguments))
    try:
        made = getattr(module, method)(*arguments)
    except Exception as error:
        raise _refusal(path, f"its {method} fails on {given}: {_line(error)}") from error
    if not isinstance(made, Tensor) or made.shape != shape or not made.is_floating_point():
        found = f"{tuple(made.shape)} of {made.dtype}" if isinstance(made, Tensor) else type(made).__name__
        raise _refusal(path, f"its {method} of {given} is {found}; it must be {shape} of floating point")
    if not bool(torch.isfinite(made).all()):
        raise _refusal(path, f"its {method} of {given} is not finite")
    return made
