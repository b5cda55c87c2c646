"""Private records to noisy counts of ones."""

import torch

from dpgen.facts import Fact
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import pure_event
from dpgen.release import RecordModel, round_bits, sampling_generator
from dpgen.samples import RecordSamples
from dpgen.statement import PrivacyStatement


class BitsModel(RecordModel, kind="noisy_bits"):
    """Independent bits of probabilities p (d,)."""

    def __init__(self, p, counts, columns, statement):
        self.p, self.counts, self.columns, self.statement = p, counts, columns, statement

    def samples(self, n, *, random_state=None, clusters=None):
        x = round_bits(self.p.float().expand(n, -1), "bernoulli", sampling_generator(n, random_state))
        return RecordSamples(x=x, cluster=torch.zeros(n, dtype=torch.int64), columns=self.columns)

    def tensors(self):
        return {"p": self.p, "counts": self.counts}

    def description(self):
        return {"columns": self.columns}

    @classmethod
    def rebuild(cls, description, tensors, statement):
        return cls(tensors["p"], tensors["counts"], description["columns"], statement)


def fit(data, *, plan, config, curator, runtime):
    d = data.x.shape[1]
    sums = torch.cat([torch.tensor([len(data.x)]), data.x.sum(0, dtype=torch.int64)])  # a record adds at most 1 to each
    curator.declare(Planned(pure_event(plan.epsilon), "counts of ones"))
    noisy = curator.laplace("counts of ones", BoundedSum(sums, d + 1.0, norm="l1"), plan.epsilon).double()
    p = (noisy[1:] / noisy[:1].clamp_min(1)).clamp(config.margin, 1 - config.margin)
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=(Fact.ONE_RECORD,))
    return BitsModel(p, noisy[:1], data.columns, statement)
