"""Model cards: reading and showing current and older cards."""

import json
from collections.abc import Mapping
from io import StringIO
from typing import Final

import pytest
from cards import full_card
from rich.console import Console

from predictor.canonical import Json
from predictor.card import FITS_EXPLAINED, Card, read_ancestors, start_note_of
from predictor.cli.output import make_judgement
from predictor.errors import ArtifactError

NOTE: Final = "GARCH(1,1)-t, calibrated is the unconditional quantiles instead for FB (it is young)"


def card_of(told: Mapping[str, Json]) -> Card:
    return Card.from_json(json.dumps(told))


def current_card() -> dict[str, Json]:
    """The card of cards.py with the newer sections."""
    card = json.loads(json.dumps(full_card()))
    for row in card["scores"]["rows"][1:]:
        row["fit"] = "refitted"
    card["skill"] |= {"first_day": 20120103, "last_day": 20130201, "rivals": ["GARCH(1,1)-t", "naive"]}
    return card | {"notes": [NOTE]}


def rendered_card(card: Card) -> str:
    console = Console(width=100, highlight=False, file=StringIO())
    with console.capture() as captured:
        console.print(make_judgement(card))
    return " ".join(captured.get().split())


def test_what_baselines_were_given_is_read() -> None:
    card = card_of(current_card())
    assert card.scores is not None
    assert [row.fit for row in card.scores.rows] == ["", "refitted", "refitted", "refitted"]
    assert card.notes == (NOTE,)


AS_HAR: Final = "the network added nothing to HAR on these data: this model forecasts as `har` does"
KEPT: Final[dict[str, tuple[dict[str, Json], str]]] = {
    "har": ({"kind": "lstm", "scale": "har"}, AS_HAR),
    "garch": ({"kind": "gru", "scale": "garch"}, AS_HAR.replace("HAR", "GARCH").replace("har", "garch")),
    "window": ({"kind": "lstm", "scale": "window"}, "the network added nothing to the volatility of each window on"),
    "unknown": ({}, "the network added nothing to its start on these data"),
    "highway": (
        {"kind": "tft", "scale": "har", "network_highway": True},
        "the network added nothing to HAR and a linear map of the features on these data",
    ),
}


def training_facts(recipe: dict[str, Json], best_epoch: int, **sections: Json) -> dict[str, Json]:
    card = full_card()
    training = card["training"]
    assert isinstance(training, dict)
    return {**card, "recipe": recipe, "training": {**training, "best_epoch": best_epoch}, **sections}


@pytest.mark.parametrize("start", KEPT)
def test_a_network_that_kept_its_start_says_what_it_forecasts_as(start: str) -> None:
    recipe, note = KEPT[start]
    told = training_facts(recipe, 0)

    assert card_of(told).start_note.startswith(note)
    assert start_note_of(told) == card_of(told).start_note


def test_a_network_that_kept_its_parents_weights_is_reported() -> None:
    parent: Json = {"weights_hash": "ab", "symbols": ["IBM"], "seen_from": 20010102, "seen_until": 20130205}
    told = training_facts({"kind": "lstm", "scale": "har"}, 0, ancestors=[parent])

    assert card_of(told).start_note == "the training added nothing to the weights that it started from"


def test_a_network_that_learnt_says_nothing_of_a_start() -> None:
    assert card_of(training_facts({"kind": "lstm", "scale": "har"}, 3)).start_note == ""


@pytest.mark.parametrize("kind", ["har", "trees"])
def test_a_model_without_epochs_says_nothing_of_a_start(kind: str) -> None:
    told = training_facts({"kind": kind, "scale": "har"}, 0)
    training = told["training"]
    assert isinstance(training, dict)
    assert card_of({**told, "training": {**training, "epochs": []}}).start_note == ""


def test_parts_are_read_in_the_order_of_time() -> None:
    parts = card_of(full_card()).splits
    assert [part.name for part in parts] == ["train", "selection", "calibration", "test"]
    assert [part.first for part in parts] == sorted(part.first for part in parts)


def test_an_older_card_is_read_unchanged() -> None:
    card = card_of(full_card())
    assert card.scores is not None
    assert not card.scores.has_fits
    assert card.notes == ()
    assert FITS_EXPLAINED not in rendered_card(card)


def test_people_see_what_the_names_of_baselines_mean_and_the_notes() -> None:
    text = rendered_card(card_of(current_card()))
    assert FITS_EXPLAINED in text
    assert f"note: {NOTE}" in text


def test_of_very_many_notes_the_first_ones_are_shown_and_the_rest_is_counted() -> None:
    text = rendered_card(card_of(current_card() | {"notes": [f"number {k}" for k in range(40)]}))
    assert text.count("note: number ") == 12
    assert "and 28 more notes; --json has them all" in text


def test_ancestors_are_read_whole_or_the_key_that_lacks_is_named() -> None:
    one: dict[str, Json] = {"weights_hash": "ab", "symbols": ["IBM"], "seen_from": 20010102, "seen_until": 20091231}
    assert read_ancestors({"ancestors": [one]}) == card_of({"ancestors": [one]}).ancestors
    assert card_of({"ancestors": [one]}).ancestors[0].seen_until == 20091231
    del one["seen_until"]
    with pytest.raises(ArtifactError, match="seen_until"):
        read_ancestors({"ancestors": [one]})
