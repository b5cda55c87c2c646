"""Numbers of known laws: runs `laws.py`, which has the options.

    python benchmarks/numbers.py [--records 1000 4000 40000] [--epsilons .5 1 3 10] [--seeds 3] [--only together alone]

Scripts of this folder find this file where NumPy imports `numbers` of Python's own library: it is that module for them.
"""

import runpy
import sysconfig
from pathlib import Path


def main() -> None:
    """Run it."""
    runpy.run_path(str(Path(__file__).with_name("laws.py")), run_name="__main__")


if __name__ == "__main__":
    main()
elif __name__ == "numbers":
    _library = Path(sysconfig.get_path("stdlib"), "numbers.py")
    exec(compile(_library.read_text(), str(_library), "exec"))
