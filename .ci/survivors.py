"""The mutants that no test killed and that no line of equivalent_mutants.txt explains; exit status 1 if there are any.

A line of that file: function | text before | text after | reason. Names of mutants are not kept, as they move with the code.
"""

import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

LISTED = Path(__file__).with_name("equivalent_mutants.txt")


def mutmut(*arguments: str) -> list[str]:
    """Lines that a command of mutmut prints."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def change(mutant: str) -> tuple[str, str, str]:
    """Function, and the lines that the mutant removes and adds."""
    lines = mutmut("show", mutant)
    parts = [" ".join(line[1:].strip() for line in lines if line[:1] == sign and line[:3] != sign * 3) for sign in "-+"]
    function = mutant.rpartition("__mutmut_")[0].replace(".xǁ", ".").replace("ǁ", ".").replace(".x_", ".")
    return function, parts[0], parts[1]


def main(patterns: list[str]) -> int:
    """Print what survived and is not explained."""
    listed = [line.split(" | ") for line in LISTED.read_text().splitlines() if line and not line.startswith("#")]
    known = {tuple(line[:3]) for line in listed}
    results = [line.strip().split(": ") for line in mutmut("results")]
    lived = [name for name, state in results if state in ("survived", "no tests")]
    asked = [name for name in lived if not patterns or any(fnmatch(name, pattern) for pattern in patterns)]
    new = [found for found in map(change, asked) if found not in known]
    for found in new:
        print(" | ".join(found))
    print(f"{len(asked)} mutants survived, {len(new)} of them without a reason in {LISTED.name}")
    return bool(new)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
