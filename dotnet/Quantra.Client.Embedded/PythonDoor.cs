using Python.Runtime;

namespace Quantra.Client.Embedded;

/// <summary>Python's predictor.embed.Door, until it is closed; the GIL must be held in all of this.</summary>
/// <param name="door">It owns this.</param>
internal sealed class PythonDoor(PyObject door)
{
    private PyObject? _door = door;

    /// <summary>Calls a method.</summary>
    /// <exception cref="QuantraException">CANCELLED: the predictor was disposed before the call began.</exception>
    public PyObject InvokeMethod(string name, params PyObject[] arguments)
    {
        const string Message = "the predictor was disposed before the call began";
        return _door is { } open
            ? open.InvokeMethod(name, arguments)
            : throw new QuantraError(QuantraStatus.Cancelled, QuantraReason.Cancelled, Message).ToException();
    }

    /// <summary>Finishes what is under way and releases the models. A call that begins meanwhile is refused by Python.</summary>
    public void Close()
    {
        InvokeMethod("close").Dispose();
        var closed = _door;
        _door = null; // before it is disposed: to use it then would end the process
        closed?.Dispose();
    }
}
