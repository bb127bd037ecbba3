"""The predictor's commands under one name."""

from typing import Final

from predictor.cli.program import Command, add_version_flag, make_program

TEXT: Final = "Stock forecasts with quantiles and feature importance."
COMMANDS: Final = (
    Command(
        "serve",
        "predictor.cli.server_commands:serve",
        "Serve models over gRPC until Ctrl+C or SIGTERM.",
        "Example: quantra serve --models models --listen 127.0.0.1:50051",
    ),
    Command(
        "ui",
        "predictor.cli.server_commands:ui",
        "Answer calls over HTTP as JSON until Ctrl+C or SIGTERM.",
        "Example: quantra ui --models models --no-browser",
    ),
    Command(
        "predict",
        "predictor.cli.predict:predict",
        "Forecast symbols from their daily bars.",
        "Example: quantra predict --artifact models/demo/1 --bars bars.csv --symbol AAPL",
    ),
    Command(
        "explain",
        "predictor.cli.predict:explain",
        "Show how much each input moved the forecast of one horizon and quantile.",
        "Example: quantra explain --server 127.0.0.1:50051 --model demo --bars bars.csv --horizon 20",
    ),
    Command(
        "paths",
        "predictor.cli.paths:paths",
        "Simulate joint price paths of symbols: value at risk, drawdowns and probabilities of prices.",
        "Example: quantra paths --artifact models/demo/1 --bars bars.csv --holding AAPL=1000 --holding IBM=500",
    ),
    Command(
        "models",
        "predictor.cli.models:models",
        "List the models of a folder or a server: versions, aliases, skill, dates and size.",
        "Example: quantra models --models models",
    ),
    Command(
        "inspect",
        "predictor.cli.inspection:inspect",
        "Verify an artifact and print its card.",
        "Example: quantra inspect models/demo/1",
    ),
    Command(
        "report",
        "predictor.cli.report:report",
        "Write a page with a forecast, its explanation, and the model's scores and newest audit.",
        "Example: quantra report models/demo/1 --bars bars.csv --symbol AAPL --output report.html",
    ),
    Command(
        "export",
        "predictor.cli.inspection:export",
        "Write a model as an ONNX file, from the network's inputs to calibrated quantiles.",
        "Example: quantra export models/demo/1 --onnx demo.onnx",
    ),
    Command(
        "alias",
        "predictor.cli.inspection:alias",
        "Point an alias at a version of a model. A server follows it at once with --watch, else after a restart.",
        "Example: quantra alias demo champion 2 --models models",
    ),
    Command(
        "certs",
        "predictor.cli.server_commands:certs",
        "Make certificates for development: an authority, a server's and a client's.",
        "Example: quantra certs certs --host server.example.com",
    ),
    Command(
        "doctor",
        "predictor.cli.doctor:doctor",
        "Check Python, packages, device, network and disk, and with --artifact a whole prediction.",
        "Example: quantra doctor --artifact models/demo/1",
    ),
)
LEDGER_TEXT: Final = "The record of bars, forecasts, outcomes and events: verify, show or export it."
LEDGER: Final = (
    Command(
        "verify",
        "predictor.cli.ledger_commands:verify",
        "Check that no row of a ledger was changed or removed; prints the receipt of its last batch.",
        "Example: quantra ledger verify ledger.db",
    ),
    Command(
        "show",
        "predictor.cli.ledger_commands:show",
        "Show the forecasts and scores of each model in a ledger, its lamps, and the last events.",
        "Example: quantra ledger show ledger.db",
    ),
    Command(
        "export",
        "predictor.cli.ledger_commands:export",
        "Write the tables of a ledger as Parquet files: bars, forecasts, scores, evidence, events and requests.",
        "Example: quantra ledger export ledger.db --out exported",
    ),
)

app = add_version_flag(make_program(COMMANDS, text=TEXT))
app.add_typer(make_program(LEDGER, text=LEDGER_TEXT), name="ledger")
