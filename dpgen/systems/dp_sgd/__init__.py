"""The engine under DPGM and DPGAN: DP-SGD as a LightningModule."""
