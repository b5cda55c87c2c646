"""Loggers of a run whose entries wait until the charges behind them are committed."""

from typing import Any

from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger


class Held:
    """A logger that keeps entries in memory until `show`."""

    def show(self) -> None:
        """Write what was logged so far: the charges behind it are committed."""
        raise NotImplementedError


class HeldTensorBoard(Held, TensorBoardLogger):
    """TensorBoard, whose entries wait."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    @property
    def experiment(self) -> Any:
        """A writer that remembers what it is told."""
        return _Writer(self._calls)

    def show(self) -> None:
        calls, self._calls[:] = list(self._calls), []
        if calls:
            writer = super().experiment
            for name, arguments, options in calls:
                getattr(writer, name)(*arguments, **options)
            writer.flush()

    def save(self) -> None:
        """Nothing: hyperparameters are written with the results."""

    def finalize(self, status: str) -> None:
        """Close the files; what was not shown is dropped."""
        if self._experiment is not None:
            self._experiment.close()
            self._experiment = None


class _Writer:
    def __init__(self, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: self._calls.append((name, arguments, options))


class HeldCSV(Held, CSVLogger):
    """A table of metrics, whose rows wait."""

    def show(self) -> None:
        super().save()

    def save(self) -> None:
        """Nothing until `show`."""

    def finalize(self, status: str) -> None:
        """Nothing: what was not shown is dropped."""
