"""Conversion between protobuf messages and domain values, for server and client; independent of gRPC.

Each module handles one kind of value: `encode` converts it to a message, `decode` converts it back. Both are lossless.
`decode` checks lengths and counts before it builds arrays.
"""
