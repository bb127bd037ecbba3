"""The embedded server, for a program that hosts Python in its process, such as C# through pythonnet.

`open_embedded_server` loads a models folder. Calls and streams exchange the encoded messages of prediction.proto. An
error is the google.rpc.Status that a server sends in `grpc-status-details-bin`. The same code, `predictor.calls`,
answers both.
"""

from predictor.embed.embedded_server import EmbeddedCall, EmbeddedServer, EmbeddedStream, open_embedded_server

__all__ = ["EmbeddedCall", "EmbeddedServer", "EmbeddedStream", "open_embedded_server"]
