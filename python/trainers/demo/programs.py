"""The short programs that ask the demo's questions again, with the right port, model and file."""

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the programs ask, and of whom."""

    port: int
    model: str
    bars: Path
    symbol: str
    models: Path

    @property
    def serve(self) -> str:
        """The command that starts the server again."""
        return f"quantra serve --models {shlex.quote(str(self.models))} --listen 127.0.0.1:{self.port}"

    @property
    def python(self) -> str:
        """Three lines of Python."""
        return (
            "from predictor import BarPanel; from predictor.client import QuantraClient\n"
            f'bars = BarPanel.read("{self.bars.as_posix()}").select(["{self.symbol}"])\n'
            f'print(*QuantraClient("127.0.0.1:{self.port}", model="{self.model}").predict(bars).table(), sep="\\n")\n'
        )

    @property
    def csharp(self) -> str:
        """Five lines of C#."""
        return (
            "using Quantra.Client;\n"
            f'await using var client = new QuantraClient(new Uri("http://127.0.0.1:{self.port}"));\n'
            f'var bars = BarPanel.ReadCsv("{self.bars.as_posix()}").Select("{self.symbol}");\n'
            f'var forecast = await client.PredictAsync(new PredictionRequest("{self.model}", bars));\n'
            "Console.WriteLine(forecast);\n"
        )
