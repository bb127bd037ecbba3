"""All commands: the predictor's and the trainers'."""

from dataclasses import replace
from typing import Final

from predictor.cli.commands import COMMANDS, LEDGER, LEDGER_TEXT, TEXT
from predictor.cli.program import Command, add_version_flag, make_program

__all__ = ["app"]

_EXTENDED: Final = {
    "serve": {"function": "trainers.cli.server_command:serve"},
    "ui": {
        "function": "trainers.cli.server_command:ui",
        "help": "Open the page of your models, and answer calls over HTTP as JSON, until Ctrl+C or SIGTERM.",
    },
}
"""The predictor's commands that do more here."""
THEIRS: Final = tuple(replace(command, **_EXTENDED.get(command.name, {})) for command in COMMANDS)
OURS: Final = (
    Command(
        "check",
        "trainers.stock.bars_report:check",
        "Show how a file of bars is read, and warn about doubtful bars.",
        "Example: quantra check bars.csv --fix clean.csv",
    ),
    Command(
        "adopt",
        "trainers.stock.adoption.command:adopt_command",
        "Make an artifact of a model that others trained, from local files; calibrate and score it on later days.",
        "Example: quantra adopt chronos chronos-bolt-small --trained-until 2024-06-30 --bars bars.csv "
        "--out models/chronos/1",
    ),
    Command(
        "ensemble",
        "trainers.stock.ensembles.command:ensemble",
        "Combine trained artifacts into one model.",
        "Example: quantra ensemble --bars bars.csv --out models/joint/1 models/lstm/1 models/tft/1",
    ),
    Command(
        "evaluate",
        "trainers.stock.evaluation.command:evaluate_command",
        "Score an artifact against baselines, on days after all data that it has seen.",
        "Example: quantra evaluate models/demo/1 --bars bars.csv --aci",
    ),
    Command(
        "forecast",
        "trainers.stock.forecast_files:forecast_command",
        "Forecast all symbols as of each of many days, as Parquet files by day.",
        "Example: quantra forecast models/demo/1 --bars bars.csv --start 2013-01-02 --out forecasts",
    ),
    Command(
        "backtest",
        "trainers.stock.backtest.command:backtest_command",
        "Walk forward over past days: forecast with the data known then, trade at the next close, charge costs.",
        "Example: quantra backtest models/demo/1 --bars bars.csv --start 2011-06-01 --end 2013-03-01 --refit 63",
    ),
    Command(
        "audit",
        "trainers.stock.audit.command:audit_command",
        "Check whether a leak, the lag, costs or luck explain a model's skill; writes a record next to the artifact.",
        "Example: quantra audit models/demo/1 --bars bars.csv --trials 40",
    ),
    Command(
        "retrain",
        "trainers.stock.lifecycle.command:retrain_command",
        "Train the next version of a model with its champion's recipe, on all bars. No alias changes.",
        "Example: quantra retrain demo --models models --bars bars.csv",
    ),
    Command(
        "compare",
        "trainers.stock.lifecycle.command:compare_command",
        "Compare two versions on the same symbols, on days that neither has seen in training.",
        "Example: quantra compare demo@champion demo@2 --models models --bars bars.csv",
    ),
    Command(
        "promote",
        "trainers.stock.lifecycle.command:promote_command",
        "Make a version the champion if it passes the gates: losses, symbols, audit, shadow and replay.",
        'Example: quantra promote demo@2 --models models --bars bars.csv --ledger ledger.db --reason "newer bars"',
    ),
    Command(
        "rollback",
        "trainers.stock.lifecycle.command:rollback_command",
        "Make the previous champion the champion again.",
        'Example: quantra rollback demo --models models --reason "bands too narrow"',
    ),
    Command(
        "daily",
        "trainers.stock.daily.command:daily_command",
        "Run the evenings that are due: record bars, score old forecasts, make new ones, and test the champion.",
        "Example: quantra daily --models models --ledger ledger.db --bars bars.csv",
    ),
    Command(
        "simulate",
        "trainers.stock.daily.command:simulate_command",
        "Run the evenings of past years in minutes, as `quantra daily` would have done.",
        "Example: quantra simulate --bars bars.csv --from 2010-01-04 --to 2012-12-31 --out simulated",
    ),
    Command(
        "replay",
        "trainers.stock.daily.command:replay_command",
        "Compute recorded forecasts again from the recorded bars and weights, and compare every bit.",
        "Example: quantra replay --sample 100 --ledger ledger.db --models models",
    ),
    Command(
        "schedule",
        "trainers.stock.daily.command:schedule_command",
        "Print the entry of a scheduler that runs `quantra daily` in this folder on every weekday.",
        "Example: quantra schedule cron --at 18:30 --bars bars.csv --ledger ledger.db",
    ),
    Command(
        "demo",
        "trainers.demo.command:demo",
        "Train on real bars, serve, query from Python and C#, and write report.html; less than a minute.",
        "Example: quantra demo --out demo --keep-serving",
    ),
)
TRAIN: Final = (
    Command(
        "stock",
        "trainers.stock.command:stock",
        "Train a stock model on daily bars and save it as an artifact.",
        "Example: quantra train stock --bars bars.csv --model lstm --out models/demo/1",
    ),
)
VITS: Final = (
    Command(
        "prepare",
        "trainers.vits.command:prepare",
        "Check recordings and their texts, and prepare a corpus.",
        "Example: quantra train vits prepare recordings --out corpus",
    ),
    Command(
        "train",
        "trainers.vits.command:train",
        "Train a voice on a prepared corpus.",
        "Example: quantra train vits train corpus --out voices/mine",
    ),
    Command(
        "synth",
        "trainers.vits.command:synth",
        "Synthesise a text and save the sound.",
        'Example: quantra train vits synth voices/mine --text "ez diçim malê" --out a.wav',
    ),
    Command(
        "evaluate",
        "trainers.vits.command:evaluate",
        "Evaluate a voice on held-out clips with a speech recogniser trained on the recordings.",
        "Example: quantra train vits evaluate voices/mine --corpus corpus",
    ),
    Command(
        "feedback",
        "trainers.vits.command:feedback",
        "Train a voice on corrected recordings, and keep the result if it is better on held-out ones.",
        "Example: quantra train vits feedback voices/mine --corpus corpus --manifest feedback.jsonl",
    ),
)
DIT: Final = (
    Command(
        "cache",
        "trainers.dit.command:cache",
        "Check images and their prompts, and encode them once.",
        "Example: quantra train dit cache images --model base --out cached",
    ),
    Command(
        "train",
        "trainers.dit.command:train",
        "Train a model's transformer on images.",
        "Example: quantra train dit train cached --model base --out drawings/mine",
    ),
    Command(
        "grpo",
        "trainers.dit.command:grpo",
        "Tune a trained model by a reward, as far as another metric does not get worse.",
        "Example: quantra train dit grpo images --model drawings/mine --held-out held --out drawings/tuned",
    ),
    Command(
        "sample",
        "trainers.dit.command:sample",
        "Draw images of a prompt, and save them.",
        'Example: quantra train dit sample drawings/mine --prompt "a handwritten digit seven" --out seven.png',
    ),
    Command(
        "evaluate",
        "trainers.dit.command:evaluate",
        "Judge a model's drawings of held-out prompts against real images, and show them on a page.",
        "Example: quantra train dit evaluate drawings/mine --images images --held-out held",
    ),
)
TUNE: Final = (
    Command(
        "stock",
        "trainers.stock.tuning.command:tune_stock",
        "Tune the settings of a stock model, refit the best from fresh seeds, and save it as an artifact.",
        "Example: quantra tune stock --bars bars.csv --model tft --trials 30 --out models/tuned/1",
    ),
)

app = add_version_flag(make_program((*THEIRS, *OURS), text=TEXT))
training = make_program(
    TRAIN,
    text="Train a model: stock, vits for speech, or dit for images.",
    instead="stock --out models/mine/1",
)
training.add_typer(make_program(VITS, text="Train a voice and synthesise speech; needs the extra tts."), name="vits")
training.add_typer(make_program(DIT, text="Train a model on images, and let it draw; needs the extra dit."), name="dit")
app.add_typer(training, name="train")
app.add_typer(make_program(LEDGER, text=LEDGER_TEXT), name="ledger")
app.add_typer(
    make_program(TUNE, text="Tune the settings of a model: stock.", instead="stock --out models/mine/1"), name="tune"
)
