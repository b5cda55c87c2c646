"""Baselines on tables of bits: noisy marginals and MWEM."""
