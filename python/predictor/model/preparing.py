"""From an instance to a network's inputs."""

from datetime import datetime

from predictor.bars import BarPanel
from predictor.instance import Instance
from predictor.model.from_bars import prepare_bars
from predictor.model.from_windows import prepare_window
from predictor.model.prepared import Prepared
from predictor.windows import Pipeline


def prepared_by(pipeline: Pipeline, instance: Instance, now: datetime) -> Prepared:
    """Check an instance and compute its inputs.

    Raises:
        QuantraError: the instance cannot be forecast; see predictor.errors.
    """
    if isinstance(instance.input, BarPanel):
        return prepare_bars(pipeline, instance, instance.input, now)
    return prepare_window(pipeline, instance.input)
