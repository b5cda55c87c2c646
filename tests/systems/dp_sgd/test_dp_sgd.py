"""What DPGM and DPGAN share: their own tests train them; here is what belongs to neither."""

import pytest
import tiny

from dpgen.callbacks import PrivacyAccountant
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.sampling import PoissonLoader
from dpgen.systems.dp_sgd.engine import DPSGD, FACTS
from dpgen.systems.dpgan.fit import DPGAN
from dpgen.systems.dpgan.plan import DPGANConfig, DPGANPlan
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

NUMBERS = {"epsilon": 2.0, "steps": 3, "sampling_rate": 0.5}
MODULES = {
    "dpgm": lambda: DPGM(d=tiny.D, plan=DPGMPlan(**NUMBERS), config=DPGMConfig(clusters="none", hidden=2, latent=1)),
    "dpgan": lambda: DPGAN(d=tiny.D, plan=DPGANPlan(**NUMBERS), config=DPGANConfig(hidden=2, latent=1)),
}


@pytest.mark.parametrize("name", MODULES)
def test_an_untrained_module_releases_nothing(name: str) -> None:
    module = MODULES[name]()
    assert isinstance(module, DPSGD)
    for release in (module.release, module.statement):
        with pytest.raises(ValueError, match="there is nothing to release: the module has not been trained"):
            release(Ledger(None, delta=1e-5))


@pytest.mark.parametrize("name", MODULES)
def test_a_training_step_needs_the_consent_of_the_ledger(name: str) -> None:
    module = MODULES[name]()
    with pytest.raises(RuntimeError, match="training_step was called without the ledger's consent"):
        module.training_step(None, 0)


def test_what_a_statement_rests_on_is_said() -> None:
    assert [one.fact for one in MODULES["dpgm"]().facts] == list(FACTS)


@pytest.mark.usefixtures("quiet")
def test_draws_are_shared_among_the_ranks_that_pay_for_them() -> None:
    module, accountant = MODULES["dpgm"](), PrivacyAccountant(Curator(Ledger(Budget(2.0, 1e-5))))
    loader = PoissonLoader(tiny.records().x, sampling_rate=0.5)
    tiny.trainer(accountant, steps=1).fit(module, loader)
    assert loader.poisson.ranks is accountant.ranks
