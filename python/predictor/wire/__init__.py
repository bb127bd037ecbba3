"""Pure translation between the wire's messages and the values that every door exchanges; no gRPC in here.

One module per kind of value, each with `encode` (value to message) and `decode` (message to value), used by the server
and the client. Lengths and counts are checked before any array is built, and both ways keep every bit.
"""
