"""DP-MERF: a generator whose random Fourier features have the noisy class means of the private records."""
