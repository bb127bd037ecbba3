using Python.Runtime;

namespace Quantra.Client.Embedded;

/// <summary>Python's embedded server, which runs the calls. The GIL must be held for all methods.</summary>
internal sealed class EmbeddedServer(PyObject server)
{
    private PyObject? _server = server;

    /// <summary>Calls a method.</summary>
    /// <exception cref="QuantraException">CANCELLED: the predictor was disposed before the call began.</exception>
    public PyObject InvokeMethod(string name, params PyObject[] arguments)
    {
        const string Message = "the predictor was disposed before the call began";
        return _server is { } open
            ? open.InvokeMethod(name, arguments)
            : throw new QuantraError(QuantraStatus.Cancelled, QuantraReason.Cancelled, Message).ToException();
    }

    /// <summary>Finishes running calls and releases the models. Python rejects calls that start meanwhile.</summary>
    public void Close()
    {
        InvokeMethod("close").Dispose();
        var closed = _server;
        _server = null; // cleared before disposal: using a disposed PyObject would end the process
        closed?.Dispose();
    }
}
