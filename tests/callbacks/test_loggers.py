"""What loggers get: released values only, whoever the logger is, with time and memory beside them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from dpgen.callbacks import Previews, PrivacyAccountant
from dpgen.callbacks.loggers import ReleaseLogger
from dpgen.evaluation.scores import Score
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.sampling import PoissonLoader
from dpgen.runtime import Runtime
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.filterwarnings("ignore:DPNorm")]

RELEASED = ("eps", "epoch", "privacy/", "released/", "performance/")


SCORE = Score("accuracy", 0.5)


class Recording(Logger):
    """A logger of somebody else's, which keeps everything it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics: dict[str, list[float]] = {}
        self.parameters: list[Any] = []

    @property
    def name(self) -> str:
        return "recording"

    @property
    def version(self) -> int:
        return 0

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        for name, value in metrics.items():
            self.metrics.setdefault(name, []).append(float(value))

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self.parameters.append(params)


def train(directory: Path, logger: Logger | None = None, steps: int = 20, **config: Any) -> DPGM:
    runtime = Runtime(run_dir=directory, accelerator="cpu", progress_bar=False)
    data = tiny.records()
    plan = DPGMPlan(sampling_rate=0.5, steps=steps, noise_multiplier=1.0, sigma_count=5.0, epsilon=50.0)
    module = DPGM(
        d=tiny.D,
        plan=plan,
        config=DPGMConfig(hidden=3, latent=1, **config),
        n_classes=tiny.CLASSES,
    )
    callbacks = [
        PrivacyAccountant(Curator(Ledger(Budget(50.0, 1e-5)))),
        module.config.clipping_callback(module.plan),
        Previews(module.preview, image_shape=(4, 4)),
        ReleaseLogger(),
    ]
    with pytest.MonkeyPatch.context() as patch:
        if logger is not None:
            patch.setattr(Runtime, "run_logger", lambda *_, **__: logger)
        runtime.fit(module, PoissonLoader(data.x, data.labels, sampling_rate=0.5), max_steps=steps, callbacks=callbacks)
    return module


@pytest.mark.parametrize("clipping", ["auto", "dpnorm"])
def test_a_foreign_logger_gets_released_values_only(tmp_path: Path, clipping: str) -> None:
    logger = Recording()
    module = train(tmp_path, logger, clipping=clipping)
    assert all(name.startswith(RELEASED) for name in logger.metrics), sorted(logger.metrics)
    assert {"privacy/epsilon", "privacy/remaining", "released/size_0", "performance/steps_per_second"} <= set(logger.metrics)
    sizes = [logger.metrics[f"released/size_{c}"][0] for c in range(tiny.CLASSES)]
    assert sizes == module.partition.counts.tolist(), "noisy ones"
    drawn = {len(batch.x) for _ in range(50) for batch in PoissonLoader(tiny.records().x, sampling_rate=0.5)}
    speeds = logger.metrics["performance/expected_records_per_second"]
    steps = logger.metrics["performance/steps_per_second"]
    ratios = {round(a / b, 6) for a, b in zip(speeds, steps)}
    assert ratios == {round(0.5 * float(module.partition.counts.clamp_min(0).sum()), 6)}, "not the drawn numbers"
    assert len(drawn) > 3
    assert ("released/clip_bound_0" in logger.metrics) == (clipping != "auto")
    assert not logger.parameters, "nothing is logged behind the callbacks' back"


def test_tensorboard_has_scalars_and_pictures(tmp_path: Path) -> None:
    train(tmp_path, clipping="dpnorm")
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    tags = events.Tags()
    scalars = {"privacy/epsilon", "privacy/remaining", "released/size_1", "released/clip_bound_1", "performance/memory_mib"}
    assert scalars <= set(tags["scalars"])
    assert "released/samples" in tags["images"]
    assert len(events.Images("released/samples")) >= 2, "one per epoch"


def test_hyperparameters_and_final_metrics(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").mkdir()
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    assert runtime.facts == (Fact.LOGS,)
    settings = {"privacy": {"epsilon": 3.0, "delta": None}, "model": {"name": "dpgm"}}
    runtime.log_results(settings, {SCORE.tag: SCORE.value})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Scalars(SCORE.tag)[0].value == 0.5


def test_where_nothing_was_trained_nothing_is_logged(tmp_path: Path) -> None:
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu")
    runtime.log_results({}, {"accuracy": 0.5})
    assert list(tmp_path.iterdir()) == []
    assert runtime.facts == ()


# -- pictures ----------------------------------------------------------------------------------------------------------

K, M = 3, 4


class Recorder(TensorBoardLogger):
    """A TensorBoard logger that keeps pictures in memory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.pictures: list[tuple[str, Tensor, int]] = []

    @property
    def experiment(self) -> Any:
        return SimpleNamespace(add_image=lambda *picture: self.pictures.append(picture))


def shown_by(*loggers: Any, epoch: int = 0) -> Any:
    return SimpleNamespace(loggers=loggers, current_epoch=epoch, global_step=17)


def draw() -> Tensor:
    """Every pixel of cluster c has the value c / K; two label columns follow the 4 pixels."""
    return (torch.arange(K) / K)[:, None, None].expand(K, M, 6)


def test_one_row_per_cluster_and_no_label_columns(tmp_path: Path) -> None:
    logger = Recorder(tmp_path)
    Previews(draw, image_shape=(2, 2)).on_train_end(shown_by(logger), None)  # type: ignore[arg-type]
    [(name, picture, step)] = logger.pictures
    assert (name, step) == ("released/samples", 17)
    assert picture.shape == (3, K * 3 + 1, M * 3 + 1), "K rows of M pictures of 2 x 2 with a border of 1"
    assert torch.allclose(picture[0, 1::3, 1], 1 - torch.arange(K) / K), "ink is dark"


def test_only_every_few_epochs(tmp_path: Path) -> None:
    logger = Recorder(tmp_path)
    previews = Previews(draw, image_shape=(2, 2), every=3)
    counts = []
    for epoch in range(6):
        previews.on_train_epoch_end(shown_by(logger, epoch=epoch), None)  # type: ignore[arg-type]
        counts.append(len(logger.pictures))
    assert counts == [0, 0, 1, 1, 1, 2]


def test_other_loggers_get_nothing(tmp_path: Path) -> None:
    def fail() -> Tensor:
        raise AssertionError("drawn for nobody")

    Previews(fail, image_shape=(2, 2)).on_train_end(shown_by(CSVLogger(tmp_path)), None)  # type: ignore[arg-type]
