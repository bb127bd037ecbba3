"""The names in an artifact's folder, and the version of its format."""

FORMAT = "quantra-artifact"
FORMAT_VERSION = 1

MANIFEST, DIGEST = "manifest.json", "manifest.sha256"
WEIGHTS, FEATURES, CALENDAR = "weights.safetensors", "features.json", "calendar.json"
GOLDEN_TEXT, GOLDEN_ARRAYS = "golden/golden.json", "golden/arrays.safetensors"
CONTENTS = (WEIGHTS, FEATURES, CALENDAR, GOLDEN_TEXT, GOLDEN_ARRAYS)
"""Every file but the manifest and its digest."""
