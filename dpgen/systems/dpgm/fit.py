"""DPGM: a mixture of k generative networks on privately found clusters (Acs et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor

from dpgen.nets import ModelBank
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import PublicRandomness
from dpgen.release import RecordLayout
from dpgen.systems.dp_sgd.engine import DPSGD, train
from dpgen.systems.dp_sgd.model import ReleasedModule, TrainingData, released
from dpgen.systems.dp_sgd.partition import LabelPartition, Partition
from dpgen.systems.dpgm.model import MixtureModel, component_name
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

if TYPE_CHECKING:
    from dpgen.data import Images, RawTable, Records, Table
    from dpgen.release import PublicModel
    from dpgen.runtime import Runtime


class DPGM(DPSGD):
    r"""k component models trained together by DP-SGD on k disjoint clusters, see `DPSGD`.

    With a plain `lightning.Trainer`: callbacks `PrivacyAccountant` (required), a `Clipping` policy (default automatic);
    the loader must be a `PoissonLoader` with the plan's sampling rate.

    Of d columns of a record labels are not counted; `image_shape` as in `dpgen.nets.cosines.planes`; `white` is the value of
    records that counts as 1, 255 of images, and that of the loader. `bank`, k untrained component models of a kind that can be
    released, replaces `config.component`.

    Source: Acs et al. 2017, Algorithms 1 and 4; every step trains all models, where the paper picks one cluster.
    """

    plan: DPGMPlan
    config: DPGMConfig
    released: ClassVar[bool] = True
    """Whether a bank that could not be released is refused before it is trained; audits release nothing."""

    def __init__(
        self,
        *,
        d: int,
        plan: DPGMPlan,
        config: DPGMConfig | None = None,
        n_classes: int = 0,
        image_shape: tuple[int, ...] | None = None,
        white: int = 1,
        seed: int = 0,
        bank: ModelBank | None = None,
    ) -> None:
        config = (config or DPGMConfig()).resolved(n_classes=n_classes)
        plan, public = plan.calibrated(config), PublicRandomness(seed)
        categories = n_classes if config.clusters != "labels" else 0
        bank = bank if bank is not None else config.bank(d + categories, categories, image_shape)
        if self.released and not bank.classifies:
            component_name(bank)
            for name, wanted in (("k", config.k), ("d", d + categories)):
                if (found := bank.architecture()[name]) != wanted:
                    raise ValueError(f"bank has {name} {found}; it must be {wanted}, as the clusters and records have")
        super().__init__(
            bank,
            self._clusters(config, plan, public),
            plan=plan,
            config=config,
            n_classes=n_classes,
            categories=categories,
            public=public,
            white=white,
        )

    @staticmethod
    def _clusters(config: DPGMConfig, plan: DPGMPlan, public: PublicRandomness) -> Partition:
        assert config.k is not None
        assert plan.sigma_count is not None
        if config.clusters != "kmeans":
            return LabelPartition(config.k, noise_count=plan.sigma_count, labelled=config.clusters == "labels")
        from dpgen.systems.kmeans.fit import DPKMeans  # labels need none

        seed = public.spawn("kmeans")
        return DPKMeans(config.k, plan.kmeans_plan(), gamma=config.gamma, n_features=config.n_features, seed=seed)

    def preview(self, per_cluster: int = 8) -> Tensor:
        """Mean values (k, per_cluster, d) of samples of the released parameters, always from the same latent draws."""
        generator = self._public.spawn("preview").generator
        return torch.stack([self.bank.sample(c, per_cluster, generator) for c in range(self.bank.k)])

    def release(
        self,
        ledger: Ledger,
        *,
        image_shape: tuple[int, int] | None = None,
        columns: Sequence[str] | None = None,
        grey_threshold: int | None = None,
    ) -> MixtureModel:
        """The trained mixture with the statement of `ledger`, of records that are images (height, width), or have columns."""
        labelled_by = "cluster" if self.config.clusters == "labels" else "columns" if self.categories else None
        bank = self.bank.released()
        if self.config.off_below:
            bank = cast(Any, bank).silenced(self.partition.counts, self.config.off_below)
        return MixtureModel(
            bank,
            counts=self.partition.counts,
            statement=self.statement(ledger),
            layout=RecordLayout(self.n_classes, image_shape, columns, grey_threshold),
            labelled_by=labelled_by,
            kmeans=cast(Any, self.partition) if self.config.kmeans else None,
        )


def fit(
    data: Records | Images | Table | RawTable,
    *,
    plan: DPGMPlan,
    config: DPGMConfig,
    curator: Curator,
    runtime: Runtime,
) -> PublicModel:
    """Train DPGM on private records, images or a table, or resume it, and release the mixture with its statement."""
    own = _seen(data, plan, config)
    if own.pixels is not None:
        config.require_images()

    def release(module: DPGM, ledger: Ledger) -> PublicModel:
        if module.bank.classifies:
            bank: Any = module.bank
            told, weights, grey = bank.architecture(), bank.network().state_dict(), own.inputs.white > 1
            stated = module.statement(ledger)
            return ReleasedModule(weights, told["network"], told["options"], stated, grey=grey, schema=own.schema)
        shape: Any = own.image_shape if own.pixels is None else None
        made = module.release(ledger, image_shape=shape, columns=own.columns, grey_threshold=own.grey_threshold)
        return released(made, own)

    module = DPGM(
        d=own.d,
        plan=plan,
        config=config,
        n_classes=own.n_classes,
        image_shape=own.image_shape,
        white=own.inputs.white,
        seed=runtime.seed,
    )
    shown = replace(own, image_shape=None) if config.classifies else own  # it has no pictures to show
    return train(module, release, shown, curator=curator, runtime=runtime)


def _seen(data: Any, plan: DPGMPlan, config: DPGMConfig) -> TrainingData:
    """The data as networks see them: of a table its target is the label where a network of its own, or a classifier, has it."""
    if not hasattr(data, "draft") and not hasattr(data, "schema"):
        return TrainingData.of(data, grey=config.grey and config.network is not None)
    if plan.rows > 1:
        raise ValueError(f"max_contributions is {plan.rows}; it must be 1 for networks of a table")
    labelled = config.classifies or config.clusters in ("auto", "labels")
    return TrainingData.of_table(data, labelled=labelled)
