"""A model as an ONNX file: from a network's inputs to calibrated quantiles, for programs without torch. Extra `onnx`.

What comes before the network, from bars to inputs, is the artifact's; the file carries the schema hash that names it.
"""

from predictor.export.onnx_file import ExportedFile, GraphPort, export_onnx

__all__ = ["ExportedFile", "GraphPort", "export_onnx"]
