"""One thread for torch in every test, where torch is installed: results and times then do not depend on the machine."""

import importlib.util

if importlib.util.find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)
