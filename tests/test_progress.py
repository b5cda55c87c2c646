"""The progress bar of a run: one for all phases, on a terminal only, with what was spent beside it."""

import io

import pytest

from dpgen.progress import PHASES, Bar, report, showing, steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(stream: io.StringIO, *, shown: bool = True) -> list[int]:
    with showing(Bar(shown=shown, spent=lambda: "eps 1 of 3", stream=stream)) as bar:
        for phase in PHASES:
            bar.phase(phase)
            done = list(steps(range(4), "train" if phase == "fit" else phase))
        report(1.0)
    return done


def test_it_goes_from_nothing_to_all_of_it_and_says_what_is_spent() -> None:
    stream = Terminal()
    assert run(stream) == [0, 1, 2, 3]
    shown = [line for line in stream.getvalue().replace("\n", "\r").split("\r") if "%" in line]
    percents = [int(line.split("%")[0].split()[-1]) for line in shown]
    assert percents == sorted(percents)
    assert (percents[0], percents[-1]) == (0, 100)
    assert all("eps 1 of 3" in line for line in shown[1:])
    assert {line.split()[0] for line in shown if not line.startswith("0")} >= {*PHASES, "train"}


@pytest.mark.parametrize(("stream", "shown"), [(io.StringIO(), True), (Terminal(), False)])
def test_it_is_silent_elsewhere(stream: io.StringIO, shown: bool) -> None:
    run(stream, shown=shown)
    assert stream.getvalue() == ""


def test_outside_of_a_run_nothing_is_reported() -> None:
    report(0.5, "train")
    assert list(steps([3, 1, 2], "rounds")) == [3, 1, 2]


def test_the_parts_add_up() -> None:
    assert sum(PHASES.values()) == 100
