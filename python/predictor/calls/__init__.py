"""The calls of both protocols, quantra.v1 and the public one, from request bytes to answer bytes, on no transport.

    calls.py       which calls there are, and how each is answered
    admin.py       the calls that change which models are served
    inference.py   the calls of the public inference protocol
    inference_stream.py  its call with many requests, answered in their order
    requests.py    requests that are read when their turn comes
    counting.py    requests are counted before they are parsed
    streams.py     calls whose answer is a stream of messages
    conversation.py  the call with many requests, each answered by its id
    flow.py        how much one stream holds
    sessions.py    what that call needs from the sessions that live on it
    live_sessions.py  these sessions: subscriptions that bars are pushed to
    turns.py       one request of a session after the other
    session_room.py  how many of them there may be, and how many bytes they may hold
    chaining.py    one future after another

Every door is a thin caller: the gRPC server and the embedded door hand over bytes and a deadline, and get bytes or a
QuantraError. Nothing here waits: what takes time is done on threads of the service.
"""

from predictor.calls.admin import AdminCalls
from predictor.calls.sessions import SessionRequest, Sessions
from predictor.calls.streams import OpenCall
from predictor.calls.unary import Calls

__all__ = ["AdminCalls", "Calls", "OpenCall", "SessionRequest", "Sessions"]
