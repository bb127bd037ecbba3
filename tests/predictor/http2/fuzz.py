"""Fuzzing of HTTP/2 connections, guided by coverage, in an environment with the packages atheris and hpack.

Usage: PYTHONPATH=python:tests python tests/predictor/http2/fuzz.py CORPUS -max_total_time=3600
"""

import sys

import atheris

with atheris.instrument_imports(include=["predictor.http2", "hpack"]):
    from http2_fuzzing import run_input

atheris.Setup(sys.argv, run_input)
atheris.Fuzz()
