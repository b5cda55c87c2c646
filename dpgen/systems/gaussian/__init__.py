"""The Gaussian component of DPGM: noisy moments in a DP-PCA space, no training, seconds."""
