"""Several processes that answer on one port: a supervisor, which answers nothing itself, and its workers.

Supervisor and worker talk over a pair of sockets that nobody else can reach. Its end, which comes with the death of
either, is how each learns of it.
"""
