"""How to ask the report's question again."""

import json
import shlex
from dataclasses import dataclass

from predictor.report.content import ReportContent


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAgain:
    """Commands that repeat the question."""

    command_line: str
    python: str
    audit: str
    """Commands that audit the model, and then write this page again."""


def ask_again(content: ReportContent) -> AskAgain:
    """The commands for this model and these symbols."""
    reference = f"{content.info.name}@{content.info.version}"
    folder = f"models/{content.info.name}/{content.info.version}"
    symbols = json.dumps(content.symbols, ensure_ascii=False)
    names = shlex.quote(",".join(content.symbols))
    return AskAgain(
        command_line=(
            "quantra serve --models models\n"
            f"quantra predict --server 127.0.0.1:50051 --model {shlex.quote(reference)} --bars bars.csv "
            f"--symbol {names}"
        ),
        audit=(
            f"quantra audit {shlex.quote(folder)} --bars bars.csv\n"
            f"quantra report {shlex.quote(folder)} --bars bars.csv --symbol {names}"
        ),
        python=(
            "from predictor import BarPanel, Forecaster\n\n"
            f'forecaster = Forecaster.load("{folder}")\n'
            f'forecast = forecaster.predict(BarPanel.read("bars.csv").select({symbols}))\n'
            f'reasons = forecaster.feature_importance(BarPanel.read("bars.csv").select({symbols}), '
            f"horizon={content.info.horizons[-1]})"
        ),
    )
