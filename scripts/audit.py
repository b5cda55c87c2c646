"""Try a system's claim: `python scripts/audit.py --model dpgm [--key value ...] [--out finding.json]`."""

import sys

from dpgen import audit, audit_usage, exit_code, parse_audit, parse_command


def try_claim(arguments: list[str]) -> str | int:
    command = parse_command(arguments)
    if command.help:
        return audit_usage(command.job_arguments)
    finding = audit(parse_audit(arguments))
    print(finding.to_text())
    return int(finding.violated)


def main() -> int:
    return exit_code(lambda: try_claim(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
