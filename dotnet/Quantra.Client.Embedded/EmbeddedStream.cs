using System.Diagnostics.CodeAnalysis;
using System.Threading.Channels;
using Python.Runtime;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>A call into Python whose messages go both ways, as bytes.</summary>
/// <remarks>
/// Requests are handed over on the host's thread; messages are copied on the Python threads that made them, and wait here to be read.
/// All of that while the GIL is held, and nothing else.
/// </remarks>
[SuppressMessage("Usage", "CA2213:Disposable fields should be disposed", Justification = "at the end of the call, while the GIL is held")]
internal sealed class EmbeddedStream : IAsyncDisposable
{
    private readonly PythonHost _host;
    private readonly Channel<byte[]> _messages = Channel.CreateUnbounded<byte[]>(new UnboundedChannelOptions { SingleReader = true });
    private TaskCompletionSource _room = NewRoom();
    private CancellationTokenRegistration _cancelled;
    private PyObject? _stream;

    private EmbeddedStream(PythonHost host) => _host = host;

    /// <summary>Begins a call.</summary>
    /// <param name="host">Of Python.</param>
    /// <param name="door">Python's predictor.embed.Door.</param>
    /// <param name="name">Of the call, as in prediction.proto.</param>
    /// <param name="timeout">Of the whole call; null = it goes on as long as it likes.</param>
    /// <param name="cancellationToken">Ends it, at any time.</param>
    public static EmbeddedStream Open(PythonHost host, PythonDoor door, string name, TimeSpan? timeout, CancellationToken cancellationToken)
    {
        var stream = new EmbeddedStream(host);
        host.Post(() => stream.Begin(door, name, timeout?.TotalSeconds ?? double.PositiveInfinity), stream.Fail);
        stream._cancelled = cancellationToken.UnsafeRegister(_ => stream.Cancel(), null); // and so after the beginning
        return stream;
    }

    /// <summary>Hands over a request; done once another may follow.</summary>
    /// <returns>Whether it was handed over: if not, the call has ended.</returns>
    public async Task<bool> SendAsync(byte[] request)
    {
        var isSent = await _host.RunAsync(() => Send(request)).ConfigureAwait(false);
        await _room.Task.ConfigureAwait(false);
        return isSent;
    }

    /// <summary>Says that no request follows.</summary>
    public Task EndAsync() => _host.RunAsync(() => Invoke("end"));

    /// <summary>The next message; null once the call has ended in order.</summary>
    /// <exception cref="QuantraException">Python's own error.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<byte[]?> NextAsync(CancellationToken cancellationToken)
    {
        while (await _messages.Reader.WaitToReadAsync(cancellationToken).ConfigureAwait(false))
        {
            if (_messages.Reader.TryRead(out var message))
                return message;
        }

        return null;
    }

    /// <summary>Ends the call, and what is under way with it.</summary>
    public async ValueTask DisposeAsync()
    {
        await _cancelled.DisposeAsync().ConfigureAwait(false);
        Cancel();
    }

    private static TaskCompletionSource NewRoom() => new(TaskCreationOptions.RunContinuationsAsynchronously);

    private void Begin(PythonDoor door, string name, double seconds)
    {
        using var called = new PyString(name);
        using var timeout = new PyFloat(seconds);
        using var emit = PyObject.FromManagedObject((Action<PyObject>)(message => PythonHost.Guard(() => Take(message), Fail)));
        using var tell = PyObject.FromManagedObject((Action)(() => PythonHost.Guard(End, Fail)));
        var stream = _stream = door.InvokeMethod("open", called, timeout, emit);
        stream.InvokeMethod("when_done", tell).Dispose();
    }

    private bool Send(byte[] request)
    {
        if (_stream is not { } stream)
            return false; // its end has made room
        _room = NewRoom();
        using var view = PyObject.FromManagedObject(request);
        using var hasRoom = stream.InvokeMethod("send", view);
        if (hasRoom.IsTrue())
            _room.TrySetResult();
        return true;
    }

    /// <summary>Takes a message at once: how many there may be is bounded by who asks.</summary>
    private void Take(PyObject message)
    {
        using var taken = message;
        var copy = PythonBytes.Copy(taken);
        _messages.Writer.TryWrite(copy);
        if (_stream is not { } stream)
            return;
        using var size = new PyInt(copy.Length);
        using var hasRoom = stream.InvokeMethod("taken", size);
        if (hasRoom.IsTrue())
            _room.TrySetResult();
    }

    private void End()
    {
        using var stream = _stream!;
        _stream = null;
        using var told = stream.InvokeMethod("status");
        var status = PythonBytes.Copy(told);
        _messages.Writer.TryComplete(status.Length == 0 ? null : StatusReader.Error(status).ToException());
        _room.TrySetResult();
    }

    private void Cancel() => _host.Post(() => Invoke("cancel"), Fail);

    private bool Invoke(string method)
    {
        _stream?.InvokeMethod(method).Dispose();
        return true;
    }

    private void Fail(Exception error)
    {
        _messages.Writer.TryComplete(error);
        _room.TrySetResult();
    }
}
