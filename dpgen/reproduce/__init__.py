"""The figures of the papers, regenerated: pictures and tables from one command each."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def _named(name: str) -> Callable[..., str]:
    def reproduce(out: Path, *, data_root: Path | None = None, quick: bool = False, seed: int = 0) -> str:
        make: Callable[..., str] = getattr(import_module(f"dpgen.reproduce.{name}"), f"reproduce_{name}")
        out.mkdir(parents=True, exist_ok=True)
        return make(out, data_root=data_root, quick=quick, seed=seed)

    reproduce.__doc__ = f"See `dpgen.reproduce.{name}`."
    return reproduce


REPRODUCTIONS: dict[str, Callable[..., str]] = {
    name: _named(name) for name in ("zamanlooy", "mollifier", "diakonikolas", "husain", "acs")
}
"""By name: writes pictures and tables into a directory and returns a summary."""
