"""Command flags generated from the fields of dataclasses."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from predictor.cli.flags import with_flags
from predictor.errors import ConfigurationError
from predictor.flags import Flag, FlagsOf, FlagSubset, ParsedFlags, parse_integers


def _odd(value: int) -> None:
    if value % 2 == 0:
        raise ValueError(f"{value} is even")


def _doubled(text: str) -> int:
    return 2 * int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brew:
    minutes: Annotated[int, Flag("How long.", minimum=1)] = 3
    heat: Annotated[float, Flag("How hot.", spelling="--celsius", shown_default="the leaf's own")] = 95.0
    leaves: Annotated[tuple[int, ...], Flag("Of each sort.", parse=partial(parse_integers, "leaves"))] = (1, 2)
    cups: Annotated[int | None, Flag("How many.", parse=_doubled, none_text="all")] = None
    spoons: Annotated[int, Flag("How many.", check=_odd)] = 1
    place: Annotated[str, Flag("Where.")] = "garden"
    pot: str = "clay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Infusion:
    """Herbal tea, which shares a setting."""

    minutes: Annotated[int, Flag("How long.", minimum=1)] = 10
    herb: Annotated[str, Flag("Which.")] = "mint"


def run_command(command: Callable[..., None], *words: str) -> tuple[int, str]:
    app = typer.Typer(add_completion=False)
    app.command()(with_flags(command))
    ended = CliRunner().invoke(app, words, env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return ended.exit_code, ended.output if ended.exception is None else f"{ended.output}{ended.exception}"


def parse_brew(*words: str) -> Brew:
    kept: list[Brew] = []

    def command(*, brew: Brew) -> None:
        kept.append(brew)

    assert run_command(command, *words) == (0, "")
    return kept[0]


def test_without_flags_every_field_keeps_its_default() -> None:
    assert parse_brew() == Brew()


def test_each_flag_reaches_its_field() -> None:
    words = "--minutes 5 --celsius 80 --leaves 3,4,5 --cups 4 --spoons 3"
    assert parse_brew(*words.split()) == Brew(minutes=5, heat=80.0, leaves=(3, 4, 5), cups=8, spoons=3)


def test_the_text_for_none_gives_none() -> None:
    assert parse_brew("--cups", "all").cups is None


def parse_flags(command: Callable[[list[Any]], Callable[..., None]], *words: str) -> Any:
    kept: list[Any] = []
    assert run_command(command(kept), *words) == (0, "")
    return kept[0]


def partly(kept: list[Any]) -> Callable[..., None]:
    def command(*, brew: ParsedFlags[Brew]) -> None:
        kept.append(brew)

    return command


def test_what_stands_on_the_command_line_is_laid_over_other_settings() -> None:
    found = parse_flags(partly, "--minutes", "3", "--leaves", "7")
    assert found == ParsedFlags({"minutes": 3, "leaves": (7,)}, {"minutes": "--minutes", "leaves": "--leaves"})
    assert found.over(Brew(minutes=9, heat=60.0)) == Brew(minutes=3, heat=60.0, leaves=(7,))
    assert (found.value("minutes", 1), found.value("spoons", 1)) == (3, 1)


def test_an_empty_text_is_a_value_unless_it_means_none() -> None:
    assert parse_flags(partly, "--place", "").values == {"place": ""}
    code, output = run_command(partly([]), "--leaves", "")
    assert code == 1
    assert "leaves is '', but must be comma-separated integers" in output


def test_the_text_for_none_is_laid_over_another_setting() -> None:
    assert parse_flags(partly, "--cups", "all").over(Brew(cups=4)).cups is None


def test_a_flag_that_two_of_several_dataclasses_have_stands_once() -> None:
    def command(kept: list[Any]) -> Callable[..., None]:
        def tea(*, tea: Annotated[ParsedFlags[Brew | Infusion], FlagsOf(Brew, Infusion)]) -> None:
            kept.append(tea)

        return tea

    assert parse_flags(command, "--minutes", "2", "--herb", "sage").values == {"minutes": 2, "herb": "sage"}


def test_a_command_may_have_some_of_the_flags_only() -> None:
    def command(*, brew: Annotated[Brew, FlagSubset("minutes")]) -> None:
        assert brew == Brew(minutes=4)

    assert run_command(command, "--minutes", "4") == (0, "")
    assert run_command(command, "--spoons", "3")[0] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--minutes 0", "Invalid value for '--minutes'"),
        ("--spoons 2", "Invalid value for '--spoons': 2 is even"),
        ("--cups many", "invalid literal for int()"),
    ],
)
def test_a_value_that_cannot_be_is_bad_usage(words: str, message: str) -> None:
    code, shown = run_command(partly([]), *words.split())
    assert code == 2
    assert message in shown


def test_an_error_of_ours_passes_as_it_is() -> None:
    code, shown = run_command(partly([]), "--leaves", "x")
    assert (code, shown) == (1, "leaves is 'x', but must be comma-separated integers, such as 1,5,20")


def test_lists_of_numbers_are_read_with_their_names_in_errors() -> None:
    assert parse_integers("leaves", "1,2") == (1, 2)
    with pytest.raises(ConfigurationError, match="leaves is '1;2'"):
        parse_integers("leaves", "1;2")
