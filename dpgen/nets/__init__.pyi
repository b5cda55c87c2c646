"""Public names of dpgen.nets, for type checkers and for `lazy_loader`, which imports each on first use."""

from .bank import Factor as Factor
from .bank import ModelBank as ModelBank
from .bank import RecordGradients as RecordGradients
from .bank import Tape as Tape
from .conv import ConvVAEBank as ConvVAEBank
from .own import CriticNetwork as CriticNetwork
from .own import GeneratorNetwork as GeneratorNetwork
from .own import Network as Network
from .own import OwnBank as OwnBank
from .own import OwnClassifierBank as OwnClassifierBank
from .rbm import RBMBank as RBMBank
from .vae import VAEBank as VAEBank
