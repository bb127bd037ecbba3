"""The public inference protocol (KServe v2): its tensors to instances, and forecasts to its tensors.

requests.py   which tensors a request holds, found without parsing their values
tensors.py    one tensor: its type, its shape, its values as an array
bars.py       tensors of bars and covariates to instances
windows.py    tensors of feature windows to instances
choices.py    a request's parameters
answers.py    forecasts to tensors
models.py     what a model takes and gives
"""
