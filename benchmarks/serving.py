"""What the server adds to a forecast, over a real connection to a server process of its own.

The shipped LSTM, trained for one epoch on AAPL's real bars by the shipped code, is served by `python -m
predictor.server` with one torch thread. Every figure is the median over single calls of one caller; calls that are
compared alternate, so a busy machine hits all of them. The bare call is gRPC alone: a server of the same kind takes as
many bytes and gives as many back.
"""

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import batched, pairwise
from multiprocessing.synchronize import Event
from pathlib import Path

import grpc
import grpc.aio
import numpy as np

from benchmarks.explain import real_bars
from benchmarks.report import Row, at_most, interleaved_medians, parse_arguments, publish, shown
from predictor import artifact
from predictor.artifact import Artifact
from predictor.bars import BarPanel
from predictor.client import QuantraClient
from predictor.features import default_features
from predictor.instance import FeatureWindow, Instance, Query
from predictor.windows import latest_window
from predictor.wire import instances
from trainers.stock.recipe import Optimisation, Recipe
from trainers.stock.training import train
