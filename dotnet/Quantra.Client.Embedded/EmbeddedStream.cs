using System.Diagnostics.CodeAnalysis;
using System.Threading.Channels;
using Python.Runtime;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>A streaming call into Python that exchanges serialized messages.</summary>
/// <remarks>
/// Requests are passed on the host's thread. Responses are copied on the Python threads that made them and wait in a channel. These
/// threads hold the GIL only for that.
/// </remarks>
[SuppressMessage("Usage", "CA2213:Disposable fields should be disposed", Justification = "disposed at the end of the call, while the GIL is held")]
internal sealed class EmbeddedStream : IAsyncDisposable
{
    private readonly PythonHost _host;
    private readonly Channel<byte[]> _messages = Channel.CreateUnbounded<byte[]>(new UnboundedChannelOptions { SingleReader = true });
    private TaskCompletionSource _hasRoom = CreateCompletionSource();
    private CancellationTokenRegistration _cancelled;
    private PyObject? _stream;

    private EmbeddedStream(PythonHost host) => _host = host;

    /// <summary>Starts a call.</summary>
    /// <param name="host">Runs the call.</param>
    /// <param name="server">Python's server.</param>
    /// <param name="method">Name of the method in prediction.proto.</param>
    /// <param name="timeout">Timeout of the whole call; null = unlimited.</param>
    /// <param name="cancellationToken">Ends the call.</param>
    public static EmbeddedStream Open(PythonHost host, EmbeddedServer server, string method, TimeSpan? timeout, CancellationToken cancellationToken)
    {
        var stream = new EmbeddedStream(host);
        host.Post(() => stream.Start(server, method, timeout?.TotalSeconds ?? double.PositiveInfinity), stream.Fail);
        stream._cancelled = cancellationToken.UnsafeRegister(_ => stream.Cancel(), null); // registered last, so that it runs after the start
        return stream;
    }

    /// <summary>Passes a request to Python. Completes when there is room for another.</summary>
    /// <returns>Whether the request was passed. If not, the call has ended.</returns>
    public async Task<bool> SendAsync(byte[] request)
    {
        var isSent = await _host.RunAsync(() => Send(request)).ConfigureAwait(false);
        await _hasRoom.Task.ConfigureAwait(false);
        return isSent;
    }

    /// <summary>Ends the stream of requests.</summary>
    public Task CompleteAsync() => _host.RunAsync(() => Invoke("end"));

    /// <summary>Returns the next message; null at the end of the call.</summary>
    /// <exception cref="QuantraException">The error of the call.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<byte[]?> ReadAsync(CancellationToken cancellationToken)
    {
        while (await _messages.Reader.WaitToReadAsync(cancellationToken).ConfigureAwait(false))
        {
            if (_messages.Reader.TryRead(out var message))
                return message;
        }

        return null;
    }

    /// <summary>Cancels the call.</summary>
    public async ValueTask DisposeAsync()
    {
        await _cancelled.DisposeAsync().ConfigureAwait(false);
        Cancel();
    }

    private static TaskCompletionSource CreateCompletionSource() => new(TaskCreationOptions.RunContinuationsAsynchronously);

    private void Start(EmbeddedServer server, string method, double timeoutSeconds)
    {
        using var pyMethod = new PyString(method);
        using var pyTimeout = new PyFloat(timeoutSeconds);
        using var onMessage = PyObject.FromManagedObject((Action<PyObject>)(message => PythonHost.RunWithGil(() => Receive(message), Fail)));
        using var onDone = PyObject.FromManagedObject((Action)(() => PythonHost.RunWithGil(End, Fail)));
        var stream = _stream = server.InvokeMethod("open", pyMethod, pyTimeout, onMessage);
        stream.InvokeMethod("when_done", onDone).Dispose();
    }

    private bool Send(byte[] request)
    {
        if (_stream is not { } stream)
            return false; // the end of the call has completed _hasRoom
        _hasRoom = CreateCompletionSource();
        using var pyRequest = PyObject.FromManagedObject(request);
        using var hasRoom = stream.InvokeMethod("send", pyRequest);
        if (hasRoom.IsTrue())
            _hasRoom.TrySetResult();
        return true;
    }

    /// <summary>Queues a message without blocking. The limit of requests in flight bounds their number.</summary>
    private void Receive(PyObject message)
    {
        using var received = message;
        var bytes = PythonBytes.Copy(received);
        _messages.Writer.TryWrite(bytes);
        if (_stream is not { } stream)
            return;
        using var size = new PyInt(bytes.Length);
        using var hasRoom = stream.InvokeMethod("taken", size);
        if (hasRoom.IsTrue())
            _hasRoom.TrySetResult();
    }

    private void End()
    {
        using var stream = _stream!;
        _stream = null;
        using var pyStatus = stream.InvokeMethod("status");
        var status = PythonBytes.Copy(pyStatus);
        _messages.Writer.TryComplete(status.Length == 0 ? null : StatusReader.Error(status).ToException());
        _hasRoom.TrySetResult();
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
        _hasRoom.TrySetResult();
    }
}
