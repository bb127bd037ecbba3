"""How the code is built, told by the code itself, beside a commit before: `python -m benchmarks.structure`.

table.py       the rows: before, now, what was promised
checkout.py    the files of a commit or of this folder, and programs that run in them
sources.py     modules, lines, functions, class names: what the syntax trees say
docstrings.py  public docstrings, annotations, shapes of arrays
imports.py     import edges and circles
starts.py      how soon `import predictor` and `quantra --help` are done
passes.py      the files that one prediction, explanation or training window runs through
trainings.py   trainings on real bars by the command line, in either checkout
bits.py        what the commit before trained: both load, forecast, explain and go on to the same bits
speed.py       interleaved pairs of both
moves.py       whether `git log --follow` reaches past the commit
"""
