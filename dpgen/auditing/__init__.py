"""Audits: empirical lower bounds on what the systems leak, beside what they claim."""

from dpgen.auditing.audit_options import AuditJob, AuditOptions, audit_usage, parse_audit
from dpgen.auditing.audit_run import audit
from dpgen.auditing.finding import Finding

__all__ = ["AuditJob", "AuditOptions", "Finding", "audit", "audit_usage", "parse_audit"]
