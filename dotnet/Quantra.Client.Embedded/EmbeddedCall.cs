using Python.Runtime;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>One call into Python, from its start to the copy of its response.</summary>
/// <remarks>
/// The call starts on the host's thread. Its response is copied on the Python thread that computed it, which saves a thread switch. Both
/// threads hold the GIL meanwhile. A small prediction is computed on the host's thread if no other call is running, which saves another
/// switch.
/// </remarks>
/// <param name="host">Runs the call.</param>
/// <param name="timeout">Timeout of the whole call, for messages.</param>
/// <param name="remaining">Rest of the timeout.</param>
/// <param name="isSingle">Whether no other call is running that could share a forward pass.</param>
internal sealed class EmbeddedCall(PythonHost host, TimeSpan timeout, TimeSpan remaining, bool isSingle = false)
{
    private readonly TaskCompletionSource<(byte[] Response, byte[] Status)> _response =
        new(TaskCreationOptions.RunContinuationsAsynchronously);

    private PyObject? _pending;

    /// <summary>Makes a call and waits for its response without blocking a thread.</summary>
    /// <param name="server">Python's server.</param>
    /// <param name="method">Name of the method in prediction.proto.</param>
    /// <param name="request">The serialized request.</param>
    /// <param name="cancellationToken">Ends the wait, and soon after the work in Python.</param>
    /// <returns>The serialized response.</returns>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    /// <exception cref="QuantraException">Python's error, DEADLINE_EXCEEDED, QUEUE_FULL, or INTERNAL for any other exception in Python.</exception>
    public async Task<byte[]> RunAsync(EmbeddedServer server, string method, byte[] request, CancellationToken cancellationToken)
    {
        cancellationToken.ThrowIfCancellationRequested();
        if (host.IsFull)
        {
            const string Message = "too many calls are waiting for Python; retry later";
            throw Error(QuantraStatus.ResourceExhausted, QuantraReason.QueueFull, Message);
        }

        host.Post(() => Start(server, method, request), Fail);
        var (response, status) = await WaitAsync(cancellationToken).ConfigureAwait(false);
        return status.Length == 0 ? response : throw StatusReader.Error(status).ToException();
    }

    private static QuantraException Error(QuantraStatus status, string reason, string message, Exception? cause = null) =>
        new QuantraError(status, reason, message).ToException(cause);

    /// <summary>Waits for the response. Cancels the call in Python when the wait ends early.</summary>
    private async Task<(byte[] Response, byte[] Status)> WaitAsync(CancellationToken cancellationToken)
    {
        try
        {
            return await _response.Task.WaitAsync(remaining, cancellationToken).ConfigureAwait(false);
        }
        catch (OperationCanceledException)
        {
            host.Post(Cancel, Fail);
            throw;
        }
        catch (TimeoutException error)
        {
            host.Post(Cancel, Fail);
            var message = FormattableString.Invariant($"no response within {timeout.TotalSeconds:g} s; set a longer timeout");
            throw Error(QuantraStatus.DeadlineExceeded, QuantraReason.DeadlineExceeded, message, error);
        }
    }

    private void Start(EmbeddedServer server, string method, byte[] request)
    {
        using var pyMethod = new PyString(method);
        using var pyRequest = PyObject.FromManagedObject(request);
        using var pyTimeout = new PyFloat(remaining.TotalSeconds);
        var pending = _pending = server.InvokeMethod(isSingle ? "call_alone" : "call", pyMethod, pyRequest, pyTimeout);
        using var callback = PyObject.FromManagedObject((Action)(() => PythonHost.RunWithGil(Complete, Fail)));
        pending.InvokeMethod("when_done", callback).Dispose();
    }

    private void Complete()
    {
        using var pending = _pending!;
        _pending = null;
        using var answer = pending.InvokeMethod("answer");
        using var response = answer[0];
        using var status = answer[1];
        _response.TrySetResult((PythonBytes.Copy(response), PythonBytes.Copy(status)));
    }

    private void Cancel() => _pending?.InvokeMethod("cancel").Dispose();

    private void Fail(Exception error) => _response.TrySetException(error);
}
