"""Network components: k models of one architecture in one parameter matrix."""

from dpgen.nets.bank import ModelBank, Tape
from dpgen.nets.conv import ConvVAEBank
from dpgen.nets.own import CriticNetwork, GeneratorNetwork, Network, OwnBank, OwnClassifierBank
from dpgen.nets.rbm import RBMBank
from dpgen.nets.vae import VAEBank
from dpgen.privacy.clipping import Factor, RecordGradients

BANKS: dict[str, type[ModelBank]] = {"vae": VAEBank, "conv_vae": ConvVAEBank, "rbm": RBMBank, "own": OwnBank}
"""Banks that a released model can hold, by the name of its component."""

__all__ = [
    "BANKS",
    "ConvVAEBank",
    "CriticNetwork",
    "Factor",
    "GeneratorNetwork",
    "ModelBank",
    "Network",
    "OwnBank",
    "OwnClassifierBank",
    "RBMBank",
    "RecordGradients",
    "Tape",
    "VAEBank",
]
