"""Triton with our network: `python -m benchmarks.peers.serve_with_triton ARTIFACT PORT FOLDER` in its own environment.

The package nvidia-pytriton contains Triton and its Python backend. Triton joins up to 256 waiting rows without a delay,
and serves nothing but gRPC.
"""

import os
import shutil
import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path

from predictor import artifact
from predictor.windows import Pipeline

TYPES = {"observed": "FP32", "known": "FP32", "static": "FP32", "mask": "BOOL", "location": "FP64", "scale": "FP64"}


def main() -> None:
    """Write the models folder and become Triton."""
    folder, port, work = Path(sys.argv[1]).resolve(), int(sys.argv[2]), Path(sys.argv[3])
    pipeline = artifact.load(folder).artifact.pipeline
    version = work / "models" / "stock" / "1"
    version.mkdir(parents=True)
    version.joinpath("model.py").write_text(
        f"import sys\nsys.path[:0] = {sys.path!r}\nfrom benchmarks.peers.network_in_triton import TritonPythonModel\n"
    )
    version.parent.joinpath("config.pbtxt").write_text(configuration(folder, pipeline))
    packages = Path(str(distribution("nvidia-pytriton").locate_file("")))
    triton = packages / "pytriton" / "tritonserver"
    backends = work / "backends"
    shutil.copytree(triton / "backends" / "python", backends / "python")
    stub = triton / "python_backend_stubs" / f"{sys.version_info[0]}.{sys.version_info[1]}"
    shutil.copy(stub / "triton_python_backend_stub", backends / "python")
    libraries = (packages / "nvidia_pytriton.libs", sysconfig.get_config_var("LIBDIR"))
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries)), "OMP_NUM_THREADS": "1"}
    options = ("--grpc-address=127.0.0.1", f"--grpc-port={port}", "--allow-http=false", "--allow-metrics=false")
    command = [str(triton / "bin" / "tritonserver"), f"--model-repository={work / 'models'}"]
    command += [f"--backend-directory={backends}", *options, "--log-verbose=0"]
    os.execve(command[0], command, environment)  # noqa: S606 - so that the caller can end Triton


def configuration(folder: Path, pipeline: Pipeline) -> str:
    """The model's config.pbtxt."""
    sizes, horizons = pipeline.sizes, len(pipeline.target.horizons)
    rows = [sizes.encoder_length, sizes.observed]
    shapes = {
        "observed": rows,
        "known": [sizes.encoder_length + sizes.future_length, sizes.known],
        "static": [sizes.static],
        "mask": rows,
        "location": [horizons],
        "scale": [horizons],
    }
    inputs = ", ".join(
        f'{{ name: "{name}" data_type: TYPE_{kind} dims: {shapes[name]} }}'
        for name, kind in TYPES.items()
        if all(shapes[name])  # Triton has no inputs of width 0
    )
    return f"""name: "stock"
backend: "python"
max_batch_size: 256
input [ {inputs} ]
output [ {{ name: "values" data_type: TYPE_FP64 dims: [ {horizons}, -1 ] }} ]
dynamic_batching {{ max_queue_delay_microseconds: 0 }}
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
parameters {{ key: "artifact" value {{ string_value: "{folder}" }} }}
"""


if __name__ == "__main__":
    main()
