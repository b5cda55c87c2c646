"""`dpgen audit --model NAME`: try a system's claim on neighbouring data sets."""

from dpgen.cli.command import Ended
from dpgen.cli.jobs import parse_command


def main(arguments: list[str]) -> str | Ended:
    """The finding; exit code 1 if the claim is violated."""
    from dpgen.auditing.options import audit_usage, parse_audit

    command = parse_command(arguments)
    if command.help:
        return audit_usage(command.job_arguments)
    job = parse_audit(arguments)
    from dpgen.auditing import audit

    finding = audit(job)
    return Ended(finding.to_text(), int(finding.violated))
