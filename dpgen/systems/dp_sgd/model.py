"""Records and images as networks see them, and means of records that released networks draw as bits or give out as pixels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, cast

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from dpgen.files import under
from dpgen.release import (
    ImageModel,
    PublicModel,
    RandomState,
    RecordModel,
    Rounding,
    round_bits,
    sampling_generator,
    sampling_seed,
)
from dpgen.samples import ColumnSamples, ImageSamples, PointSamples, RecordSamples, image_rows
from dpgen.statement import PrivacyStatement

if TYPE_CHECKING:
    from dpgen.data import Images, RawTable, Records, Table
    from dpgen.schema import Schema

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


def one_hot_rows(codes: Tensor, schema: Schema, *, labelled: bool) -> tuple[Tensor, Tensor | None]:
    """Bits (n, d) uint8 of codes of a table: a block for each column, but for the target if rows are `labelled` by it.

    >>> from dpgen.schema import Schema
    >>> schema = Schema.from_descriptor({"fields": [{"name": "tea", "type": "boolean"}]})
    >>> one_hot_rows(torch.tensor([[1], [2]]), schema, labelled=False)[0].tolist()
    [[0, 1, 0], [0, 0, 1]]
    """
    sizes, target = schema.domain.sizes, schema.domain.target if labelled else None
    blocks = [one_hot(codes[:, c], size).to(torch.uint8) for c, size in enumerate(sizes) if c != target]
    if not blocks:
        raise ValueError(f"the table has the one column {schema.target!r}; a model of it needs columns beside the target")
    return torch.cat(blocks, 1), None if target is None else codes[:, target]


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
        schema: of a table.
    """

    inputs: Inputs
    n_classes: int = 0
    image_shape: tuple[int, ...] | None = None
    people: Tensor | None = None
    columns: Sequence[str] | None = None
    class_names: Sequence[str] | None = None
    grey_threshold: int | None = None
    schema: Schema | None = None

    @classmethod
    def of_table(cls, data: Table | RawTable, *, labelled: bool) -> TrainingData:
        """Inputs of a table whose domains are public: one-hot codes by its schema; `labelled`: the target is the label.

        Raises:
            ValueError: a domain that is not known, rows that only an engine has.
        """
        if hasattr(data, "draft"):
            left = [field["name"] for field in data.draft["fields"] if field.get("dpgen:blank")]
            raise ValueError(
                f"schema lacks the domain, or dpgen:bins, of {', '.join(left[:3])}{' ...' if len(left) > 3 else ''}; "
                "networks need all: dpgen schema FILE --epsilon 0.5 --out schema.json buys it, and --schema schema.json uses it"
            )
        if not isinstance(data.codes, Tensor):
            raise ValueError("source is an engine, which keeps the rows; networks need a table in memory or in a file (path)")
        x, labels = one_hot_rows(data.codes, data.schema, labelled=labelled)
        n_classes = 0 if labels is None else data.schema.domain.sizes[cast(int, data.schema.domain.target)]
        return cls(inputs=Inputs(x, labels), n_classes=n_classes, schema=data.schema)

    @classmethod
    def of(cls, data: Records | Images, *, grey: bool = False) -> TrainingData:
        """Inputs of records or images; `grey`: with their grey values, if they have any."""
        if data.x.ndim == 4:
            images, shape = cast("Images", data), channels_first(data.x.shape[1:])
            inputs = Inputs(image_rows(images.x), images.labels, WHITE)
            return cls(inputs=inputs, n_classes=images.n_classes, image_shape=shape, class_names=images.class_names)
        records = cast("Records", data)
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
    """The way from means to bits."""
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


class NetworkTable(PublicModel, kind="network_table"):
    """Released networks of the one-hot codes of a table: in the block of a column means are the weights of its codes."""

    network: NetworkModel

    def __init__(self, network: NetworkModel, schema: Schema) -> None:
        self.network, self.schema, self.statement = network, schema, network.statement

    @property
    def size(self) -> int:
        """A released (noisy) number of rows."""
        return self.network.size

    def samples(self, n: int, *, random_state: RandomState = None) -> ColumnSamples:
        """n synthetic rows, which satisfy the schema and its constraints."""
        generator = sampling_generator(n, random_state)
        return ColumnSamples(values=self.schema.rows(lambda count: self._codes(count, generator), n, generator))

    def _codes(self, n: int, generator: torch.Generator) -> Tensor:
        means, domain = self.network.means_of(n, None, generator), self.schema.domain
        if not n:
            return torch.zeros(0, len(domain.sizes), dtype=torch.int64)
        own = None if means.labels is None else domain.target
        blocks = means.values.clamp_min(1e-9).split([size for c, size in enumerate(domain.sizes) if c != own], 1)
        drawn = [torch.multinomial(block, 1, generator=generator) for block in blocks]
        if own is not None:
            drawn.insert(own, cast(Tensor, means.labels)[:, None])
        return torch.cat(drawn, 1)

    def tensors(self) -> dict[str, Tensor]:
        return self.network.tensors()

    def description(self) -> dict[str, Any]:
        return self.network.description() | {"network": self.network.kind, "schema": self.schema.descriptor()}

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> Self:
        inner = dict(description)
        from dpgen.schema import Schema  # of tables alone, here and below

        schema, kind = Schema.from_descriptor(inner.pop("schema")), cls.kinds[inner.pop("network")]
        return cls(cast(NetworkModel, kind.rebuild(inner, tensors, statement)), schema)


def released(network: NetworkModel, data: TrainingData) -> PublicModel:
    """The release of a network that was trained on these data: of records, of images, or of a table."""
    if data.schema is not None:
        return NetworkTable(network, data.schema)
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
        grey: of a classifier by `dpgm`: whether it saw grey values or pixels in units of white; False: bits.
        schema: of the table whose rows a classifier saw, whose target it tells.
    """

    def __init__(
        self,
        weights: dict[str, Tensor],
        network: str,
        options: dict[str, Any],
        statement: PrivacyStatement,
        *,
        grey: bool = False,
        schema: Schema | None = None,
    ) -> None:
        self.weights, self.network, self.options, self.statement = weights, network, options, statement
        self.grey, self.schema = grey, schema
        from dpgen.nets.own import known  # of networks that are not the package's

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
                raise ImportError(f"it has not been imported: import it first, or --network {self.network}")
            with torch.random.fork_rng(devices=[]):
                made = self.network_class(**self.options)
            made.load_state_dict(self.weights)
        except Exception as error:
            problem = " ".join(str(error).split())
            raise ValueError(
                f"{self.network} cannot be built again ({problem}): load_state_dict(model.weights) of your own"
            ) from error
        return made.eval()

    def predict(self, x: Tensor | pd.DataFrame) -> Tensor:
        """The label (n,) with the least loss of each record x (n, d), of a classifier by `dpgm`; or of rows of its table.

        Labels of a table are codes of its target: places in `schema.by_name[schema.target].labels()`, and one more for a gap.
        """
        network, categories = cast(Any, self.module()), self.options.get("categories")
        if categories is None:
            raise ValueError(f"{self.network} is no classifier by dpgm; model.module() is the network")
        x = self._bits(x) if isinstance(x, pd.DataFrame) else x
        with torch.no_grad():
            losses = [network.loss(x, torch.full((len(x),), label)) for label in range(categories)]
        return torch.stack(losses, 1).argmin(1)

    def _bits(self, x: pd.DataFrame) -> Tensor:
        """Bits (n, d) float32 of rows of a table, without its target."""
        if self.schema is None:
            raise ValueError(f"x is a table, and {self.network} saw none; it must be a tensor (n, d)")
        domain, target = self.schema.domain, cast(int, self.schema.domain.target)
        table = x.reset_index(drop=True).assign(**{domain.names[target]: None})
        bought = [f for f in self.schema.modelled if f.source == "dp" and f.name in table]
        table = table.assign(**{f.name: f.read(table[f.name]) for f in bought})
        codes = torch.from_numpy(self.schema.known(table)[0])
        codes = torch.where(codes < 0, torch.tensor([f.gap for f in self.schema.modelled]), codes)
        codes[:, target] = 0
        if len(gaps := (codes < 0).nonzero()):
            raise ValueError(f"x has a gap in column {domain.names[int(gaps[0, 1])]!r}, where the schema allows none")
        return one_hot_rows(codes, self.schema, labelled=True)[0].float()

    def sample(self, n: int, random_state: RandomState = None, **options: Any) -> Any:
        """Samples that the module's own `sample(n)` returns, with random numbers of this state.

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
        schema = None if self.schema is None else self.schema.descriptor()
        return {"network": self.network, "options": self.options, "grey": self.grey, "schema": schema}

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> ReleasedModule:
        from dpgen.schema import Schema

        seen = {"grey": description.get("grey", False), "schema": description.get("schema")}
        seen["schema"] = None if seen["schema"] is None else Schema.from_descriptor(seen["schema"])
        return cls(tensors, description["network"], description["options"], statement, **seen)
