"""Try a system's claim: `python scripts/audit.py --model dpgm [--key value ...] [--out finding.json]`."""

import sys
import warnings

from dpgen import BudgetExceeded, LedgerError, audit, audit_usage, parse_audit


def main() -> int:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(audit_usage())
        return 0
    warnings.filterwarnings("ignore", module="lightning")
    try:
        finding = audit(parse_audit(sys.argv[1:]))
    except (ValueError, LedgerError, BudgetExceeded, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(finding.to_text())
    return int(finding.violated)


if __name__ == "__main__":
    sys.exit(main())
