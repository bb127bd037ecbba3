"""The door for a program that hosts Python in its own process (C# through pythonnet): JSON text and buffers.

`open_door` loads a folder of models; the door's methods take and give one JSON object and a list of arrays beside it,
so that no number goes through text. In the JSON an array is `{"buffer": 2, "shape": [1, 80]}`: a place in that list and
a shape, row-major. Arrays come in through the buffer protocol without a copy and are read only while the call lasts;
those that go out are C-contiguous.

An error is an object too, with the same four facts as on the wire: `{"error": {"status", "reason", "message",
"metadata"}}`. All fields are named as those of the values in `predictor.instance`, `predictor.forecast` and
`predictor.catalog`.

    door.py        what the host calls, and a call under way
    fields.py      strict reading of JSON and buffers
    requests.py    requests to values
    replies.py     values to replies
"""

from predictor.embed.door import Door, Pending, open_door

__all__ = ["Door", "Pending", "open_door"]
