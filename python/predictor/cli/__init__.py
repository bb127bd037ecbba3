"""The command line: `serve`, `predict`, `explain`, `inspect`, `export`, `alias`, `doctor`. Needs the extra `cli`.

`app` holds the commands and may be given more; `run(app)` is how a program runs it, with errors as one line and an
exit code: 0 done, 1 failed, 2 bad usage.
"""

from predictor.cli.packages import require_packages

require_packages()

from predictor.cli.commands import app  # noqa: E402 - not before it is known that typer and rich are there
from predictor.cli.program import main, run  # noqa: E402

__all__ = ["app", "main", "run"]
