"""Records and images as networks see them, and means of records that released networks draw as bits or give out as pixels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from dpgen.files import under
from dpgen.nets.own import known
from dpgen.release import (
    ImageModel,
    ImageSamples,
    PointSamples,
    PublicModel,
    RandomState,
    RecordModel,
    RecordSamples,
    Rounding,
    image_rows,
    round_bits,
    sampling_generator,
    sampling_seed,
)
from dpgen.statement import PrivacyStatement
from dpgen.systems.plan import PrivateImages, PrivateRecords

WHITE = 255
"""The value of a pixel that networks see as 1."""


class Inputs(NamedTuple):
    """Values x / white in [0, 1]: a row (d,) for each record, or for each image channel by channel; and labels (n,).

    >>> Inputs(torch.tensor([[0, 51, 255]]).byte(), None, WHITE).values(torch.tensor([0])).tolist()
    [[0.0, 0.2..., 1.0]]
    """

    x: Tensor
    labels: Tensor | None
    white: int = 1

    def values(self, rows: Tensor) -> Tensor:
        """Values (b, d) float32 of rows (b,)."""
        return self.x[rows].float() / self.white


def channels_first(shape: Sequence[int]) -> tuple[int, int, int]:
    """(channels, height, width), by which networks know images (height, width, channels)."""
    height, width, channels = shape
    return channels, height, width


def pictures(values: Tensor, shape: Sequence[int]) -> Tensor:
    """Images (n, height, width, channels) uint8 of values (n, channels * height * width): the inverse of `Inputs.values`."""
    pixels = (values * WHITE).round().clamp(0, WHITE).to(torch.uint8)
    return pixels.view(-1, *channels_first(shape)).permute(0, 2, 3, 1).contiguous()


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Private data as one training by DP-SGD sees them; all but `inputs` and `people` is public.

    Arguments:
        inputs: values, and labels in [0, n_classes) if there are any.
        n_classes: number of labels, 0 without.
        image_shape: of records (height, width), of images (channels, height, width).
        people: a number (n,) for the person of each record, if people may have several.
        columns: names of the columns of records.
        class_names: of images.
        grey_threshold: of grey values that are seen in place of bits, which are 1 above it.
    """

    inputs: Inputs
    n_classes: int = 0
    image_shape: tuple[int, ...] | None = None
    people: Tensor | None = None
    columns: Sequence[str] | None = None
    class_names: Sequence[str] | None = None
    grey_threshold: int | None = None

    @classmethod
    def of(cls, data: PrivateRecords | PrivateImages, *, grey: bool = False) -> TrainingData:
        """Those of records or images; `grey`: with their grey values, if they have any."""
        if data.x.ndim == 4:
            images, shape = cast(PrivateImages, data), channels_first(data.x.shape[1:])
            inputs = Inputs(image_rows(images.x), images.labels, WHITE)
            return cls(inputs=inputs, n_classes=images.n_classes, image_shape=shape, class_names=images.class_names)
        records = cast(PrivateRecords, data)
        told = {name: getattr(records, name) for name in ("n_classes", "image_shape", "people", "columns")}
        if grey and getattr(records, "grey", None) is not None:
            inputs = Inputs(cast(Tensor, records.grey), records.labels, WHITE)
            return cls(inputs=inputs, grey_threshold=records.grey_threshold, **told)
        return cls(inputs=Inputs(records.x, records.labels), **told)

    @property
    def d(self) -> int:
        """Columns of a record, or values of an image."""
        return int(self.inputs.x.shape[1])

    @property
    def pixels(self) -> tuple[int, ...] | None:
        """(channels, height, width) of images; None of records, also where these are images of bits."""
        return self.image_shape if self.class_names is not None else None


# -- releases ----------------------------------------------------------------------------------------------------------


class Means(NamedTuple):
    """Mean values (n, d) of records in [0, 1], the component (n,) of k of each, and labels (n,) if there are any."""

    values: Tensor
    cluster: Tensor
    labels: Tensor | None
    k: int | None


class NetworkModel(RecordModel):
    """A released network, or several: they make means of records."""

    columns: tuple[str, ...] | None
    rounding: ClassVar[Rounding] = "bernoulli"
    """How means become bits."""
    grey_threshold: int | None = None
    """Means are grey values in units of white, and a bit is 1 above this; None: they are chances of bits."""

    @abstractmethod
    def means_of(self, n: int, clusters: Sequence[int] | None, generator: torch.Generator) -> Means:
        """Means of n records, of these components only if they are given."""

    def samples(
        self,
        n: int,
        *,
        random_state: RandomState = None,
        clusters: Sequence[int] | None = None,
        rounding: Rounding | None = None,
    ) -> RecordSamples:
        generator = sampling_generator(n, random_state)
        means = self.means_of(n, clusters, generator)
        told: dict[str, Any] = {"cluster": means.cluster, "labels": means.labels, "columns": self.columns, "k": means.k}
        if self.grey_threshold is not None:
            grey = (means.values * WHITE).round().clamp(0, WHITE).to(torch.uint8)
            return RecordSamples(x=(grey > self.grey_threshold).to(torch.uint8), grey=grey, **told)
        return RecordSamples(x=round_bits(means.values, rounding or self.rounding, generator), **told)


class NetworkImages(ImageModel, kind="network_images"):
    """Released networks of images (height, width, channels): the means that they make, channel by channel, are the pixels."""

    network: NetworkModel

    def __init__(self, network: NetworkModel, *, image_shape: Sequence[int], class_names: Sequence[str]) -> None:
        height, width, channels = image_shape
        self.network, self.image_shape, self.class_names = network, (height, width, channels), tuple(class_names)
        self.statement, self.counts, self.passes = network.statement, network.counts, network.passes

    def samples(self, n: int, *, random_state: RandomState = None, clusters: Sequence[int] | None = None) -> ImageSamples:
        means = self.network.means_of(n, clusters, sampling_generator(n, random_state))
        labels = means.cluster if means.labels is None else means.labels
        return ImageSamples(x=pictures(means.values, self.image_shape), labels=labels, class_names=self.class_names)

    def tensors(self) -> dict[str, Tensor]:
        return {f"network.{name}": value for name, value in self.network.tensors().items()}

    def description(self) -> dict[str, Any]:
        inner = {"kind": self.network.kind, "description": self.network.description()}
        return {"network": inner, "image_shape": self.image_shape, "class_names": self.class_names}

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> Self:
        inner = description["network"]
        network = cls.kinds[inner["kind"]].rebuild(inner["description"], under("network", tensors), statement)
        assert isinstance(network, NetworkModel)
        return cls(network, image_shape=description["image_shape"], class_names=description["class_names"])


def released(network: NetworkModel, data: TrainingData) -> NetworkModel | NetworkImages:
    """The release of a network that was trained on these data: of records, or of images."""
    if data.pixels is None:
        return network
    channels, height, width = data.pixels
    return NetworkImages(network, image_shape=(height, width, channels), class_names=data.class_names or ())


class ReleasedModule(PublicModel, kind="module"):
    """Released weights of a module with their statement.

    Arguments:
        weights: the state dict.
        network: import path of the class.
        options: its hyperparameters, as far as they are JSON.
    """

    def __init__(self, weights: dict[str, Tensor], network: str, options: dict[str, Any], statement: PrivacyStatement) -> None:
        self.weights, self.network, self.options, self.statement = weights, network, options, statement
        try:
            self.network_class: type[nn.Module] | None = known(network, ())
        except ImportError:
            self.network_class = None

    def module(self) -> nn.Module:
        """The network in eval mode, built by its class, which must be imported, and `save_hyperparameters`.

        Raises:
            ValueError: the class is not imported, cannot be built so, or has other weights: `weights` fit your own.
        """
        try:
            if self.network_class is None:
                raise ImportError("it has not been imported")
            with torch.random.fork_rng(devices=[]):
                made = self.network_class(**self.options)
            made.load_state_dict(self.weights)
        except Exception as error:
            problem = " ".join(str(error).split())
            raise ValueError(
                f"{self.network} cannot be built again ({problem}): load_state_dict(model.weights) of your own"
            ) from error
        return made.eval()

    def sample(self, n: int, random_state: RandomState = None, **options: Any) -> Any:
        """What the module's own `sample(n)` returns, with random numbers of this state.

        Raises:
            ValueError: it has no such method: it is no generator.
        """
        made = self.module()
        if not callable(getattr(made, "sample", None)):
            raise ValueError(f"{self.network} has no method sample(n): it is no generator; model.module() is the network")
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(sampling_seed(n, random_state))
            return cast(Any, made).sample(n, **options)

    def samples(self, n: int, *, random_state: RandomState = None) -> PointSamples:
        """Samples as a table: their values row by row."""
        x = self.sample(n, random_state).flatten(1)
        return PointSamples(x=x, columns=tuple(f"x{i}" for i in range(x.shape[1])))

    def tensors(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.weights.items()}

    def description(self) -> dict[str, Any]:
        return {"network": self.network, "options": self.options}

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> ReleasedModule:
        return cls(tensors, description["network"], description["options"], statement)
