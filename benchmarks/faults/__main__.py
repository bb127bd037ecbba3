"""Behaviour of a server process under hostile requests and under a long mixed load. A full run takes 20 minutes."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.calling.subject import subject_in
from benchmarks.faults import attacks, sizes, soak
from benchmarks.report import Row, common_options, publish
from predictor.inference import use_threads


def main() -> int:
    parser = common_options(__doc__ or "")
    parser.add_argument("--only", choices=("attacks", "sizes", "soak"), help="run only this part")
    arguments = parser.parse_args()
    use_threads(1)

    def rows(folder: Path) -> Iterator[Row]:
        subject = subject_in(folder / "models")
        if arguments.only in {None, "attacks"}:
            yield from attacks.rows(subject, quick=arguments.quick)
        if arguments.only in {None, "sizes"}:
            yield from sizes.rows(subject, quick=arguments.quick)
        if arguments.only in {None, "soak"}:
            yield from soak.rows(subject, folder, quick=arguments.quick)

    with tempfile.TemporaryDirectory() as folder:
        return publish(rows(Path(folder)), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
