using Python.Runtime;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>One call into Python, from its start to the copy of its answer.</summary>
/// <remarks>
/// It starts on the host's thread, and its answer is copied on the Python thread that computed it, which saves a thread
/// switch; both hold the GIL while they do so. A small prediction that is alone is computed on the host's thread, which saves another.
/// </remarks>
/// <param name="host">Where it starts.</param>
/// <param name="timeout">Of the whole call, as messages tell it.</param>
/// <param name="left">What is left of it.</param>
/// <param name="isAlone">Whether no other call of the predictor is under way, with which it could share a forward.</param>
internal sealed class EmbeddedCall(PythonHost host, TimeSpan timeout, TimeSpan left, bool isAlone = false)
{
    private readonly TaskCompletionSource<(byte[] Response, byte[] Status)> _answer =
        new(TaskCreationOptions.RunContinuationsAsynchronously);

    private PyObject? _pending;

    /// <summary>Makes a call and waits for its response without blocking a thread.</summary>
    /// <param name="door">To call.</param>
    /// <param name="name">Of the call, as in prediction.proto.</param>
    /// <param name="request">The bytes of its request.</param>
    /// <param name="cancellationToken">Ends the wait, and soon after the work.</param>
    /// <returns>The bytes of the response.</returns>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    /// <exception cref="QuantraException">
    /// Python's own error, DEADLINE_EXCEEDED, QUEUE_FULL, or INTERNAL for an exception that is not one of Quantra's.
    /// </exception>
    public async Task<byte[]> RunAsync(PythonDoor door, string name, byte[] request, CancellationToken cancellationToken)
    {
        cancellationToken.ThrowIfCancellationRequested();
        if (host.IsFull)
        {
            const string Message = "too many calls are waiting for Python; try again later";
            throw Refusal(QuantraStatus.ResourceExhausted, QuantraReason.QueueFull, Message);
        }

        host.Post(() => Begin(door, name, request), Fail);
        var (response, status) = await WaitAsync(cancellationToken).ConfigureAwait(false);
        return status.Length == 0 ? response : throw StatusReader.Error(status).ToException();
    }

    private static QuantraException Refusal(QuantraStatus code, string reason, string message, Exception? cause = null) =>
        new QuantraError(code, reason, message).ToException(cause);

    /// <summary>Waits for the answer, up to the timeout; Python is told if nobody waits any more.</summary>
    private async Task<(byte[] Response, byte[] Status)> WaitAsync(CancellationToken cancellationToken)
    {
        try
        {
            return await _answer.Task.WaitAsync(left, cancellationToken).ConfigureAwait(false);
        }
        catch (OperationCanceledException)
        {
            host.Post(Cancel, Fail);
            throw;
        }
        catch (TimeoutException error)
        {
            host.Post(Cancel, Fail);
            var message = FormattableString.Invariant($"no answer within {timeout.TotalSeconds:g} s; allow more time");
            throw Refusal(QuantraStatus.DeadlineExceeded, QuantraReason.DeadlineExceeded, message, error);
        }
    }

    private void Begin(PythonDoor door, string name, byte[] request)
    {
        using var called = new PyString(name);
        using var view = PyObject.FromManagedObject(request);
        using var seconds = new PyFloat(left.TotalSeconds);
        var pending = _pending = door.InvokeMethod(isAlone ? "call_alone" : "call", called, view, seconds);
        using var tell = PyObject.FromManagedObject((Action)(() => PythonHost.Guard(Collect, Fail)));
        pending.InvokeMethod("when_done", tell).Dispose();
    }

    private void Collect()
    {
        using var pending = _pending!;
        _pending = null;
        using var answer = pending.InvokeMethod("answer");
        using var response = answer[0];
        using var status = answer[1];
        _answer.TrySetResult((PythonBytes.Copy(response), PythonBytes.Copy(status)));
    }

    private void Cancel() => _pending?.InvokeMethod("cancel").Dispose();

    private void Fail(Exception error) => _answer.TrySetException(error);
}
