"""Public names of the audits; `lazy_loader` imports each on first use."""

from .audits import audit as audit
from .lower_bounds import Finding as Finding
from .options import AuditJob as AuditJob
from .options import AuditOptions as AuditOptions
from .options import parse_audit as parse_audit
