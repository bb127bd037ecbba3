"""The names in an artifact's folder, and the version of its format."""

FORMAT = "quantra-artifact"
ENSEMBLE_FORMAT = "quantra-ensemble"
FORMAT_VERSION = 2
"""What is written. Format 1 is read too: its levels are the window's own, one for all horizons, and it does not state
what a symbol must have, which then is what `Minimum` says."""
READ_VERSIONS = (1, FORMAT_VERSION)

MANIFEST, DIGEST = "manifest.json", "manifest.sha256"
WEIGHTS, FEATURES, CALENDAR = "weights.safetensors", "features.json", "calendar.json"
GOLDEN_TEXT, GOLDEN_ARRAYS = "golden/golden.json", "golden/arrays.safetensors"
CONTENTS = (WEIGHTS, FEATURES, CALENDAR, GOLDEN_TEXT, GOLDEN_ARRAYS)
"""Every file but the manifest and its digest."""

ENSEMBLE_CONTENTS = (GOLDEN_TEXT, GOLDEN_ARRAYS)
"""The same of an ensemble, apart from its members."""
MEMBERS = "members"
"""The folder of an ensemble that holds one artifact a member."""
