"""Independent bits at noisy probabilities: a complete system of another distribution, found by its entry point."""

from dpgen.systems.registry import System

SYSTEM = System(
    kinds=("records",),
    plan_path="noisy_bits.plan:BitsPlan",
    config_path="noisy_bits.plan:BitsConfig",
    fit_path="noisy_bits.fit:fit",
    model_paths=("noisy_bits.fit:BitsModel",),
)
