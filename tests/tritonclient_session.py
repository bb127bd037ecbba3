"""Calls a server with an unmodified tritonclient, in a program that imports none of this project's packages.

    python tritonclient_session.py TARGET ADMIN_TARGET INPUTS.npz ANSWERS.npz

`INPUTS.npz` holds the tensors of two requests, as `bars/NAME` and `window/NAME`; `ANSWERS.npz` receives the server's
outputs. All other results are printed as JSON.
"""

import json
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype


def inputs_of(stored, form):
    made = []
    for name in stored.files:
        if name.startswith(form + "/"):
            values = stored[name]
            if values.dtype.kind == "S":
                values = values.astype(np.object_)
            tensor = triton.InferInput(name.partition("/")[2], values.shape, np_to_triton_dtype(values.dtype))
            made.append(tensor.set_data_from_numpy(values))
    return made


def refused(call):
    try:
        call()
    except InferenceServerException as error:
        return [str(error.status()), error.message()]
    return None


def streamed(client, requests):
    """Ids or errors of a stream's responses."""
    told = queue.Queue()
    client.start_stream(callback=lambda result, error: told.put((result, error)))
    for number, (model, tensors) in enumerate(requests):
        client.async_stream_infer(model, tensors, request_id=str(number))
    answers = [told.get(timeout=60) for _ in requests]
    client.stop_stream()
    return [result.get_response().id if error is None else error.message() for result, error in answers]


def main():
    target, admin_target, stored, answers = sys.argv[1:]
    client, admin = triton.InferenceServerClient(target), triton.InferenceServerClient(admin_target)
    stored = np.load(stored)
    bars, window = inputs_of(stored, "bars"), inputs_of(stored, "window")
    some = [triton.InferRequestedOutput("values")]
    of_bars, of_window = client.infer("small", bars, request_id="7"), client.infer("small", window, "1", outputs=some)
    np.savez(
        answers, bars=of_bars.as_numpy("values"), prices=of_bars.as_numpy("prices"), window=of_window.as_numpy("values")
    )
    told = {
        "live": [client.is_server_live(), client.is_server_ready(), client.is_model_ready("small")],
        "unknown_is_ready": client.is_model_ready("nothing"),
        "server": client.get_server_metadata().name,
        "inputs": [one.name for one in client.get_model_metadata("small").inputs],
        "optional": all(one["optional"] for one in client.get_model_config("small", as_json=True)["config"]["input"]),
        "index": [[one.name, one.version, one.state] for one in client.get_model_repository_index().models],
        "id": of_bars.get_response().id,
        "left_out": of_window.as_numpy("prices") is None,
        "not_found": refused(lambda: client.infer("nothing", bars)),
        "missing": refused(lambda: client.infer("small", bars[1:])),
        "load_elsewhere": refused(lambda: client.load_model("small")),
        "infer_elsewhere": refused(lambda: admin.infer("small", bars)),
        "statistics": refused(client.get_inference_statistics),
        "stream": streamed(client, [("small", bars), ("nothing", bars), ("small", window)]),
    }
    admin.unload_model("small")
    told["after_unloading"] = client.is_model_ready("small")
    admin.load_model("small")
    told["after_loading"] = client.is_model_ready("small")
    print(json.dumps(told))


main()
