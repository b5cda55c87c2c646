"""Generative networks trained by DP-SGD: DPGM's mixtures and DPGAN."""
