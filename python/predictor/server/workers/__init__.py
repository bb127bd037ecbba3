"""A server of several worker processes that share one port, and their supervisor.

The supervisor and each worker communicate over a private socket pair, which also detects the death of either.
"""
