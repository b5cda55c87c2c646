"""Public names of dpgen, for type checkers and for `lazy_loader`, which imports each on first use."""

from . import callbacks as callbacks
from . import data as data
from . import metrics as metrics
from . import nets as nets
from . import privacy as privacy
from . import systems as systems
from .api import Synthesizer as Synthesizer
from .api import fit as fit
from .api import plan as plan
from .cli.evaluate import compare_runs as compare_runs
from .config import RunConfig as RunConfig
from .config import parse_job as parse_job
from .evaluation.compare import compare as compare
from .privacy.ledger import Budget as Budget
from .privacy.ledger import BudgetExceeded as BudgetExceeded
from .privacy.shared_budget import SharedBudget as SharedBudget
from .report import report as report
from .run import run as run
from .runtime import Runtime as Runtime
from .runtime import quiet_training as quiet_training
from .systems.dp_sgd.own_module import make_private as make_private
from .systems.dp_sgd.own_module import release as release
from .systems.registry import load as load
from .systems.tables.model import intervals as intervals

__version__: str
