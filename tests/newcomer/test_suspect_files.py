"""Files of one symbol with one fault each, in `quantra check` and `quantra predict`."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from artifacts import save_small_artifact
from typer.testing import CliRunner

from predictor.bars import BarPanel
from trainers.cli.commands import app

FILES: Final = Path(__file__).parent / "cases" / "suspects"
GOOD: Final = r"IBM, as of 2013-03-01, last close 202\.91 .*"


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """What the commands print about a file, as patterns; the whole file is refused if both are equal."""

    check: str
    predict: str


FUTURE: Final = r"IBM: session 2099-03-02 is in the future: today is \S+; check its year, and whether day and month are"
ADJUSTMENT: Final = (
    r"close is 1442.07, .*outside low and high on 240 of 240 days: if open, high and low are adjusted and the close is "
    r"not, or the reverse, give all four"
)
ANSWERS: Final = {
    "last_bar_100_times": ExpectedOutput(
        r"IBM 2013-03-01: close is 20291, but .* 172.5 to 233.8; a factor of 100: a wrong unit or a bad tick\?",
        r"^IBM 2013-03-01: close is 20291, but .* a factor of 100: .*\? Correct the bars, or set accept_suspect_bars",
    ),
    "one_bar_100_times": ExpectedOutput(
        r"IBM 2012-10-18: close is 19496, but .* a factor of 100",
        GOOD + r"warning: IBM 2012-10-18: close is 19496, but .* It is left out\.",
    ),
    "pounds_then_pence": ExpectedOutput(
        r"IBM: prices change by a factor of 100 on 2012-10-18: currency unit\?",
        r"^IBM: prices change by a factor of 100 on 2012-10-18: currency unit\? Correct the bars",
    ),
    "split_missing_for_60_days": ExpectedOutput(
        r"IBM: prices change by a factor of 7 on 2012-08-08 and 2012-11-05: an unadjusted split of 7\?",
        r"^IBM: prices change by a factor of 7 on 2012-11-05: an unadjusted split of 7\? Correct the bars",
    ),
    "no_trade_on_last_day": ExpectedOutput(
        r"IBM: no trade \(prices repeat the close before, volume 0\): 2013-03-01",
        r"IBM, as of 2013-02-28, last close 200\.83 .* 1 2013-03-01 .*warning: IBM: no trade after 2013-02-28",
    ),
    "no_trade_on_many_days": ExpectedOutput(
        r"IBM: no trade \(.*\): 2012-03-30, 2012-04-18, 2012-05-04 and 17 more",
        GOOD + r"warning: IBM: no trade on 20 of 240 days, which count as days without a bar",
    ),
    "holiday_copied": ExpectedOutput(
        r"the dates fit the calendar XNYS .*IBM: a bar, though XNYS has no session: 2012-12-25 .*--fix",
        r"^XNYS held no session on 2012-12-25; remove these bars \(quantra check --fix drops copies",
    ),
    "another_company": ExpectedOutput(
        r"IBM: a gap of 51 weekdays before 2012-10-18 and a change .* by a factor of 3\.43: another company\?",
        r"^XNYS held sessions on 2012-08-08, .* and 45 more that the bars lack",
    ),
    "close_alone_unadjusted": ExpectedOutput(ADJUSTMENT, ADJUSTMENT),
    "date_in_the_future": ExpectedOutput(FUTURE, FUTURE),
    "volume_empty_on_2_days": ExpectedOutput(
        r"; 2 bars with an empty volume .*IBM: an empty volume: 2012-09-06, 2013-03-01 ",
        GOOD + r"warning: IBM: days with an empty volume: 2; the volume features are masked",
    ),
    "volume_empty_on_third": ExpectedOutput(
        r"IBM: an empty volume on 33% of days: 2012-03-16, .* and 77 more",
        GOOD + r"warning: IBM: the volume is empty on up to 33% of the days that the model reads; give the shares",
    ),
    "volume_0_on_half": ExpectedOutput(
        r"IBM: a volume of 0 on 50% of days: 2012-03-16, .* and 117 more",
        GOOD + r"warning: IBM: the volume is 0 on up to 50% of the days that the model reads; give the shares traded",
    ),
    "price_of_1e-5": ExpectedOutput(
        r"IBM 2012-03-16 2013-03-01 240",
        r"IBM, as of 2013-03-01, last close 0\.00002029 .* 1 2013-03-04 0\.00002015 0\.00002029 0\.00002045 ",
    ),
}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_artifact(tmp_path_factory.mktemp("model") / "1")


def output_of(*arguments: object) -> str:
    """The output of a command, or its error, on one line."""
    ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return " ".join((ran.output if ran.exit_code == 0 else str(ran.exception)).split())


def test_every_file_has_its_answers() -> None:
    assert {path.stem for path in FILES.glob("*.csv")} == {*ANSWERS}


@pytest.mark.parametrize("name", ANSWERS)
def test_check_names_the_fault(name: str) -> None:
    assert re.search(ANSWERS[name].check, output_of("check", FILES / f"{name}.csv"))


@pytest.mark.parametrize("name", ANSWERS)
def test_predict_answers_or_refuses(artifact: Path, name: str) -> None:
    said = output_of("predict", "--artifact", artifact, "--bars", FILES / f"{name}.csv")
    assert re.search(ANSWERS[name].predict, said), said


def test_the_next_command_drops_a_copied_holiday(tmp_path: Path) -> None:
    file = tmp_path / "bars.csv"
    file.write_bytes((FILES / "holiday_copied.csv").read_bytes())
    following = output_of("check", file).rpartition("Next: quantra ")[2]
    assert "dropped 2012-12-25: no session, and its bars repeat those of the day before" in output_of(
        *shlex.split(following)
    )
    assert 20121225 not in BarPanel.read(tmp_path / "bars.clean.csv").sessions
