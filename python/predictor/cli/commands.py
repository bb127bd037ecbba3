"""The predictor's commands under one name."""

import typer

from predictor.cli import aliases, doctor, exporting, inspection, predict, reporting, serving

app = typer.Typer(
    name="quantra",
    help="Stock forecasts with quantiles and feature importance.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("serve", epilog=serving.EXAMPLE)(serving.serve)
app.command("predict", epilog=predict.PREDICT_EXAMPLE)(predict.predict)
app.command("explain", epilog=predict.EXPLAIN_EXAMPLE)(predict.explain)
app.command("inspect", epilog=inspection.EXAMPLE)(inspection.inspect)
app.command("report", epilog=reporting.EXAMPLE)(reporting.report)
app.command("export", epilog=exporting.EXAMPLE)(exporting.export)
app.command("alias", epilog=aliases.EXAMPLE)(aliases.alias)
app.command("doctor", epilog=doctor.EXAMPLE)(doctor.doctor)
