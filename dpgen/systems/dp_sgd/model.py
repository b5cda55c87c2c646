"""What released networks have in common: means of records, drawn as bits or given out as pixels."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from dpgen.files import under
from dpgen.release import (
    ImageModel,
    ImageSamples,
    RandomState,
    RecordModel,
    RecordSamples,
    Rounding,
    round_bits,
    sampling_generator,
)
from dpgen.statement import PrivacyStatement
from dpgen.systems.dp_sgd.inputs import TrainingData, pictures


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
        x = round_bits(means.values, rounding or self.rounding, generator)
        return RecordSamples(x=x, cluster=means.cluster, labels=means.labels, columns=self.columns, k=means.k)


class NetworkImages(ImageModel, kind="network_images"):
    """Released networks of images: the means that they make are the values of the pixels.

    Arguments:
        network: of rows channel by channel, its components or labels the classes.
        image_shape: (height, width, channels).
        class_names: k public names.
    """

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
        network = cls._kinds[inner["kind"]].rebuild(inner["description"], under("network", tensors), statement)
        assert isinstance(network, NetworkModel)
        return cls(network, image_shape=description["image_shape"], class_names=description["class_names"])


def released(network: NetworkModel, data: TrainingData) -> NetworkModel | NetworkImages:
    """The release of a network that was trained on these data: of records, or of images."""
    if data.pixels is None:
        return network
    channels, height, width = data.pixels
    return NetworkImages(network, image_shape=(height, width, channels), class_names=data.class_names or ())
