"""The door for a program that hosts Python in its own process (C# through pythonnet): the wire's bytes, without a wire.

`open_door` loads a folder of models. A call takes the request's bytes, as encoded from prediction.proto, and gives the
answer's, or those of the google.rpc.Status that a server sends in `grpc-status-details-bin`. A stream takes and gives
messages in the same way. What a host and a server
do with the same bytes is the same code, `predictor.calls`.
"""

from predictor.embed.embedded_server import EmbeddedCall, EmbeddedServer, EmbeddedStream, open_door

__all__ = ["EmbeddedCall", "EmbeddedServer", "EmbeddedStream", "open_door"]
