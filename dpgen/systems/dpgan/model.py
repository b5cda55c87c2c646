"""Released generators, of binary records and of points."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from dpgen.files import under
from dpgen.nets.gan import Correction, Generator
from dpgen.nets.own import OwnGenerator
from dpgen.release import ImageModel, PublicModel, RandomState, RecordModel, Rounding, draw_components, sampling_generator
from dpgen.samples import PointSamples, RecordSamples, image_rows
from dpgen.statement import PrivacyStatement
from dpgen.systems.dp_sgd.model import WHITE, Inputs, Means, NetworkModel

_CHUNK = 10_000


class _GeneratorModel(PublicModel):
    """A released generator: its files, which both kinds share."""

    generator: Generator | OwnGenerator

    def tensors(self) -> dict[str, Tensor]:
        return {f"generator.{name}": value for name, value in self.generator.state_dict().items()}

    def description(self) -> dict[str, Any]:
        return {"generator": self.generator.architecture()}

    @staticmethod
    def rebuilt(
        description: dict[str, Any], tensors: dict[str, Tensor], plain: type[Generator] = Generator
    ) -> Generator | OwnGenerator:
        """The generator of a file."""
        options = dict(description["generator"])
        shape = options.pop("image_shape")
        if (coarse := options.pop("coarse", 1)) > 1:
            raise ValueError(f"coarse is {coarse}: earlier versions of dpgen draw samples of a generator that interpolates")
        kind: type[Generator | OwnGenerator] = OwnGenerator if "network" in options else plain
        generator = kind(**options, image_shape=tuple(shape) if shape else None)
        generator.load_state_dict(under("generator", tensors))
        return generator

    def noise(self, n: int, generator: torch.Generator) -> Tensor:
        """Latent values (n, latent) of n outputs."""
        return torch.randn(n, self.generator.latent, generator=generator)

    @torch.no_grad()
    def generate(self, z: Tensor, labels: Tensor | None) -> Tensor:
        """Outputs (n, d) of the generator for z (n, latent), label code left out."""
        starts = range(0, max(len(z), 1), _CHUNK)
        parts = [self.generator(z[i : i + _CHUNK], None if labels is None else labels[i : i + _CHUNK]) for i in starts]
        return torch.cat(parts)[:, : self.generator.d]


class GANModel(_GeneratorModel, NetworkModel, kind="gan"):
    """A released generator of binary records; `counts` are the noisy records of each class, (k,), or of all, (1,)."""

    def __init__(
        self,
        generator: Generator | OwnGenerator,
        counts: Tensor,
        *,
        statement: PrivacyStatement,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.generator, self.counts, self.statement = generator.eval(), counts, statement
        self.columns = tuple(columns) if columns is not None else None
        shape = generator.image_shape
        self.image_shape = (shape[0], shape[1]) if shape is not None and len(shape) == 2 else None

    def means_of(self, n: int, clusters: Sequence[int] | None, generator: torch.Generator) -> Means:
        cluster = draw_components(self.counts.clamp_min(0.0), n, clusters, generator)
        labels = cluster.clone() if self.generator.categories else None
        return Means(self.generate(self.noise(n, generator), labels), cluster, labels, len(self.counts))

    def tensors(self) -> dict[str, Tensor]:
        return super().tensors() | {"counts": self.counts}

    def description(self) -> dict[str, Any]:
        return super().description() | {"columns": self.columns}

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> "GANModel":
        generator = cls.rebuilt(description, tensors)
        return cls(generator, tensors["counts"], statement=statement, columns=description["columns"])


class CorrectedModel(_GeneratorModel, NetworkModel, kind="corrected"):
    """A released model of binary records or images whose samples a `Correction` changes; dpgen 0.4 made such models."""

    rounding: ClassVar[Rounding] = "threshold"

    def __init__(
        self,
        start: RecordModel | ImageModel,
        generator: Generator | OwnGenerator,
        *,
        statement: PrivacyStatement,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.start, self.generator, self.statement = start, generator.eval(), statement
        self.counts, self.passes = start.counts, start.passes + 1
        self.image_shape = start.image_shape if isinstance(start, RecordModel) else None
        self.columns = tuple(columns) if columns is not None else None

    def assign(self, x: Tensor) -> Tensor | None:
        return self.start.assign(x) if isinstance(self.start, RecordModel) else None

    def means_of(self, n: int, clusters: Sequence[int] | None, generator: torch.Generator) -> Means:
        drawn = self.start.samples(n, random_state=int(torch.randint(2**31, (), generator=generator)), clusters=clusters)
        x = drawn.x
        inputs = Inputs(image_rows(x), drawn.labels, WHITE) if x.ndim == 4 else Inputs(x, drawn.labels)
        x = self.generate(inputs.values(torch.arange(n)), inputs.labels if self.generator.categories else None)
        if isinstance(drawn, RecordSamples):
            return Means(x, drawn.cluster, drawn.labels, drawn.k)
        return Means(x, drawn.labels, drawn.labels, len(self.counts))

    def tensors(self) -> dict[str, Tensor]:
        return super().tensors() | {f"start.{name}": value for name, value in self.start.tensors().items()}

    def description(self) -> dict[str, Any]:
        start = {"kind": self.start.kind, "description": self.start.description()}
        return super().description() | {"start": start, "columns": self.columns}

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> "CorrectedModel":
        card = description["start"]
        start = PublicModel.kinds[card["kind"]].rebuild(card["description"], under("start", tensors), statement)
        assert isinstance(start, RecordModel | ImageModel)
        return cls(start, cls.rebuilt(description, tensors, Correction), statement=statement, columns=description["columns"])


class PointGANModel(_GeneratorModel, kind="point_gan"):
    """A released generator of points, in units of a public scale (d,) around a public location (d,).

    Points are clamped to the public box `bounds` (d, 2), if there is one; `size` is their noisy number.
    """

    def __init__(
        self,
        generator: Generator | OwnGenerator,
        *,
        location: Tensor,
        scale: Tensor,
        bounds: Tensor | None,
        columns: Sequence[str],
        statement: PrivacyStatement,
        size: int | None = None,
    ) -> None:
        self.generator, self.statement, self.columns = generator.eval(), statement, tuple(columns)
        self.location, self.scale, self.bounds, self._size = location, scale, bounds, size

    @property
    def size(self) -> int | None:
        return self._size

    def samples(self, n: int, *, random_state: RandomState = None) -> PointSamples:
        public = sampling_generator(n, random_state)
        x = self.location + self.scale * self.generate(self.noise(n, public), None).double()
        if self.bounds is not None:
            x = x.clamp(self.bounds[:, 0], self.bounds[:, 1])
        return PointSamples(x=x, columns=self.columns)

    def tensors(self) -> dict[str, Tensor]:
        box = {"bounds": self.bounds} if self.bounds is not None else {}
        return super().tensors() | {"location": self.location, "scale": self.scale} | box

    def description(self) -> dict[str, Any]:
        return super().description() | {"columns": self.columns, "size": self.size}

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> "PointGANModel":
        return cls(
            cls.rebuilt(description, tensors),
            location=tensors["location"],
            scale=tensors["scale"],
            bounds=tensors.get("bounds"),
            columns=description["columns"],
            statement=statement,
            size=description.get("size"),
        )
