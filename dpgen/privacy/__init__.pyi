"""Public names of dpgen.privacy, for type checkers and for `lazy_loader`, which imports each on first use."""

from .curator import Curator as Curator
from .distributed import RemoteFailure as RemoteFailure
from .distributed import ShareDone as ShareDone
from .exact_sums import BoundedSum as BoundedSum
from .ledger import Ledger as Ledger
from .ledger import LedgerError as LedgerError
from .ledger import Planned as Planned
from .sampling import PoissonLoader as PoissonLoader
