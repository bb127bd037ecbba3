using Python.Runtime;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>Python's predictor.embed.Door; on the host's thread alone.</summary>
/// <remarks>Work that comes after its end is refused: Python.NET would end the process.</remarks>
internal sealed class EmbeddedDoor(PyObject door)
{
    private PyObject? _door = door;

    /// <summary>Calls a method of it.</summary>
    /// <exception cref="QuantraException">CANCELLED: it was closed.</exception>
    public PyObject Invoke(string method, params PyObject[] arguments)
    {
        if (_door is not { } door)
        {
            const string Message = "the predictor was disposed before the call began";
            throw new QuantraError(QuantraStatus.Cancelled, QuantraReason.Cancelled, Message).ToException();
        }

        return door.InvokeMethod(method, arguments);
    }

    /// <summary>Releases the models.</summary>
    public void Close()
    {
        using var door = _door!;
        _door = null;
        door.InvokeMethod("close").Dispose();
    }
}
