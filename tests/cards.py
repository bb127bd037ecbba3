"""A made-up model card with every section, as trainers write it."""

from predictor.canonical import Json

SENTENCE = "No skill over GARCH(1,1)-t could be shown: the loss is 0.4 % less, but the 90 % interval holds zero."


def full_card(
    *, lower: float = -0.01, upper: float = 0.018, sentence: str = SENTENCE, days_short: int = 0
) -> dict[str, Json]:
    """A card whose summary depends on the interval of the skill and the days it lacks."""
    levels, horizons = [0.1, 0.5, 0.9], [1, 5, 10, 20]
    observed = [[level + 0.01 * (h + 1) * (0.5 - level) for level in levels] for h in range(4)]
    return {
        "data": {
            "symbols": ["AAPL", "GOOG"],
            "first_session": 20000103,
            "last_session": 20130301,
            "sessions": 3312,
            "sha256": "ab" * 32,
            "adjustment": "adj_close",
            "notes": ["AAPL 2000-09-29: opened at 0.48 times the close before; split or crash?"],
        },
        "splits": {
            "train": {"first": 20000103, "last": 20081231, "windows": 8000},
            "selection": {"first": 20090102, "last": 20100630, "windows": 700},
            "calibration": {"first": 20100701, "last": 20111230, "windows": 720},
            "test": {"first": 20120103, "last": 20130301, "windows": 560},
        },
        "recipe": {"model": "lstm", "hidden": 32, "epochs": 12, "learning_rate": 0.003, "resume": False, "seed": None},
        "training": {
            "device": "cpu",
            "precision": "fp32",
            "parameters": 15123,
            "best_epoch": 7,
            "best_selection": 0.25,
            "epochs": [
                {"epoch": e, "train": 0.36 + 0.08 / e, "selection": 0.371 + 0.06 / e + 0.0008 * e} for e in range(1, 13)
            ],
        },
        "libraries": {"numpy": "2.3.1", "torch": "2.13.0"},
        "scores": {
            "unit": "pinball loss of log returns, x 10000",
            "split": "test",
            "horizons": horizons,
            "band": [0.1, 0.9],
            "rows": [
                _row("this model", [39.81, 88.4, 124.9, 177.2], [0.81, 0.79, 0.78, 0.77], is_model=True),
                _row("GARCH(1,1)-t", [40.02, 88.1, 125.3, 178.3], [0.83, 0.81, 0.8, 0.78]),
                _row("empirical quantiles", [43.57, 96.2, 135.8, 190.9], [0.9, 0.89, 0.88, 0.86]),
                _row("naive", [44.9, 99.1, 140.2, 201.7], None),
            ],
        },
        "calibration": {
            "levels": levels,
            "horizons": horizons,
            "observed": observed,
            "lower": [[p - 0.015 * (h + 1) for p in row] for h, row in enumerate(observed)],
            "upper": [[p + 0.018 * (h + 1) for p in row] for h, row in enumerate(observed)],
            "level": 0.9,
            "method": "block bootstrap, blocks of 20 sessions",
        },
        "skill": {
            "baseline": "GARCH(1,1)-t",
            "improvement": 0.004,
            "lower": lower,
            "upper": upper,
            "level": 0.9,
            "sentence": sentence,
            "days_short": days_short,
        },
        "conformal": {
            "effective_samples": [700, 140, 70, 35],
            "band_coverage_before": [0.86, 0.85, 0.84, 0.83],
            "band_coverage_after": [0.81, 0.79, 0.78, 0.77],
            "winkler_before": [0.0561, 0.129, 0.177, 0.2551],
            "winkler_after": [0.0559, 0.1284, 0.1754, 0.2553],
        },
        "tuning": {
            "trials": 40,
            "pruned": 21,
            "failed": 1,
            "best_trial_loss": 0.3712,
            "seed_losses": [0.3801, 0.3789, 0.3822],
            "mean": 0.3804,
            "standard_deviation": 0.0017,
        },
    }


def _row(name: str, pinball: list[float], coverage: list[float] | None, *, is_model: bool = False) -> Json:
    mean = sum(pinball) / len(pinball)
    row: dict[str, Json] = {"name": name, "is_model": is_model, "pinball": pinball, "mean": mean}
    return row if coverage is None else row | {"band_coverage": coverage}
