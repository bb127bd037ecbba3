"""Export of models to ONNX: from network inputs to calibrated quantiles, for programs without torch. Extra `onnx`.

The file does not contain the features; its schema hash identifies them.
"""

from predictor.export.onnx_file import ExportedFile, export_onnx

__all__ = ["ExportedFile", "export_onnx"]
