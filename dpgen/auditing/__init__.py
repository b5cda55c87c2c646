"""Audits: empirical lower bounds on what the systems leak, beside what they claim."""

from dpgen.auditing.audit import AuditJob, AuditOptions, audit, audit_usage, parse_audit
from dpgen.auditing.lower_bounds import Finding

__all__ = ["AuditJob", "AuditOptions", "Finding", "audit", "audit_usage", "parse_audit"]
