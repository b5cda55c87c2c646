"""The progress bar of a run: one for all phases, on a terminal only, with what was spent beside it."""

import io
import re

import pytest

from dpgen.progress import PHASES, Bar, report, rows_read, showing, steps


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


def test_stages_of_unknown_length_fill_what_is_left_of_a_phase_and_say_how_fast_rows_come() -> None:
    stream = Terminal()
    with showing(Bar(shown=True, spent=lambda: "eps 1 of 3", stream=stream)) as bar:
        bar.phase("fit")
        for name in ("first", "second", "third"):
            assert list(rows_read(["ab", "c"], 3, name)) == ["ab", "c"]
        assert len(list(rows_read(["ab"], 0, "fourth"))) == 1
    percents = [int(found) for found in re.findall(r"(\d+)%", stream.getvalue())]
    assert percents == sorted(percents)
    assert 5 < percents[-1] <= 65
    assert re.search(r"second .*eps 1 of 3 [\d,]+ rows/s", stream.getvalue())
