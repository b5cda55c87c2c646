"""Network components: k models of one architecture in one parameter matrix."""

from dpgen.nets.bank import Factor, ModelBank, RecordGradients, Tape
from dpgen.nets.generic import GenericBank
from dpgen.nets.rbm import RBMBank
from dpgen.nets.vae import VAEBank

BANKS: dict[str, type[ModelBank]] = {"vae": VAEBank, "rbm": RBMBank}

__all__ = ["BANKS", "Factor", "GenericBank", "ModelBank", "RBMBank", "RecordGradients", "Tape", "VAEBank"]
